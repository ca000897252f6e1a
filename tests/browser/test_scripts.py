"""What moves on pages: cursors of charts, links that swap what is shown, and pages over books that go on."""

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import uvicorn
from tests.browser.chromium import Heard
from tests.browser.conftest import DESK
from tests.interfaces.server.conftest import Remembering

from loadfactor.books.books import Books
from loadfactor.interfaces.server.app import make_app
from loadfactor.interfaces.server.guard import Bounds, Guard
from loadfactor.interfaces.web.shell import POLL_S
from loadfactor.store.tokens import TokenFile

CHART = "figure[data-chart]"
VALUES = ".readout:not([hidden])"
HOLD_MS = 400  # so long a finger stays before it chooses (page.js)


def point(page: Any, figure: Any, across: float) -> tuple[float, float]:
    """Move the mouse over a chart, to this share of its width; where that is."""
    figure.scroll_into_view_if_needed()
    box = figure.bounding_box()
    at = box["x"] + box["width"] * across, box["y"] + box["height"] / 2
    page.mouse.move(*at)
    return at


def remember(page: Any) -> None:
    """Leave something in the page that loading it anew would lose."""
    page.evaluate("() => { window.remembered = true; }")


def is_remembered(page: Any) -> bool:
    """Whether the page was not loaded anew since."""
    return bool(page.evaluate("() => window.remembered === true"))


def test_a_cursor_shows_values_in_every_chart_of_time(page: Any) -> None:
    """Those of the same moment, as the table has them; without a pointer there is none."""
    page.goto("/time")
    charts = page.locator(CHART)
    assert charts.count() > 1
    point(page, charts.first, 0.4)
    shown = page.locator(VALUES).all_inner_texts()
    assert len(shown) == charts.count()
    assert len({text.splitlines()[0] for text in shown}) == 1
    rows = page.locator("tbody tr").all_inner_texts()
    values = [text.splitlines()[1].split(" ", 1)[1].removeprefix("factor ") for text in shown]
    assert any(all(value in row for value in values) for row in rows), values
    page.mouse.move(5, 5)
    assert page.locator(VALUES).count() == 0


def test_the_cursor_goes_by_keys_and_is_announced(page: Any) -> None:
    """Arrows step, End goes to the last moment, Escape leaves."""
    page.goto("/")
    chart = page.locator(CHART).first
    chart.focus()
    values = []
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "End"):
        page.keyboard.press(key)
        values.append(chart.get_attribute("aria-valuetext"))
    assert values[0] == values[2] != values[1]
    assert "Utilization" in values[3]
    assert values[3].partition(": ")[0] in page.locator(VALUES).inner_text()
    page.keyboard.press("Escape")
    assert page.locator(VALUES).count() == 0


def test_a_finger_moves_the_cursor(chromium: Any, address: str) -> None:
    """On a phone, whose picture is the narrow one."""
    with chromium.new_context(base_url=address, viewport={"width": 390, "height": 844}, has_touch=True) as context:
        page = context.new_page()
        page.goto("/")
        chart = page.locator(CHART).first
        chart.scroll_into_view_if_needed()
        box = chart.bounding_box()
        page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        values = page.locator(VALUES)
        assert "Utilization" in values.inner_text()
        shown = values.bounding_box()
        assert 0 <= shown["x"] <= shown["x"] + shown["width"] <= 390
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 390


def test_brushing_is_an_address(page: Any) -> None:
    """Of that window, with the rest of the state; back is the page as it was, where it was."""
    page.goto("/time?metric=utilization&by=hour")
    remember(page)
    x, y = point(page, page.locator(CHART).first, 0.3)
    page.mouse.down()
    page.mouse.move(x + 100, y, steps=3)
    page.mouse.up()
    page.wait_for_url("**from=**")
    page.locator("#main:not([aria-busy]) h1").wait_for()
    assert "metric=utilization&by=hour&from=" in page.url
    first = page.locator(".window input[name=from]").input_value()
    assert first in page.url
    assert is_remembered(page)
    page.go_back()
    page.locator(".window input[name=from][value='']").wait_for()
    assert "from=" not in page.url


