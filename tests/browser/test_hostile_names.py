"""Names that would do harm where they were not text: of teams, users, jobs, pools, nodes and GPUs, on every page that has them."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from tests.browser.chromium import Heard, serve
from tests.interfaces.server.conftest import HOUR, START, write_csv

from loadfactor.books.books import Books
from loadfactor.interfaces.web.links import LONGEST_ADDRESS
from loadfactor.interfaces.web.pages import PAGES

HARM = "<img src=x onerror=\"document.title='harmed'\"><script>document.title='harmed'</script>"
NAMES = {
    "html": HARM,
    "attribute": "\" onmouseover=\"document.title='harmed'",
    "template": "{{ 7 * 7 }}{% raw %}",
    "sql": "'; DROP TABLE ledger; --",
    "bidi": "\u202egnp.exe\u2066",
    "ansi": "\x1b[31mred\x1b[0m",
    "long": "n" * 10_000,
    "address": "a/b?c#d&e=f%2e%2e/../..",
}
TEXT = "document.body.innerText"
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a fleet with such names is shown."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "tables").mkdir()
    gpu = {"accelerator": "H100", "from_utc": START}
    devices = [gpu | {"device_id": f"G{name}", "node": f"N{name}", "pool": f"P{name}"} for name in NAMES.values()]
    held = [
        {"device_id": f"G{name}", "from_utc": START, "to_utc": START + HOUR}
        | dict.fromkeys(("team", "job_id", "user", "project"), name)
        for name in NAMES.values()
    ]
    waiting = [
        {"at_utc": START, "event": "submitted", "gpus": 1, "reason": name, "team": name, "job_id": f"W{name}"}
        for name in NAMES.values()
    ]
    prices = [{"basis": "contracted", "price_per_gpu_hour": 2.0}]
    for table, rows in (("devices", devices), ("allocations", held), ("queue_events", waiting), ("prices", prices)):
        write_csv(folder / "tables" / f"{table}.csv", rows)
    Books(folder / "books").add("tables", [folder / "tables"])
    with serve(folder / "books") as address:
        yield address


def test_hostile_names_are_text(chromium: Any, hostile: str) -> None:
    """None runs, hides, turns or widens anything, in the lists and as the name of a page."""
    with chromium.new_context(base_url=hostile, viewport={"width": 390, "height": 800}) as context:
        heard = Heard(hostile)
        context.on("page", heard.listen)
        page = context.new_page()
        lists = [declared.path for declared in PAGES if declared.name]
        things = [f"/teams/{quote(name, safe='')}" for name in NAMES.values() if len(name) < LONGEST_ADDRESS]
        for path in [*lists, *things, f"/jobs/{quote(HARM, safe='')}", f"/gpus/G{quote(HARM, safe='')}"]:
            answer = page.goto(path)
            assert answer.status == 200, path[:80]
            text = page.evaluate(TEXT)
            assert page.title() != "harmed", path
            assert page.evaluate("document.querySelectorAll('#main img, #main script, [onmouseover]').length") == 0, (
                path
            )
            assert not set("\u202e\u2066\x1b") & set(text), path[:80]
            assert page.evaluate(OVERFLOW) <= 0, path[:80]
            links = page.eval_on_selector_all("a", "all => all.map(a => a.getAttribute('href'))")
            assert [link[:80] for link in links if len(link) > LONGEST_ADDRESS] == [], path[:80]
        for path in ("/teams", "/jobs", "/gpus"):
            page.goto(path)
            text = page.evaluate(TEXT)
            assert HARM in text
            assert NAMES["sql"] in text
            assert NAMES["template"] in text
        assert heard.found == []
