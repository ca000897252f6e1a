"""Days of the ledger as tasks: a UTC day that is stale is booked alone, in any process, and published with others by one writer.

A task is named by its day and a digest of all that its rows follow from, and so is its output, a file beside the store's own: put
there if absent, so that a task that is run twice, by whomever, gives one file. A task whose inputs changed since has another name,
and what was booked of it is dropped. No other state is kept: what is to be done follows from the manifest.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from loadfactor.base.errors import InputError
from loadfactor.base.units import MS_PER_DAY, MS_PER_HOUR, MS_PER_S
from loadfactor.books.booking import INPUTS, book, digest_facts, list_facts
from loadfactor.books.ledger_inputs import LedgerInputs
from loadfactor.books.owned_prices import find_owned_prices
from loadfactor.books.rebuild import find_stale, keep_booked, ledger_key, refresh
from loadfactor.store import disk
from loadfactor.store.manifest import StoredFile, intersect, merge, subtract
from loadfactor.store.place import Place
from loadfactor.store.sample_files import quote
from loadfactor.store.session import Session
from loadfactor.store.writer import FOOTER, LEDGER_OPTIONS, Writer, count_rows, read_footer
from loadfactor.tables.schema import Span

if TYPE_CHECKING:
    from loadfactor.store.importing import Progress

FOLDER: Final = "tasks"
"""Where outputs wait for a writer, in the folder of the store."""
_DIGITS: Final = 16
_NAME: Final = re.compile(rf"(\d{{4}}-\d\d-\d\d)-([0-9a-f]{{{_DIGITS}}})")


@dataclass(frozen=True)
class DayTask:
    """The hours of a UTC day that are to be booked, a digest of what they follow from, and how many samples may speak of them."""

    day: date
    digest: str
    hours: tuple[Span, ...]
    samples: int

    @property
    def name(self) -> str:
        """What it is called: 2026-10-05-0123456789abcdef."""
        return f"{self.day}-{self.digest}"


@dataclass(frozen=True)
class Publication:
    """How many tasks were published, how many were dropped since their inputs changed, and how many hours are stale still."""

    tasks: int
    dropped: int
    stale_hours: int


class TaskList:
    """What the tasks of one generation follow from, found once."""

    def __init__(self, session: Session, idle_below: float) -> None:
        """`session` shows the files alone: live rows are booked once they are files."""
        self.session = session
        self.idle_below = idle_below
        self.owned = find_owned_prices(session)
        self.key = ledger_key(idle_below, session.currency)
        self.inputs: LedgerInputs = digest_facts(session, list_facts(session), self.owned)
        self.stale, self.frozen = find_stale(session, self.key, self.inputs)
        tables = [[file.name, file.crc32] for name in INPUTS for file in session.manifest.of(name)]
        self._common = [self.key, self.inputs.write(), tables, sorted(session.steps().items())]

    def list(self, is_all: bool = False) -> list[DayTask]:
        """A task for each day with stale hours; with `is_all` for each day of the books, whole."""
        hours = self._list_all() if is_all else self.stale
        days = sorted({day for s, e in hours for day in range(s - s % MS_PER_DAY, e, MS_PER_DAY)})
        return [self._make(day, intersect(hours, ((day, day + MS_PER_DAY),))) for day in days]

    def find(self, name: str) -> DayTask:
        """The task of this name. Raises InputError where it is none, or its inputs are others by now."""
        found = _NAME.fullmatch(name)
        if found is None:
            raise InputError(f"{name!r} is no task; `loadfactor ledger plan` lists those there are")
        start = int(datetime.combine(date.fromisoformat(found[1]), datetime.min.time(), UTC).timestamp()) * MS_PER_S
        for hours in (self.stale, self._list_all()):
            inside = intersect(hours, ((start, start + MS_PER_DAY),))
            if inside and (task := self._make(start, inside)).name == name:
                return task
        raise InputError(f"what task {name} would book has changed; `loadfactor ledger plan` lists the tasks of now")

    def book(self, task: DayTask) -> None:
        """Work out the rows of a task and put them into a file of its name, unless that is there."""
        place, session, name = self.session.place, self.session, name_output(task.name)
        if place.has(name):
            return
        book(session, intersect(task.hours, (session.span(),)), idle_below=self.idle_below, owned=self.owned)
        footer = quote(json.dumps({"digest": task.digest, "hours": task.hours}))
        beside = place.files / FOLDER / f"{task.name}.{uuid4().hex}.tmp"
        disk.make_folder(beside.parent)
        try:
            options = f"{LEDGER_OPTIONS}, KV_METADATA {{{FOOTER}: {footer}}}"
            session.raw.execute(f"COPY (SELECT * FROM book) TO {quote(str(beside))} ({options})")
            disk.sync_file(beside)
            place.put_new(beside, name)
        finally:
            beside.unlink(missing_ok=True)

    def read_output(self, path: Path) -> DayTask | None:
        """The task that a file is the output of; None where its inputs are others by now, or it is none."""
        footer: dict[str, Any] = read_footer(path) or {}
        hours = tuple((start, end) for start, end in footer.get("hours", ()))
        if not hours:
            return None
        task = self._make(hours[0][0] - hours[0][0] % MS_PER_DAY, hours)
        return task if task.digest == footer["digest"] else None

    def _list_all(self) -> tuple[Span, ...]:
        start, end = self.session.span()
        every = ((start - start % MS_PER_HOUR, end + -end % MS_PER_HOUR),) if start < end else ()
        return subtract(every, self.session.manifest.dropped.hours)

    def _make(self, start: int, hours: tuple[Span, ...]) -> DayTask:
        files = self.session.covering("samples", *hours)
        of = [*self._common, hours, [[file.name, file.crc32] for file in files]]
        digest = hashlib.sha256(json.dumps(of).encode()).hexdigest()[:_DIGITS]
        day = datetime.fromtimestamp(start / MS_PER_S, UTC).date()
        return DayTask(day, digest, hours, sum(file.rows for file in files if file.day == start // MS_PER_DAY))


def publish_tasks(writer: Writer, idle_below: float, progress: "Progress") -> Publication:
    """Take the outputs that still hold into the ledger. Hours of which there is none stay stale; where none are, sums follow."""
    tasks = TaskList(writer, idle_below)
    place = writer.place
    outputs = [place.fetch(name) for name in place.list_within(FOLDER) if name.endswith(".parquet")]
    valid = {path: task for path in outputs if (task := tasks.read_output(path)) is not None}
    made: list[StoredFile] = []
    hours: tuple[Span, ...] = ()
    for path in sorted(valid, key=lambda path: -_measure(valid[path].hours)):
        task = valid[path]
        if intersect(hours, task.hours):
            continue  # a part of what another one has
        hours = merge([*hours, *task.hours])
        made += _take(writer, path, task)
    left = subtract(tasks.stale, hours)
    if hours:
        keep_booked(writer, hours, made, left, tasks.key, tasks.inputs, tasks.frozen)
    if not left:
        refresh(writer, progress, idle_below)  # the load of owned GPUs may be another now
    return Publication(len(valid), len(outputs) - len(valid), _measure(left) // MS_PER_HOUR)


def name_output(task: str) -> str:
    """Where the output of a task lies, or will, in the place of the store."""
    return f"{FOLDER}/{task}.parquet"


def remove_outputs(place: Place) -> None:
    """Remove outputs that were published or dropped, and what killed processes left half written."""
    for name in place.list_within(FOLDER):
        place.remove(name)


def _take(writer: Writer, path: Path, task: DayTask) -> list[StoredFile]:
    """The output of a task as a new file of the ledger; nothing where it has no row."""
    rows = count_rows(path)
    if not rows:
        return []
    day = task.hours[0][0] // MS_PER_DAY
    new = writer.name_new("ledger", day)
    disk.link(path, new)
    start, end = writer.fetch_one(f"SELECT min(hour_utc), max(hour_utc) + {MS_PER_HOUR} FROM {quote(str(new))}")
    return [writer.finish(StoredFile(new.name, "ledger", rows, 0, 0, start, end, day))]


def _measure(spans: Iterable[Span]) -> int:
    return sum(end - start for start, end in spans)
