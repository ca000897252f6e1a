"""The pages over HTTP: each of `PAGES` as HTML, JSON and CSV, in the reach of who asks, and the forms that write."""

import asyncio
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import time
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from loadfactor.base.clock import now_ms
from loadfactor.base.errors import BusyError, InputError
from loadfactor.base.units import BYTES_PER_MIB, S_PER_MIN
from loadfactor.interfaces.document import Document
from loadfactor.interfaces.insights import find_savings
from loadfactor.interfaces.pages.alerts import end_silence, make_silence
from loadfactor.interfaces.pages.books import build_document as build_check
from loadfactor.interfaces.render.json import render_csv, render_json
from loadfactor.interfaces.render.present import write_document
from loadfactor.interfaces.requests import ShowRequest, read_filters
from loadfactor.interfaces.server.door import read_checked_form
from loadfactor.interfaces.server.gate import PAGE_HEADERS
from loadfactor.interfaces.server.guard import Access, Need
from loadfactor.interfaces.server.question_pool import QuestionPool
from loadfactor.interfaces.server.questions import Progress, answer_diagnosis, limit_time
from loadfactor.interfaces.server.replies import (
    MEDIA,
    PAGE_PIECE_BYTES,
    Begun,
    PageForm,
    Served,
    access_of,
    begin,
    digest_state,
    pack,
    reply,
    send,
)
from loadfactor.interfaces.web.ask import Ask, State, read_state
from loadfactor.interfaces.web.frame import parts_by_space
from loadfactor.interfaces.web.insights import (
    list_causes_of_jobs,
    list_holders,
    name_teams,
    read_diagnosis,
    read_savings,
)
from loadfactor.interfaces.web.pages import CHECK, PAGES, Page
from loadfactor.interfaces.web.plans import AGAINST, PlanForm, check_plan, find_kind, read_forms
from loadfactor.interfaces.web.shell import FILES, Viewer, build_document, build_parts, render_page
from loadfactor.interfaces.web.standing import Standing
from loadfactor.interfaces.web.views import SavedView, list_views, name_owner, remove_view, save_view
from loadfactor.settings.config import settings

PAGE_NEEDS: Final[dict[tuple[str, str], Need]] = {
    **{("GET", page.path): "fleet" if page.of_fleet else "read" for page in PAGES},
    ("POST", "/alerts"): "write",
    ("POST", "/views"): "save",
}
BY: Final = "by."
"""How fields of a form begin that name the group of an alert."""
MOST_VALUES: Final = 64
MOST_KEPT_BYTES: Final = 32 * BYTES_PER_MIB
BuiltT = TypeVar("BuiltT")
WAIT_S: Final = 0.4
"""So long a page waits for a long answer; then it shows how far that is."""


@dataclass(frozen=True)
class WebAnswer:
    """A page in one of its forms."""

    text: Callable[[PageForm], str | bytes]

    def write(self, form: PageForm, packed: bool) -> Iterator[bytes]:
        """The bytes, with gzip where `packed`."""
        written = self.text(form)
        text = written if isinstance(written, bytes) else written.encode("utf-8", "replace")
        pieces = (text[start : start + PAGE_PIECE_BYTES] for start in range(0, len(text), PAGE_PIECE_BYTES))
        return pack(pieces) if packed else iter(pieces)


def add_pages(app: FastAPI, served: Served) -> None:
    """Add them to an app."""
    kept = KeptParts(served.pool)
    for page in PAGES:
        show = _make_endpoint(page, served, kept)
        app.get(page.path.replace("{id}", "{name:path}"), include_in_schema=False)(show)

    @app.post("/alerts", include_in_schema=False)
    async def silence(request: Request) -> Response:
        """Silence a rule or one of its alerts, or end a silence, by a form of the page."""
        fields, access = await read_checked_form(request, served.bounds.write_s), access_of(request)
        place = served.books.store.place
        who = access.user or (f"token {access.token}" if access.token else "the server's machine")
        if lifted := fields.get("lift"):
            await served.pool.ask(lambda: end_silence(place, lifted, who))
        else:
            rule, length, reason = (fields.get(name, "") for name in ("rule", "for", "reason"))
            by = {name.removeprefix(BY): value for name, value in fields.items() if name.startswith(BY)}
            by |= read_filters([fields["of"]], "of") if fields.get("of") else {}
            await served.pool.ask(lambda: make_silence(place, rule, by, (length or None, None), reason, who))
        return Response(None, 303, {"Location": "/alerts"})

    @app.post("/views", include_in_schema=False)
    async def save(request: Request) -> Response:
        """Save a view under a name, or forget one, by a form of a page."""
        fields, access = await read_checked_form(request, served.bounds.write_s), access_of(request)
        folder, owner = served.books.store.folder, name_owner(access.token, access.user)
        if gone := fields.get("remove"):
            await served.pool.ask(lambda: remove_view(folder, owner, gone))
        else:
            view = SavedView(fields.get("name", "").strip(), fields.get("address", ""), now_ms())
            paths = [page.path for page in PAGES if page.path != "/views"]
            await served.pool.ask(lambda: save_view(folder, owner, view, paths))
        return Response(None, 303, {"Location": "/views"})


