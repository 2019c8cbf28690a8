"""Integrated gradients of every model: those with norms at the start need many steps."""

import pytest

from unit.lens.test_attribution import check_integrated
from unit.lens.traced import NAMES, trace

pytestmark = pytest.mark.usefixtures("as_users_run")


@pytest.mark.parametrize("name", NAMES)
def test_integrated_gradients_add_up(name: str) -> None:
    t = trace(name, double=True)
    for position in (0, -1):
        check_integrated(t.attribute(position, method="integrated"))
