"""A random fleet as its places are asked: pages of commands in JSON and text, answers of the server, gauges; each once."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from decimal import Decimal
from functools import cached_property
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any, Final
from unittest.mock import patch

from starlette.testclient import TestClient
from tests.interfaces.server.conftest import Remembering

from loadfactor.base.request import make_request
from loadfactor.books.books import Books
from loadfactor.books.snapshot import Snapshot
from loadfactor.interfaces.cli import COMMANDS
from loadfactor.interfaces.cli.commands import CommandEntry
from loadfactor.interfaces.document import Document
from loadfactor.interfaces.gauges.exposition import NO_NAME
from loadfactor.interfaces.render.html import render_html
from loadfactor.interfaces.render.json import render_json
from loadfactor.interfaces.render.terminal import render_text
from loadfactor.interfaces.server.app import make_app
from loadfactor.interfaces.server.guard import Guard
from loadfactor.interfaces.server.scrape import GaugeWindow
from loadfactor.metrics.metric import Metric
from loadfactor.metrics.query.calendar import Window, instant
from loadfactor.store.tokens import TokenFile

WIDTH: Final = 200
"""Columns of the terminal that pages are read from."""
SNAPSHOT: Final = Books.snapshot
CELLS: Final = re.compile(r"\S+(?: \S+)*")
SAMPLE: Final = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
LABEL: Final = re.compile(r'(\w+)="([^"]*)"')
Row = Mapping[str, str]
"""Cells of a row of a printed table, by the titles of its columns; "" has the first of them."""


def list_commands(entries: Sequence[CommandEntry] = COMMANDS, before: str = "") -> Iterator[tuple[str, CommandEntry]]:
    """Every command by its words, those in groups too."""
    for entry in entries:
        words = f"{before}{entry.name}"
        if entry.build or entry.function:
            yield words, entry
        yield from list_commands(entry.commands, f"{words} ")


@dataclass(frozen=True)
class Fleet:
    """Books of a random fleet, a month of them, and the zone in which they are asked. `random` draws what is not asked of all.

    `billed`: what the lines of its bill add up to in the month; None without a bill. `plans`: whether plans are made beside it;
    `draws`: whether pages are read in HTML, too, and diagnoses from the server; `shares`: whether commands share a snapshot.
    """

    books: Books
    folder: Path
    month: str
    window: Window
    zone: tzinfo
    teams: tuple[str, ...]
    random: Random
    billed: Decimal | None
    has_owned: bool
    plans: bool
    draws: bool
    shares: bool

    @property
    def limits(self) -> dict[str, Any]:
        """The window as functions of the books take it."""
        start, end = (instant(ms).astimezone(self.zone) for ms in self.window.limits)
        return {"start": start, "end": end, "timezone": self.zone}

    @property
    def of_month(self) -> dict[str, Any]:
        """The month as commands take it that are asked about a month."""
        return {"month": self.month, "timezone": str(self.zone)}

    @property
    def span(self) -> dict[str, Any]:
        """The same of commands that are asked about a window."""
        after = datetime.fromisoformat(f"{self.month}-01") + timedelta(days=31)
        return {"start": self.month, "end": f"{after:%Y-%m}", "timezone": str(self.zone)}

    @cached_property
    def _kept(self) -> dict[Any, Any]:
        return {}

    def build(self, words: str, **given: Any) -> Document:
        """The page of a command."""
        key = ("page", words, *sorted(given.items()))
        if key not in self._kept:
            entry = dict(list_commands())[words]
            build, request = (_load(name) for name in (entry.build, entry.request))
            asked = make_request(request, {"store": self.books.store.folder, **given})
            with patch.object(Books, "snapshot", self._open_snapshot):
                self._kept[key] = build(asked)
        return self._kept[key]  # type: ignore[no-any-return]

    @contextmanager
    def _open_snapshot(self) -> Iterator[Snapshot]:
        """What a command asks: of most fleets one snapshot, as the report asks it; else one of its own, as processes do."""
        if self.shares and "snapshot" not in self._kept:
            self._kept["snapshot"] = self._open.enter_context(SNAPSHOT(self.books))
        with nullcontext(self._kept["snapshot"]) if self.shares else SNAPSHOT(self.books) as snapshot:
            yield snapshot

    def page(self, words: str, **given: Any) -> Any:
        """The page of a command in JSON."""
        key = ("json", words, *sorted(given.items()))
        if key not in self._kept:
            self._kept[key] = json.loads(render_json(self.build(words, **given)))
        return self._kept[key]

    def rows(self, face: str, words: str, **given: Any) -> list[Row]:
        """Rows of all tables of a page, as the terminal or HTML shows them; HTML, which draws charts, of one fleet in four."""
        if face == "HTML" and not self.draws:
            return []
        key = (face, words, *sorted(given.items()))
        if key not in self._kept:
            page = self.build(words, **given)
            self._kept[key] = list(
                _read_html(render_html(page)) if face == "HTML" else _read_text(page, render_text(page, WIDTH))
            )
        return self._kept[key]  # type: ignore[no-any-return]

    def show(self, window: str, by: Sequence[str] = (), metrics: Sequence[Metric | str] = ()) -> list[Any]:
        """Readings of `show` in JSON: of the month, of all, or of the last hours before the books end."""
        names = tuple(of if isinstance(of, str) else of.name for of in metrics)
        return self.page("show", metrics=names, by=tuple(by), **self.window_of(window))  # type: ignore[no-any-return]

    def window_of(self, window: str) -> dict[str, Any]:
        """A window of this name as commands take it."""
        if window == "month":
            return self.span
        if window == "all":
            return {"timezone": str(self.zone)}
        end = self.books.span[1]
        return {"start": (end - timedelta(hours=int(window.partition(" ")[0]))).isoformat(), "end": end.isoformat()}

    def once(self, name: str, read: "Callable[[Fleet], Any]") -> Any:
        """What a reader says, read once."""
        if ("once", name) not in self._kept:
            self._kept["once", name] = read(self)
        return self._kept["once", name]

    @cached_property
    def _open(self) -> ExitStack:
        return ExitStack()

    @cached_property
    def _client(self) -> TestClient:
        end_s = self.books.span[1].timestamp()
        guard, window = Guard(TokenFile(self.books.store.folder)), GaugeWindow(wait_s=3600)
        app = make_app(self.books, Remembering(), guard, window=window, clock_s=lambda: end_s)
        return self._open.enter_context(TestClient(app, "http://127.0.0.1", client=("127.0.0.1", 5000)))

    def close(self) -> None:
        """End the server, if it was asked, and the snapshot that commands share."""
        self._open.close()

    def get(self, path: str, **given: Any) -> Any:
        """The answer of the server in JSON."""
        names = {"start": "from", "end": "to"}
        key = ("GET", path, *sorted(given.items()))
        if key not in self._kept:
            answer = self._client.get(path, params={names.get(name, name): of for name, of in given.items()})
            assert answer.status_code == 200, answer.text
            self._kept[key] = answer.json()
        return self._kept[key]

    def open(self, path: str, **given: Any) -> tuple[str, list[Row]]:
        """A page of the server in HTML, and the rows of its tables."""
        names = {"start": "from", "end": "to", "timezone": "tz"}
        asked = {names.get(name, name): of for name, of in given.items()}
        while True:
            answer = self._client.get(path, params=asked, headers={"accept": "text/html"})
            assert answer.status_code == 200, answer.text
            if 'http-equiv="refresh"' not in answer.text:  # else a part of it is being made
                break
        return answer.text, list(_read_html(answer.text))

    @cached_property
    def gauges(self) -> dict[str, list[tuple[dict[str, str], float]]]:
        """What `/metrics` shows at the moment at which the books end: samples by name."""
        found: dict[str, list[tuple[dict[str, str], float]]] = {}
        for line in self._client.get("/metrics").text.splitlines():
            if not line.startswith("#"):
                matched = SAMPLE.fullmatch(line)
                assert matched, line
                name, labels, value = matched.groups()
                found.setdefault(name, []).append((dict(LABEL.findall(labels or "")), float(value)))
        return found

    @cached_property
    def samples(self) -> dict[str, dict[str, float]]:
        """The same by name and group: the labels' values, without those that stand for no name."""
        return {
            name: {", ".join(labels.values()).replace(NO_NAME, ""): value for labels, value in found}
            for name, found in self.gauges.items()
        }


