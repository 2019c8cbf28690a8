"""A browser for the tests of a file, and a server for each run that one of them asks for."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from browser.explored import Explored, explore, spoil, train_run
from browser.watching import open_browser
from small_corpora import corpora

__all__ = ["browser", "corpora", "explored"]

Explore = Callable[[str], Explored]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Playwright's event loop runs in this thread until the browser is closed; other files start loops of their own."""
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="session")
def explored(corpora: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explore]:
    """The run of a task and a family, by name: `tagging/recurrent`; `translation/transformer/hostile` has markup."""
    made: dict[str, Explored] = {}
    with ExitStack() as servers:

        def get(name: str) -> Explored:
            if name not in made:
                task, family, *hostile = name.split("/")
                folder = tmp_path_factory.mktemp("explored")
                data = spoil(corpora, folder / "data") if hostile else corpora
                made[name] = servers.enter_context(explore(train_run(folder, data, task, family)))
            return made[name]

        yield get
