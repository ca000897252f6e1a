"""What each page looks like: on a phone and a large screen, dark and light, printed, to who cannot see it, and without scripts."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.browser.chromium import read_axe

from loadfactor.books.books import Books
from loadfactor.interfaces.web.pages import PAGES

WIDTHS = (390, 1280, 2560)
A4_PX = 718
"""The width of A4 at 96 dots an inch, less a centimetre on each side."""
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
BAD = ("serious", "critical")
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
CUT = """() => [...document.querySelectorAll('table')].filter(t => t.offsetParent && (
  t.getBoundingClientRect().right > innerWidth + 1 || t.scrollWidth > t.parentElement.clientWidth + 1)).map(t => t.innerText)"""
WORDS_CUT = """() => [...document.querySelectorAll('.tile, h1, h2, p, nav a, svg text, th, td, button, label')].filter(e => {
  const box = e.getBoundingClientRect();
  return box.width && !e.closest('.scroll, .skip') && (box.left < -1 || box.right > innerWidth + 1)
    && getComputedStyle(e).clipPath == 'none';
}).map(e => e.textContent)"""
CELLS_CUT = """() => [...document.querySelectorAll('th, td')].filter(e => e.offsetParent && !e.closest('.hidden')
  && e.scrollWidth > e.clientWidth + 1).map(e => e.textContent)"""
TABLES = "all => all.map(t => t.innerText)"


@pytest.fixture(scope="module")
def paths(store: Path) -> dict[str, str]:
    """The address of one of each page."""
    with Books(store).snapshot() as snapshot:
        names = {name: snapshot.show(("cost",), (name,)).arrange("cost", True) for name in ("team", "job", "device")}
    of_thing = dict(zip(("/teams/{id}", "/jobs/{id}", "/gpus/{id}"), names.values(), strict=True))
    of_thing["/teams/{id}/statement"] = names["team"]
    return {page.path: page.path.replace("{id}", _first(of_thing, page.path)) for page in PAGES}


def _first(of_thing: Any, path: str) -> str:
    return str(next(key[0] for key in of_thing[path].keys if key[0])) if path in of_thing else ""


@pytest.fixture(scope="module")
def axe() -> str:
    """The script of axe-core."""
    return read_axe()


@pytest.mark.parametrize("path", [page.path for page in PAGES])
def test_every_page_fits_and_is_accessible(page: Any, paths: dict[str, str], axe: str, path: str) -> None:
    """At every width nothing overflows; dark and light axe-core finds nothing serious; printed no table is cut."""
    page.goto(paths[path])
    page.locator("[data-poll]").wait_for(state="detached", timeout=300_000)  # a long answer is there
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(OVERFLOW) <= 0, width
        assert page.evaluate(WORDS_CUT) == [], width
        assert page.evaluate(CELLS_CUT) == [], width  # no cell writes over the next
    page.set_viewport_size({"width": 1280, "height": 900})
    page.evaluate(axe)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found = page.evaluate("rules => axe.run({runOnly: rules, resultTypes: ['violations']})", RULES)
        assert found["passes"]
        assert [(v["id"], v["nodes"][0]["html"]) for v in found["violations"] if v["impact"] in BAD] == [], scheme
    page.emulate_media(media="print", color_scheme="light")
    page.set_viewport_size({"width": A4_PX, "height": 1000})
    assert page.evaluate(CUT) == []
    pdf = page.pdf(format="A4", margin=dict.fromkeys(("left", "right", "top", "bottom"), "1cm"))
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) >= 1


@pytest.fixture
def scriptless(chromium: Any, address: str) -> Iterator[Any]:
    """A page of a browser that runs no script."""
    with chromium.new_context(base_url=address, java_script_enabled=False) as context:
        yield context.new_page()


def test_without_scripts_the_tables_are_the_same(page: Any, scriptless: Any, paths: dict[str, str]) -> None:
    """Of every page."""
    for path in paths.values():
        page.goto(path)
        page.locator("[data-poll]").wait_for(state="detached", timeout=300_000)  # a long answer is made once
        scriptless.goto(path)
        shown, plain = (opened.eval_on_selector_all("table", TABLES) for opened in (page, scriptless))
        assert shown == plain, path
        assert plain or path in ("/alerts", "/views"), path
