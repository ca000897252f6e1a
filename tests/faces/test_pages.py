"""The text of the pages of the books, as kept in tests/faces/pages: at 80 and 100 columns, without colour, and in ASCII.

`UPDATE_PAGES=1 pytest tests/faces/test_pages.py` writes them anew; read the difference before it is kept.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from loadfactor.books.books import Books
from loadfactor.faces.document import Document
from loadfactor.faces.readings import build_document as build_readings
from loadfactor.faces.render.ascii import to_ascii
from loadfactor.faces.render.terminal import render_text
from loadfactor.faces.report.inquiry import Inquiry
from loadfactor.faces.report.page import build_document as build_report

KEPT = Path(__file__).parent / "pages"
RESIDUAL = re.compile(r"[+-]\d\.\de[+-]\d\d GPU-hours, [+-]\d\.\de[+-]\d\d USD")
"""What rounding leaves differs from run to run."""
PAGES: dict[str, Callable[[Books], Document]] = {
    "report": lambda books: build_report(Inquiry(books)),
    "show": lambda books: build_readings(books.show()),
    "show-by-team": lambda books: build_readings(
        books.show(
            ["cost", "idle_cost", "idle_gpu_hours", "utilization", "cost_per_token", "queue_wait_s_p50"], ["team"]
        )
    ),
}


@pytest.fixture(scope="module")
def documents(simulated_books: Books) -> dict[str, Document]:
    """Every page of the simulated fleet, its books called `books`."""
    before = Path.cwd()
    os.chdir(simulated_books.store.folder.parent)
    try:
        books = Books(Path(simulated_books.store.folder.name))
        return {name: build(books) for name, build in PAGES.items()}
    finally:
        os.chdir(before)


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [80, 100])
def test_a_page_is_as_it_was_read(documents: dict[str, Document], name: str, width: int) -> None:
    """The terminal text is the one that somebody has read and kept, no line wider than the terminal."""
    text = RESIDUAL.sub("RESIDUAL", render_text(documents[name], width)) + "\n"
    assert max(map(len, text.splitlines())) <= width
    compare(f"{name}.{width}.txt", text)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_in_ascii_is_as_it_was_read(documents: dict[str, Document], name: str) -> None:
    """A terminal without Unicode gets the same page, one character for one."""
    text = to_ascii(RESIDUAL.sub("RESIDUAL", render_text(documents[name], 80))) + "\n"
    assert text.isascii()
    compare(f"{name}.80.ascii.txt", text)


def compare(name: str, text: str) -> None:
    """The kept page is this text; with UPDATE_PAGES it becomes this text."""
    path = KEPT / name
    if os.environ.get("UPDATE_PAGES"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
