"""Questions of the books that the endpoints ask, in the reach of a token; each opens a session and is worked out in a thread."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa

from loadfactor.base.errors import InputError
from loadfactor.base.request import make_request
from loadfactor.base.units import MS_PER_HOUR
from loadfactor.books.books import Books
from loadfactor.books.snapshot import Snapshot
from loadfactor.interfaces.requests import ShowRequest
from loadfactor.interfaces.server.bounds import Bounds
from loadfactor.interfaces.server.guard import Access
from loadfactor.interfaces.server.lists import JOB_DIMENSIONS, list_devices, list_jobs
from loadfactor.interfaces.server.reach import NothingKnownError, keep_to_team
from loadfactor.interfaces.server.rows import RowsAnswer
from loadfactor.metrics.query.calendar import milliseconds
from loadfactor.metrics.query.reading import Readings

COVERAGE = ("metric", "by", "from", "to", "coverage", "activity_basis")
NOTHING = pa.table({})


def read_question(given: Mapping[str, Any], bounds: Bounds) -> ShowRequest:
    """What a request asks, read as the command line reads it. Raises InputError."""
    lists = {name: ",".join(value) for name, value in given.items() if isinstance(value, list)}
    asked = make_request(ShowRequest, {name: v for name, v in {**given, **lists}.items() if v not in (None, "")})
    for what, names, most in (("dimensions", asked.by, bounds.dimensions), ("metrics", asked.metrics, bounds.metrics)):
        if len(names) > most:
            raise InputError(f"{len(names)} {what} at once, at most {most} are taken; ask for fewer")
    if not asked.by and (asked.sort or asked.reverse or asked.limit):
        raise InputError("--sort, --reverse and --limit order groups; say which with --by")
    return asked


def answer_readings(books: Books, asked: ShowRequest, access: Access, bounds: Bounds) -> RowsAnswer:
    """Readings, none where the books know nothing yet. Raises InputError and RefusedError."""
    found = _ask(books, asked, access, bounds)
    return RowsAnswer(
        "readings", () if found is None else found, lambda: NOTHING if found is None else found.to_arrow()
    )


def answer_coverage(books: Books, asked: ShowRequest, access: Access, bounds: Bounds) -> RowsAnswer:
    """The coverage of metrics, alike."""
    found = _ask(books, asked, access, bounds)
    rows = [{name: value for name, value in r.as_json().items() if name in COVERAGE} for r in found or ()]
    return RowsAnswer("coverage", rows, lambda: pa.Table.from_pylist(rows))


def answer_jobs(books: Books, asked: ShowRequest, access: Access, limit: int, offset: int) -> RowsAnswer:
    """Jobs that held GPUs in the window."""
    others = [name for name in asked.filters if name not in ("job", "pool", *JOB_DIMENSIONS)]
    if others:
        raise InputError(f"jobs cannot be chosen by {others[0]!r}; take one of job, pool, {', '.join(JOB_DIMENSIONS)}")
    with books.snapshot() as snapshot:
        try:
            start, end = asked.window(snapshot)
            filters = keep_to_team(snapshot, asked.filters, access.team)
        except NothingKnownError:
            return _as_rows("jobs", NOTHING)
        return _as_rows("jobs", list_jobs(snapshot, start, end, filters, limit, offset))


def answer_devices(books: Books, access: Access, limit: int, offset: int) -> RowsAnswer:
    """GPUs; of a team, those it held."""
    with books.snapshot() as snapshot:
        try:
            keep_to_team(snapshot, {}, access.team)
        except NothingKnownError:
            return _as_rows("devices", NOTHING)
        return _as_rows("devices", list_devices(snapshot, access.team, limit, offset))


def _as_rows(name: str, rows: pa.Table) -> RowsAnswer:
    return RowsAnswer(name, rows.to_pylist(), lambda: rows)


def _ask(books: Books, asked: ShowRequest, access: Access, bounds: Bounds) -> Readings | None:
    """The readings; None where the books know nothing yet."""
    with books.snapshot() as snapshot:
        if is_empty(snapshot):
            return None
        start, end = asked.window(snapshot)
        check_size(snapshot, asked.by, start, end, bounds)
        try:
            where = keep_to_team(snapshot, asked.filters, access.team)
        except NothingKnownError:
            return None
        found = snapshot.show(asked.metrics, asked.by, start, end, asked.zone, asked.basis, where, asked.without_idle)
    by = asked.sort or ""
    return found.arrange(by.removeprefix("-"), by.startswith("-") != asked.reverse, asked.limit)


def is_empty(snapshot: Snapshot) -> bool:
    """True where the books know of no time at all: nothing was received or imported yet."""
    try:
        first, last = snapshot.span
    except InputError:
        return True
    return first == last


def check_size(
    snapshot: Snapshot, by: Iterable[str], start: datetime | None, end: datetime | None, bounds: Bounds
) -> None:
    """Raises InputError where GPUs times hours alone make more groups than an answer may have."""
    if not {"device", "hour"} <= set(by):
        return
    first, last = snapshot.span
    hours = (milliseconds(min(end or last, last)) - milliseconds(max(start or first, first))) // MS_PER_HOUR + 1
    rows = snapshot.view("devices")
    (devices,) = snapshot.fetch(rows.aggregate(devices=rows.device_id.nunique()))["devices"].to_pylist()
    if hours * devices > bounds.groups:
        raise InputError(
            f"{devices:,} GPUs × {hours:,} hours are more than {bounds.groups:,} groups; ask for a shorter window"
        )