@pytest.mark.parametrize(("path", "where"), [("/", CHART), ("/gpus", ".heat")])
def test_a_finger_that_is_held_brushes(chromium: Any, address: str, path: str, where: str) -> None:
    """One that moves at once looks, and chooses nothing."""
    with chromium.new_context(base_url=address, viewport={"width": 390, "height": 844}, has_touch=True) as context:
        page = context.new_page()
        page.goto(path)
        field = page.locator(where).first
        field.scroll_into_view_if_needed()
        box = field.bounding_box()
        touch = context.new_cdp_session(page)

        def drag(held_ms: int) -> None:
            y = box["y"] + box["height"] / 2
            x = box["x"] + box["width"] * 0.4
            touch.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]})
            page.wait_for_timeout(held_ms)
            for step in range(1, 5):
                moved = {"type": "touchMove", "touchPoints": [{"x": x + step * 25, "y": y}]}
                touch.send("Input.dispatchTouchEvent", moved)
            touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

        drag(0)
        assert page.locator(VALUES).count() >= 1
        assert "from=" not in page.url
        drag(HOLD_MS + 100)
        page.wait_for_url("**from=**")


def test_links_and_forms_swap_what_is_shown(page: Any) -> None:
    """The title, the navigation and the address go along, the heading is announced, scripts work in the new part."""
    page.goto("/")
    remember(page)
    page.get_by_role("link", name="Teams", exact=True).click()
    page.wait_for_url("**/teams")
    page.locator("nav [aria-current]", has_text="Teams").wait_for()
    assert page.title().startswith("What did each team use")
    assert page.evaluate("() => document.activeElement.tagName") == "H1"
    assert page.locator("[role=status]").first.inner_text() == page.title()
    page.locator("tbody a").first.click()
    page.wait_for_url("**/teams/*")
    point(page, page.locator(CHART).first, 0.5)
    assert page.locator(VALUES).count() >= 1
    page.locator(".window select").select_option("1d")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**last=1d")
    page.locator("option[value='1d'][selected]").wait_for(state="attached")
    assert is_remembered(page)
    for expected in ("**/teams/*", "**/teams", "**/"):
        page.go_back()
        page.wait_for_url(expected)
    page.locator("nav [aria-current]", has_text="Fleet").wait_for()
    assert is_remembered(page)


def test_what_cannot_be_swapped_is_loaded(chromium: Any, address: str) -> None:
    """A page that is refused, or another form of it."""
    with chromium.new_context(base_url=address) as context:
        page = context.new_page()
        page.goto("/")
        remember(page)
        page.evaluate("() => { document.querySelector('nav.top a').href = '/teams/nobody'; }")
        page.locator("nav.top a").first.click()
        page.get_by_text("There is no such page.").wait_for()
        assert not is_remembered(page)


def test_the_heat_map_says_what_a_cell_is(page: Any) -> None:
    """To a mouse and to keys; hours that are chosen are an address, a GPU that is clicked has a page, nodes are a link away."""
    page.goto("/gpus")
    remember(page)
    field = page.locator(".heat")
    field.locator("canvas").wait_for()
    assert page.locator("figure[data-heat] svg").count() == 0  # the picture of those without scripts
    point(page, field, 0.7)
    assert re.search(r"\d\d:00: (\d.* % utilization|held|down|nothing)", field.locator(".readout").inner_text())
    with page.expect_response("**format=cells**"):  # what a page over books that go on does when they did
        page.evaluate("() => { document.querySelector('[data-heat]').dataset.heat = 'stale'; }")
        page.evaluate("() => document.dispatchEvent(new Event('loadfactor:shown'))")
    page.locator("[data-heat=drawn]").wait_for()
    assert page.locator(".heat canvas").count() == 1
    page.mouse.move(5, 5)
    field.focus()
    for key in ("ArrowDown", "ArrowRight", "Shift+ArrowRight", "Shift+ArrowRight"):
        page.keyboard.press(key)
    assert ":00: " in page.locator(".heat + .announced").inner_text()
    page.keyboard.press("Enter")
    page.wait_for_url("**from=**")
    page.locator(".window input[name=from]:not([value=''])").wait_for()
    field.locator("canvas").wait_for()
    page.get_by_role("link", name="By node").click()
    page.wait_for_url("**rows=nodes**")
    page.get_by_role("link", name="By GPU").click()
    page.wait_for_url("**rows=gpus**")
    page.get_by_role("link", name="By node").wait_for()
    page.mouse.click(*point(page, field, 0.7))
    page.wait_for_url("**/gpus/**from=**")
    page.locator("h1", has_text="GPU ").wait_for()
    assert is_remembered(page)