class KeptParts:
    """Parts of pages by what they depend on, worked out once for all who ask at once. For one event loop.

    A page that shows what the clock says, as a silence that ends, is at most a minute old.
    """

    def __init__(self, pool: QuestionPool) -> None:
        self._pool = pool
        self._found: dict[str, asyncio.Future[Mapping[str, Any]]] = {}

    async def find(self, key: str, build: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        """Those of this key. Raises as `build`, and BusyError where too many questions wait."""
        found = self._found.pop(key, None) or asyncio.ensure_future(self._pool.ask(build))
        self._found[key] = found  # the last that will be dropped
        try:
            return await asyncio.shield(found)
        except Exception:
            self._found.pop(key, None)
            raise
        finally:
            self._drop()

    def _drop(self) -> None:
        """Drop those that were asked for longest ago until the others are few enough."""
        while sum(_size(of) for of in self._found.values()) > MOST_KEPT_BYTES:
            self._found.pop(next(key for key, of in self._found.items() if of.done()))


def _size(found: "asyncio.Future[Mapping[str, Any]]") -> int:
    is_there = found.done() and not found.cancelled() and not found.exception()
    return len(found.result()["content"]) if is_there else 0


def _make_endpoint(page: Page, served: Served, kept: KeptParts) -> Callable[[Request], object]:
    store = served.books.store

    async def show(request: Request) -> Response:
        form, access = _choose_form(request, page), access_of(request)
        state: State = {name: request.query_params.getlist(name)[:MOST_VALUES] for name in request.query_params}
        name = request.path_params.get("name", "")
        wait_s = WAIT_S if form == "html" else None  # a program waits for the answer
        standing: Sequence[Standing] = ()
        plans: Sequence[PlanForm] = ()
        if page.answer == "plan":
            plans = read_forms(find_kind(page.path), state, Path(store.name) if access.grants("fleet") else None)
            if form == "html" and _is_untidy(state, plans[0]):
                return Response(None, 303, {"Location": _name_address(page.path, plans[0], state)})
            standing = await _plan(plans, access, served, wait_s)
            if form != "html":
                check_plan(plans[0], standing)
        elif page.answer:
            standing = (await _look(page.answer, read_state(state, served.is_live), access, served, wait_s),)
        if form != "html" and any(each.is_making and each.document is None for each in standing):
            raise BusyError("others wait for long answers; ask again a little later", served.bounds.retry_after_s)

        views: tuple[SavedView, ...] = ()
        if page.path == "/views":
            views = await served.pool.ask(
                lambda: tuple(list_views(store.folder, name_owner(access.token, access.user)))
            )

        def build(builder: Callable[[Page, Ask], BuiltT]) -> BuiltT:
            with served.books.snapshot() as snapshot:
                path, team, is_live = request.url.path, access.team, served.is_live
                return builder(
                    page, Ask(served.books, snapshot, path, name, state, team, is_live, standing, plans, views)
                )

        def write(as_form: PageForm) -> str | bytes:
            if as_form == "cells" and (cells := page.cells):
                return build(lambda _page, ask: cells(ask))
            document = build(build_document)
            if as_form in FILES:
                with TemporaryDirectory() as folder:
                    return write_document(document, Path(folder) / f"page.{as_form}").read_bytes()
            return f"{render_json(document)}\n" if as_form == "json" else _write_csv(document)

        is_spaced = parts_by_space(request.headers.get("accept-language", ""))
        marks = (*(each.mark for each in standing), views)

        async def begin_page(packed: bool) -> Begun:
            reach = (access.team, access.grants("fleet"), int(time() / S_PER_MIN))
            key = await digest_state(request, store, reach, marks)
            parts = await kept.find(key, lambda: build(build_parts))
            shown = render_page(parts, _view(access, is_spaced))
            return begin(WebAnswer(lambda _form: shown).write(form, packed))

        if form == "html":
            answer = await send(request, store, begin_page, form, (*marks, is_spaced))
        else:
            answer = await reply(request, served.pool, store, lambda: WebAnswer(write), form, marks)
        answer.headers.update(PAGE_HEADERS)
        if form in FILES:
            answer.headers["Content-Disposition"] = f'attachment; filename="{page.path.rpartition("/")[2]}.{form}"'
        return answer

    return show


async def _look(name: str, request: ShowRequest, access: Access, served: Served, wait_s: float | None) -> Standing:
    """A diagnosis or savings of a window, in the reach of who asks, or the check of the books, as far as it is made."""
    books, longest_s = served.books, served.bounds.long_question_s
    if name == CHECK:
        key: Hashable = None

        def work(tell: Progress) -> Document:
            tell("the books are checked", 0.0)
            return build_check(books)

    elif name == "savings":
        savings = read_savings(request)
        key = savings

        def work(tell: Progress) -> Document:
            return list_holders(find_savings(savings, books, limit_time(longest_s, then=tell)))

    else:
        question = read_diagnosis(request)
        key = question

        def work(tell: Progress) -> Document:
            page = answer_diagnosis(books, question, access, limit_time(longest_s, then=tell))
            with books.snapshot() as snapshot:
                return list_causes_of_jobs(page, name_teams(snapshot, page.data))

    state = (await served.pool.ask(lambda: books.store.manifest.generation), repr(settings()))
    return await served.insights.look((name, access.team, key), state, access.owner, work, wait_s)


async def _plan(plans: Sequence[PlanForm], access: Access, served: Served, wait_s: float | None) -> list[Standing]:
    """Plans as far as they are made; without those whose form is wrong."""
    standing = []
    for plan in plans:
        if not plan.can_be_made:
            break
        name, given = plan.kind.name, plan.given
        of_books = await served.pool.ask(lambda: served.books.store.manifest.generation) if plan.is_measured else None
        state = (of_books, repr(settings()))

        def work(_tell: Progress, name: str = name, given: Mapping[str, Any] = given) -> Document:
            return served.planner.ask(name, given)

        key = (name, tuple(sorted((field, repr(value)) for field, value in given.items())))
        standing.append(await served.plans.look(key, state, access.owner, work, wait_s))
    return standing


def _is_untidy(state: State, plan: PlanForm) -> bool:
    """Whether an address holds what a form sends of fields in which nothing was filled in."""
    return not plan.error and any(not value.strip() for name in state for value in state[name] if name != AGAINST)


def _name_address(path: str, plan: PlanForm, state: State) -> str:
    against = [urlencode({AGAINST: state[AGAINST][-1]})] if AGAINST in state else []
    query = "&".join(filter(None, ["" if plan.is_example else plan.query, *against]))
    return f"{path}?{query}" if query else path


def _write_csv(document: Document) -> str:
    """The records of a page, else its first table, else the sentence that it is."""
    has_rows = (isinstance(document.data, Sequence) and document.data) or any(s.tables for s in document.sections)
    return render_csv(document if has_rows else replace(document, data=[{"answer": document.headline}]))


def _view(access: Access, is_spaced: bool) -> Viewer:
    name = access.user or (f"token {access.token}" if access.token else "")
    has_session = bool(access.token and access.form_key)
    reads_fleet, writes, saves = (access.grants(need) for need in ("fleet", "write", "save"))
    return Viewer(name, access.team, reads_fleet, writes, saves, has_session, is_spaced, access.form_key)


def _choose_form(request: Request, page: Page) -> PageForm:
    """The form that the address names, else the first that is accepted."""
    named = request.query_params.get("format")
    if named == "cells" and page.cells:
        return "cells"
    for file in FILES:
        if named == file and page.is_document:
            return file
    accepted = request.headers.get("accept", "")
    for form in ("html", "json", "csv"):
        if named == form or (named is None and MEDIA[form].partition(";")[0] in accepted):
            return form
    if named is not None:
        also = f", {', '.join(FILES)}" if page.is_document else ""
        raise InputError(f"{named!r} is no form of a page; take html, json or csv{also}")
    return "html"
