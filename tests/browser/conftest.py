"""A small fleet's pages in Debian's Chromium; skipped where it is not installed, with LOADFACTOR_REQUIRE_REAL=1 a failure."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.browser.chromium import Heard, list_missing, serve, start_chromium

from loadfactor.books.books import Books
from loadfactor.simulator import SMALL, simulate, write_tables

HERE = Path(__file__).parent
DESK = {"width": 1280, "height": 900}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests in this folder."""
    if os.environ.get("LOADFACTOR_REQUIRE_REAL") == "1" or not (missing := list_missing()):
        return
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=f"not installed: {', '.join(missing)}"))


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The browser."""
    missing = list_missing()
    assert not missing, f"install {' and '.join(missing)}: LOADFACTOR_REQUIRE_REAL asks for them"
    with start_chromium() as browser:
        yield browser


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The books of a small simulated fleet. Only read them."""
    folder = tmp_path_factory.mktemp("pages")
    write_tables(simulate(SMALL), folder / "tables")
    Books(folder / "books").add("tables", [folder / "tables"])
    return folder / "books"


@pytest.fixture(scope="session")
def address(store: Path) -> Iterator[str]:
    """Where `loadfactor serve` shows them, to this machine without a token."""
    with serve(store) as address:
        yield address


@pytest.fixture
def page(chromium: Any, address: str) -> Iterator[Any]:
    """A page whose links are relative to that address. Any message on its console, error or request to elsewhere fails the test."""
    with chromium.new_context(base_url=address, viewport=DESK) as context:
        heard = Heard(address)
        context.on("page", heard.listen)
        yield context.new_page()
        assert heard.found == []
