"""The pages over HTTP: each of `PAGES` as HTML, JSON and CSV, in the reach of who asks, and the forms that write."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from loadfactor.base.errors import InputError
from loadfactor.interfaces.document import Document
from loadfactor.interfaces.pages.alerts import make_silence
from loadfactor.interfaces.render.json import render_csv, render_json
from loadfactor.interfaces.server.door import read_checked_form
from loadfactor.interfaces.server.gate import PAGE_HEADERS
from loadfactor.interfaces.server.guard import Access, Need
from loadfactor.interfaces.server.replies import MEDIA, PAGE_PIECE_BYTES, PageForm, Served, access_of, pack, reply
from loadfactor.interfaces.web.ask import Ask, State
from loadfactor.interfaces.web.pages import PAGES, Page
from loadfactor.interfaces.web.shell import Viewer, build_document, render_page

PAGE_NEEDS: Final[dict[tuple[str, str], Need]] = {
    **{("GET", page.path): "fleet" if page.of_fleet else "read" for page in PAGES},
    ("POST", "/alerts"): "write",
}
MOST_VALUES: Final = 64


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
    for page in PAGES:
        app.get(page.path.replace("{id}", "{name:path}"), include_in_schema=False)(_make_endpoint(page, served))

    @app.post("/alerts", include_in_schema=False)
    async def silence(request: Request) -> Response:
        """Silence a rule, by the form of the page."""
        fields, access = await read_checked_form(request, served), access_of(request)
        folder = served.books.store.folder
        rule, length, reason = (fields.get(name, "") for name in ("rule", "for", "reason"))
        who = access.user or (f"token {access.token}" if access.token else "the server's machine")
        await served.pool.ask(lambda: make_silence(folder, rule, {}, (length or None, None), reason, who))
        return Response(None, 303, {"Location": "/alerts"})


def _make_endpoint(page: Page, served: Served) -> Callable[[Request], object]:
    async def show(request: Request) -> Response:
        form, access = _choose_form(request, page), access_of(request)
        state: State = {name: request.query_params.getlist(name)[:MOST_VALUES] for name in request.query_params}
        name = request.path_params.get("name", "")

        def write(as_form: PageForm) -> str | bytes:
            with served.books.snapshot() as snapshot:
                ask = Ask(served.books, snapshot, request.url.path, name, state, access.team, served.is_live)
                if as_form == "html":
                    return render_page(page, ask, _view(access))
                if as_form == "cells" and page.cells:
                    return page.cells(ask)
                document = build_document(page, ask)
            return f"{render_json(document)}\n" if as_form == "json" else _write_csv(document)

        answer = await reply(request, served.pool, served.books.store.folder, lambda: WebAnswer(write), form)
        answer.headers.update(PAGE_HEADERS)
        return answer

    return show


def _write_csv(document: Document) -> str:
    """The records of a page, else its first table, else the sentence that it is."""
    has_rows = (isinstance(document.data, Sequence) and document.data) or any(s.tables for s in document.sections)
    return render_csv(document if has_rows else replace(document, data=[{"answer": document.headline}]))


def _view(access: Access) -> Viewer:
    name = access.user or (f"token {access.token}" if access.token else "")
    has_session = bool(access.token and access.form_key)
    return Viewer(name, access.team, access.grants("fleet"), access.grants("write"), has_session, access.form_key)


def _choose_form(request: Request, page: Page) -> PageForm:
    """The form that the address names, else the first that is accepted."""
    named = request.query_params.get("format")
    if named == "cells" and page.cells:
        return "cells"
    accepted = request.headers.get("accept", "")
    for form in ("html", "json", "csv"):
        if named == form or (named is None and MEDIA[form].partition(";")[0] in accepted):
            return form
    if named is not None:
        raise InputError(f"{named!r} is no form of a page; take html, json or csv")
    return "html"
