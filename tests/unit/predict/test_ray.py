"""How the cores of a cluster are shared out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.errors import ConfigError
from seqloom.predict.ray import share_cores


@given(st.lists(st.integers(0, 12), max_size=4), st.integers(1, 20))
def test_all_workers_fit_and_none_could_have_more(cores: list[int], workers: int) -> None:
    def room(share: int) -> int:
        return sum(count // share for count in cores)

    if sum(cores) < workers:
        with pytest.raises(ConfigError, match="a worker needs a core"):
            share_cores(cores, workers)
        return
    share = share_cores(cores, workers)
    assert room(share) >= workers > room(share + 1)