def _load(name: str) -> Any:
    module, _, of = name.rpartition(".")
    return getattr(import_module(module), of)


def _read_text(page: Document, text: str) -> Iterator[Row]:
    """Rows of a printed page: each cell under the title that it stands below; a cell that is empty is left out."""
    places: list[tuple[str, int, int]] = []
    heads = [
        [column.title for column in table.without_empty_columns().columns]
        for section in page.sections
        for table in section.tables
    ]
    for line in text.splitlines():
        cells = [(of[0], *of.span()) for of in CELLS.finditer(line)]
        if [cell for cell, _, _ in cells] in heads:
            places = cells
        elif not cells:
            places = []
        elif places:
            named = {_find_title(places, start, end): cell for cell, start, end in cells}
            yield {"": cells[0][0], **{title: cell for title, cell in named.items() if title}}


def _find_title(places: Sequence[tuple[str, int, int]], start: int, end: int) -> str:
    """The title above a cell; nothing where there is none."""
    return next((title for title, begin, last in places if begin < end and start < last), "")


class _Tables(HTMLParser):
    """Tables of a page in HTML, row by row."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self._is_cell = False

    def handle_starttag(self, tag: str, attrs: Any) -> None:  # noqa: ARG002 (the parser's signature)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr" and self.tables:
            self.tables[-1].append([])
        elif tag in ("th", "td") and self.tables and self.tables[-1]:
            self.tables[-1][-1].append("")
            self._is_cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("th", "td"):
            self._is_cell = False

    def handle_data(self, data: str) -> None:
        if self._is_cell:
            self.tables[-1][-1][-1] += data


def _read_html(text: str) -> Iterator[Row]:
    parser = _Tables()
    parser.feed(text)
    for table in parser.tables:
        titles, *rows = ([cell.strip() for cell in row] for row in table)
        for row in rows:
            if len(row) == len(titles):
                yield {"": row[0], **dict(zip(titles, row, strict=True))}
