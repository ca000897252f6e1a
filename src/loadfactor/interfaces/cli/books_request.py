"""What every question of the books takes on the command line: the store, the window, the zone, the filters."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import typer

from loadfactor.base.errors import DamageError, InputError
from loadfactor.base.paths import read_store
from loadfactor.base.quantities import parse_duration_s
from loadfactor.base.request import Request, option

if TYPE_CHECKING:
    from loadfactor.books.books import Books
    from loadfactor.books.snapshot import Snapshot

MOMENT = "2026-10 (the start of that month), 2026-10-05 or 2026-10-05T08:00+01:00"

STORE_HELP = "Folder of the books. [default: books, or what loadfactor.toml says]"

DIMENSIONS = (
    "device, node, accelerator, pool, job, experiment, user, team, project, purpose, state, hour, day, week, month"
)
"""The dimensions in words; the tables, which define them, take a while to import."""


@dataclass(frozen=True, kw_only=True)
class StoreRequest(Request):
    """A question of the books as a whole."""

    store: Path | None = option(STORE_HELP, None)

    @property
    def books(self) -> "Books":
        """The books of a folder that exists. Raises InputError saying how to begin where it does not."""
        from loadfactor.books.books import Books  # the query engine takes a second to load
        from loadfactor.settings.config import settings

        books = Books.open(find_store(self.store), idle_below=settings().idle_below)
        say_losses(books)
        return books


def read_filters(pieces: Sequence[str], flag: str) -> dict[str, str]:
    """Dimension → value of pieces like team=vision; a piece without a sign belongs to the value before it."""
    pairs: list[str] = []
    for piece in pieces:
        if "=" not in piece and pairs:
            pairs[-1] += f",{piece}"
        else:
            pairs.append(piece)
    found = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not value:
            raise InputError(f"{flag} {pair!r} is no filter; write {flag} team=vision")
        found[name.strip()] = value.strip()
    return found


def say_losses(books: "Books") -> None:
    """Say on stderr that the books lack what was in damaged files; a damaged manifest is said by the first question."""
    with suppress(DamageError):
        losses = books.store.manifest.losses
        if losses:
            files = "a damaged file" if len(losses) == 1 else f"{len(losses)} damaged files"
            line = f"these books lack what was in {files}: import it again (`loadfactor imports` names the files)"
            typer.echo(f"loadfactor: {line}", err=True)


def say_booked_otherwise(books: "Books") -> None:
    """Say on stderr that a question takes as long as booking everything, and how to have that once."""
    with suppress(DamageError):
        if books.is_booked_otherwise:
            line = "this ledger was booked by another version or with another idle_below: every question books it anew"
            command = f"loadfactor compact --store {quote(str(books.store.folder))}"
            typer.echo(f"loadfactor: {line}; `{command}` writes it once", err=True)


def find_store(given: Path | None) -> Path:
    """The folder of the books: the one given, else the one in the settings; what it points to where it is a link."""
    from loadfactor.settings.config import settings  # pydantic takes a while to load

    return settings().store if given is None else read_store(given)


@dataclass(frozen=True, kw_only=True)
class SpanRequest(Request):
    """A question of some stretch of time in the books."""

    start: str | None = option(f"Start of the window: {MOMENT}.", None, name="--from")
    end: str | None = option("End of the window, itself not included.", None, name="--to")
    last: str | None = option("The last part of the window alone: 90min, 12h, 7d, 4w.", None)
    store: Path | None = option(STORE_HELP, None)
    timezone: str | None = option("Where days begin, and which zone times without one mean.", None)

    @property
    def books(self) -> "Books":
        """The books it asks; says where answers take long, because these are booked otherwise."""
        books = StoreRequest(store=self.store).books
        say_booked_otherwise(books)
        return books

    @property
    def zone(self) -> tzinfo:
        """The zone given, else the one in the settings."""
        return read_zone(self.timezone)

    def window(self, books: "Books | Snapshot") -> tuple[datetime | None, datetime | None]:
        """The start and the end of the window; None where the books decide. Raises InputError where it cannot be."""
        start, end = read_moment(self.start, self.zone), read_moment(self.end, self.zone)
        if self.last is None:
            return start, end
        length = timedelta(seconds=parse_duration_s(self.last))
        if start is not None:
            raise InputError("--last and --from both say where the window begins; give one of them")
        return (end or books.span[1]) - length, end


@dataclass(frozen=True, kw_only=True)
class WindowRequest(SpanRequest):
    """A question of some part of the books, whatever its money."""

    by: tuple[str, ...] = option(f"Split by one or several of {DIMENSIONS}.", ())
    where: tuple[str, ...] = option("Only these: team=vision,job=4711.", ())

    @property
    def filters(self) -> dict[str, str]:
        """`--where` as dimension → value."""
        return read_filters(self.where, "--where")


@dataclass(frozen=True, kw_only=True)
class BooksRequest(WindowRequest):
    """A question of some part of the books, in one kind of money."""

    basis: str | None = option(
        "Kind of money: effective, contracted, owned, list or estimate. [default: the best there is]", None
    )


def read_zone(name: str | None) -> tzinfo:
    """The zone of this name, else the one in the settings."""
    from loadfactor.settings.config import settings, zone

    return zone(name or settings().timezone)


def read_moment(text: str | None, zone: tzinfo) -> datetime | None:
    """A point in time as people write it; one without a zone is meant in `zone`. Raises InputError when it is none.

    >>> from datetime import UTC
    >>> read_moment("2026-10", UTC).isoformat(), read_moment("2026-10-05T08:00+01:00", UTC).isoformat()
    ('2026-10-01T00:00:00+00:00', '2026-10-05T08:00:00+01:00')
    """
    if text is None:
        return None
    try:
        day = f"{text}-01" if len(text) == len("2026-10") else text
        if len(day) == len("2026-10-05"):
            return datetime.combine(date.fromisoformat(day), time(), zone)
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise InputError(f"{text!r} is no time; write {MOMENT}") from error
    return at if at.tzinfo else at.replace(tzinfo=zone)