def test_a_plan_answers_whenever_a_field_was_changed(page: Any) -> None:
    """In place: the address is the plan, what the reader goes on with keeps its focus, what is wrong stands at its field."""
    page.goto("/plan/own")
    page.locator("h1", has_text="Own ").wait_for()
    remember(page)
    price = page.locator("#fields [name=rent_price]")
    page.locator("#fields details").evaluate_all("all => all.forEach(one => { one.open = true; })")
    price.fill("0.5")
    page.keyboard.press("Tab")
    page.wait_for_url("**rent_price=0.5**")
    page.locator("h1", has_text="Do not own: ").wait_for()
    assert page.evaluate("() => document.activeElement.name") == "committed_price"
    price.fill("cheap")
    page.keyboard.press("Tab")
    page.locator(".field.wrong .problem").wait_for()
    assert price.input_value() == "cheap"
    assert price.is_visible()  # what was unfolded stays so
    assert is_remembered(page)


@pytest.fixture
def live(store: Path) -> Iterator[str]:
    """The address of a server over these books as if they went on."""
    books = Books(store)
    app = make_app(books, Remembering(), Guard(TokenFile(store)), Bounds(requests_per_s=1000, burst=1000))
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
    thread = Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    thread.join()
    listening.close()


@pytest.fixture
def watched(chromium: Any, live: str) -> Iterator[Any]:
    """A page of that server with a clock that the test moves on."""
    with chromium.new_context(base_url=live, viewport=DESK) as context:
        heard = Heard(live)
        context.on("page", heard.listen)
        page = context.new_page()
        page.clock.install()
        yield page
        assert [line for line in heard.found if "net::" not in line and "503" not in line] == []


def poll(page: Any, seconds: float = POLL_S) -> int:
    """Let so much time pass and a page ask for itself; the status of the answer."""
    with page.expect_response("**/*") as answered:
        page.clock.run_for(seconds * 1000)
    status: int = answered.value.status
    tag = answered.value.headers.get("etag")
    while status == 200 and page.evaluate("() => loadfactor.tag") != tag:
        page.wait_for_timeout(10)
    page.wait_for_timeout(10)  # until it has read the answer
    return status


def change(store: Path) -> None:
    """Have the books be newer than they were."""
    os.utime(store / "manifest.json")


def test_a_page_asks_for_itself_and_stays_as_the_reader_left_it(watched: Any, store: Path) -> None:
    """Where nothing changed nothing is sent; where something did, focus, selection and the cursor stay."""
    watched.goto("/")
    assert watched.locator("#main").get_attribute("data-poll") == str(POLL_S)
    assert poll(watched) == 200  # its first question for a tag
    assert poll(watched) == 304
    link = watched.locator("tbody a").first
    link.focus()
    watched.evaluate("() => getSelection().selectAllChildren(document.querySelector('h1'))")
    watched.evaluate("() => { document.querySelector('.tile b').textContent = 'old'; }")
    chosen = watched.evaluate("() => getSelection().toString()")
    change(store)
    assert poll(watched) == 200
    assert watched.locator(".tile b").first.inner_text() != "old"
    assert watched.evaluate("() => getSelection().toString()") == chosen
    assert watched.evaluate("() => document.activeElement === document.querySelector('tbody a')")
    assert poll(watched) == 304


def test_a_page_that_cannot_ask_says_as_of_when_it_is(watched: Any) -> None:
    """It asks less and less often, and says no more once it is answered."""
    watched.goto("/teams")
    assert poll(watched) == 200
    watched.route("**/teams", lambda route: route.fulfill(status=503))
    for seconds in (POLL_S, 2 * POLL_S, 4 * POLL_S):
        assert poll(watched, seconds) == 503
    watched.locator(".as-of", has_text="3 min ago").wait_for()
    watched.unroute("**/teams")
    assert poll(watched, 8 * POLL_S) == 304
    watched.locator(".as-of").wait_for(state="hidden")


@pytest.mark.long
def test_a_page_left_open_uses_the_same_memory(watched: Any, store: Path) -> None:
    """After 500 questions, each twentieth of which changed the page, what is kept is no more than after 100."""
    watched.goto("/")
    session = watched.context.new_cdp_session(watched)
    kept = []
    for number in range(500):
        if number % 20 == 1:
            change(store)
        assert poll(watched) == (200 if number == 0 or number % 20 == 1 else 304)
        if number in (100, 499):
            session.send("HeapProfiler.collectGarbage")
            used = session.send("Runtime.getHeapUsage")["usedSize"]
            nodes = watched.evaluate("() => document.querySelectorAll('*').length")
            kept.append((used, nodes))
    (first, nodes), (last, nodes_then) = kept
    print(f"heap {first:,} to {last:,} bytes, {nodes} elements")
    assert nodes == nodes_then
    assert last < first * 1.05 + 200_000
