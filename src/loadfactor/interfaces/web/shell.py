"""A page whole: the document in its frame, with navigation, the way up, the window, who is signed in, and other forms of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import urlencode

from loadfactor.base.errors import InputError
from loadfactor.insight.alerts.configured import configure
from loadfactor.insight.alerts.delivery.board import read_board
from loadfactor.insight.alerts.rules import RULES
from loadfactor.interfaces.document import Document
from loadfactor.interfaces.formats import instant, make_visible
from loadfactor.interfaces.pages.alerts import say_silenced
from loadfactor.interfaces.plans.process import PLANS
from loadfactor.interfaces.reach import NothingKnownError, RefusedError
from loadfactor.interfaces.render.html import render_content
from loadfactor.interfaces.web.ask import BEFORE, COMPARE, FACETS, KEPT, LIVE_WINDOW, Ask
from loadfactor.interfaces.web.builders import PAGE_ROWS
from loadfactor.interfaces.web.frame import part_by_space, render
from loadfactor.interfaces.web.links import Linker
from loadfactor.interfaces.web.pages import CHECK, PAGES, Page
from loadfactor.interfaces.web.plans import AGAINST, AS_IT_IS
from loadfactor.metrics.query.calendar import instant as moment
from loadfactor.metrics.query.question import UNKNOWN_HOLDER
from loadfactor.settings.config import settings
from loadfactor.store.trusted_time import read_clock

WINDOWS: Final = (("1d", "1 day"), ("7d", "7 days"), ("30d", "30 days"), ("90d", "90 days"))
ZONES: Final = (
    *("UTC", "America/Los_Angeles", "America/Denver", "America/Chicago", "America/New_York", "America/Sao_Paulo"),
    *("Europe/London", "Europe/Paris", "Europe/Berlin", "Europe/Zurich", "Europe/Helsinki", "Africa/Johannesburg"),
    *("Asia/Dubai", "Asia/Kolkata", "Asia/Singapore", "Asia/Shanghai", "Asia/Seoul", "Asia/Tokyo", "Australia/Sydney"),
)
"""Suggested; any other can be typed."""
FORMS: Final = ("json", "csv")
FILES: Final[tuple[Literal["pdf", "xlsx"], ...]] = ("pdf", "xlsx")
"""Forms of a page, and more of one that is a document."""
BESIDE: Final = "beside"
SHOWN: Final = ("last", "from", "to", "tz", "q", COMPARE)
"""Of the state, what the fields of the frame show."""
POLL_S: Final = 30
"""How often a page over books that go on asks whether they did, while somebody looks at it."""
MAKING_POLL_S: Final = 2
"""The same of a page whose answer is being made."""
MOST_QUIETED: Final = 20
MOST_OTHERS: Final = 50
"""Jobs that the form offers to put another one beside."""
WHOLE: Final = tuple(
    dict.fromkeys((*KEPT, "by", "metric", "basis", "sort", "q", COMPARE, BESIDE, "rows", *FACETS, "offset"))
)


@dataclass(frozen=True)
class Viewer:
    """Who looks: what they are called, what they may, and the key of their forms. `parts_by_space`: how they read large numbers."""

    name: str = ""
    team: str | None = None
    reads_fleet: bool = True
    writes: bool = False
    saves: bool = False
    has_session: bool = False
    parts_by_space: bool = False
    form_key: str = ""


def build_document(page: Page, ask: Ask) -> Document:
    """The document of a page; where the books know nothing of what may be seen, one that says so.

    Raises RefusedError for a thing that they do not know, InputError for a state that cannot be.
    """
    try:
        return page.build(ask)
    except NothingKnownError:
        return Document("The books know nothing of this yet.", data=())
    except InputError as error:
        if not ask.name:
            raise
        ask.inquire()  # raises where it is the window that is wrong, rather than the name
        raise RefusedError(404, str(error)) from error


def build_parts(page: Page, ask: Ask) -> Mapping[str, Any]:
    """The parts of a page that are the same for everybody of one reach: the document as HTML, and words of its frame.

    Raises as `build_document`.
    """
    document = build_document(page, ask)
    up = next((p for p in PAGES if p.path == page.up), None)
    chosen = ask.text("last") or (LIVE_WINDOW if ask.is_live and not ask.text("from") else "")
    offset = int(ask.text("offset")) if ask.text("offset").isdecimal() else 0
    tables = [table for section in document.sections for table in section.tables]
    is_paged = page.has_search or page.path == "/gpus"
    return {
        "title": make_visible(page.ask_question(ask.name)),
        "page": page,
        "ask": make_visible_state(ask),
        "content": render_content(document, Linker(ask)),
        "is_empty": not ask.forms
        and not any(table.rows for table in tables)
        and not document.tiles
        and not document.charts,
        "links": [
            (p, ask.link(p.path, _keep(page, p)), p.path == page.path or p.path == page.up != "/")
            for p in PAGES
            if p.name
        ],
        "up": up and (up.name, ask.link(up.path, _keep(page, up))),
        "plans": [(kind.name, f"/plan/{kind.name}") for kind in PLANS] if page.answer == "plan" else [],
        "form": ask.forms[0] if ask.forms else None,
        "against": _put_against(ask) if ask.forms else None,
        "windows": WINDOWS,
        "zones": ZONES,
        "before": BEFORE,
        "zone": settings().timezone,
        "chosen": chosen,
        "kept": _list_kept(ask, (*SHOWN, "offset")),
        "forms": [(form, _name_form(ask, form)) for form in (*FORMS, *(FILES if page.is_document else ()))],
        "command": make_visible(page.command(ask)),
        "cells": ask.link(ask.path, (*KEPT, "rows"), format="cells") if page.cells else "",
        "quieting": _list_quieting(ask, document) if page.path == "/alerts" and ask.team is None else None,
        "is_making": any(each.is_making for each in ask.standing),
        "poll_s": _choose_poll_s(page, ask),
        "earlier": ask.link(ask.path, WHOLE, offset=str(max(0, offset - PAGE_ROWS))) if is_paged and offset else "",
        "later": (
            ask.link(ask.path, WHOLE, offset=str(offset + PAGE_ROWS))
            if is_paged and tables and len(tables[0].rows) == PAGE_ROWS
            else ""
        ),
        "here": _name_here(ask),
        "views": [view.name for view in ask.views],
        "beside": _offer_beside(ask) if page.path == "/jobs/{id}" else None,
        "filters": [
            (make_visible(value if name == "where" else f"{name}={value}"), ask.link(ask.path, _without(name)))
            for name in ("where", *FACETS)
            for value in ask.state.get(name, ())
            if value
        ],
    }


def render_page(parts: Mapping[str, Any], viewer: Viewer) -> str:
    """A page as HTML, for this viewer."""
    navigation = [(p.name, *of) for p, *of in parts["links"] if viewer.reads_fleet or not p.of_fleet]
    name = "plan.html" if parts["form"] else "page.html"
    page = render(name, viewer=viewer, navigation=navigation, **parts)
    return part_by_space(page) if viewer.parts_by_space else page


def _offer_beside(ask: Ask) -> dict[str, Any]:
    """What the form needs that puts a job beside another: which one is, and those that cost most of what the reader may see."""
    try:
        costs = ask.inquire().ask("cost", by=("job",)).arrange("cost", True, MOST_OTHERS).keys
    except NothingKnownError:
        costs = ()
    return {
        "name": ask.text(BESIDE),
        "others": [name for (name,) in costs if name not in (None, ask.name, UNKNOWN_HOLDER)],
        "kept": _list_kept(ask, (BESIDE,)),
        "alone": ask.link(ask.path, _without(BESIDE)),
    }


def _list_kept(ask: Ask, without: Sequence[str]) -> list[tuple[str, str]]:
    """The state that a form sends again, but for these names."""
    return [(name, value) for name in WHOLE if name not in without for value in ask.state.get(name, ())]


def _without(name: str) -> list[str]:
    """Names of the state that stay when one filter is taken away, and the first rows are shown again."""
    return [kept for kept in WHOLE if kept not in (name, "offset")]


def _list_quieting(ask: Ask, document: Document) -> dict[str, Any]:
    """What forms of silences need: alerts that fire and nobody silenced, the names of rules, and silences that hold."""
    store = ask.books.store
    expiry_ms = read_clock(store.place).expiry_ms
    silences = [of for of in read_board(store.folder, expiry_ms, ()).silences if of.is_active(expiry_ms)]
    firing = [alert for alert in document.data.alerts if alert["state"] == "firing" and not alert["silenced"]]
    return {
        "firing": firing[:MOST_QUIETED],
        "rules": [rule.name for rule in configure(RULES, settings().alert)],
        "silences": [(silence.id, say_silenced(silence), instant(moment(silence.until_ms))) for silence in silences],
    }


def _choose_poll_s(page: Page, ask: Ask) -> int:
    """How often the page asks for itself: soon while an answer of it is being made, else as books go on; 0 for never."""
    if any(each.is_making for each in ask.standing):
        return MAKING_POLL_S
    return POLL_S if ask.is_live and (page.has_window or page.path == "/alerts") else 0


def _keep(page: Page, to: Page) -> Sequence[str]:
    """What a link from a page takes along: windows and filters, but of plans, which have neither; long answers take a window."""
    if "plan" in (page.answer, to.answer):
        return ()
    keeps_all = to.answer in ("", CHECK) and not to.is_document
    return KEPT if keeps_all else [name for name in KEPT if name != "where"]


def _name_form(ask: Ask, form: str) -> str:
    """The address of the same page in another form."""
    if not ask.forms:
        return ask.link(ask.path, WHOLE, format=form)
    query = ask.forms[0].query
    return f"{ask.path}?{query}&format={form}" if query else f"{ask.path}?format={form}"


def _name_here(ask: Ask) -> str:
    """The address of this page as it is, to save."""
    if ask.forms:
        return f"{ask.path}?{ask.forms[0].query}" if ask.forms[0].query else ask.path
    return ask.link(ask.path, WHOLE)


def _put_against(ask: Ask) -> dict[str, str]:
    """Addresses that put a plan against others: it as the other one, and what is against it now."""
    here = ask.forms[0].query
    found = {"keep": f"{ask.path}?{'&'.join(filter(None, (here, urlencode({AGAINST: here or AS_IT_IS}))))}"}
    if len(ask.forms) > 1:
        other = ask.forms[1].query
        found["other"] = other or AS_IT_IS
        found["swap"] = f"{ask.path}?{'&'.join(filter(None, (other, urlencode({AGAINST: here or AS_IT_IS}))))}"
        found["alone"] = f"{ask.path}?{here}" if here else ask.path
    return found


def make_visible_state(ask: Ask) -> dict[str, str]:
    """The texts of the state that fields of the frame show again."""
    return {name: ask.text(name) for name in SHOWN}
