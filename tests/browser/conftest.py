"""A browser for all tests of a process, and a server for each run that one of them asks for."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from browser.explored import Explored, explore, train_run
from browser.watching import open_browser
from small_corpora import corpora

__all__ = ["browser", "corpora", "explored"]

Explore = Callable[[str], Explored]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="session")
def explored(corpora: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explore]:
    """The run of a task and a family, by name: `tagging/recurrent`."""
    made: dict[str, Explored] = {}
    with ExitStack() as servers:

        def get(name: str) -> Explored:
            if name not in made:
                task, family = name.split("/")
                folder = train_run(tmp_path_factory.mktemp("explored"), corpora, task, family)
                made[name] = servers.enter_context(explore(folder))
            return made[name]

        yield get
