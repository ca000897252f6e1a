"""What do all questions of the books have in common on the command line? The store, the window, the zone, filters."""

from datetime import date, datetime, time, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from loadfactor.config import settings, zone
from loadfactor.errors import InputError
from loadfactor.tables import DIMENSIONS

if TYPE_CHECKING:
    from loadfactor.books.books import Books

StoreFolder = Annotated[
    Path | None, typer.Option("--store", help="Folder of the books. [default: books, or what loadfactor.toml says]")
]
By = Annotated[str, typer.Option("--by", help="Split by dimensions, with commas: " + ", ".join(DIMENSIONS) + ".")]
From = Annotated[str | None, typer.Option("--from", help="Start of the window: 2026-11-01 or 2026-11-01T08:00+01:00.")]
To = Annotated[str | None, typer.Option("--to", help="End of the window (not included).")]
Zone = Annotated[
    str | None, typer.Option("--timezone", help="Where days begin, and which zone times without one mean.")
]
Where = Annotated[list[str] | None, typer.Option("--where", help="Only these: team=vision, job=4711. May be repeated.")]
Basis = Annotated[
    str | None,
    typer.Option(
        "--basis", help="Kind of money: effective, contracted, owned, list, estimate. [default: best there is]"
    ),
]


def books(store: Path | None) -> "Books":
    """The books of a folder that exists; InputError saying how to begin when it does not."""
    folder = store or settings().store
    if not folder.is_dir():
        raise InputError(
            f"no books in {folder}; begin with `loadfactor import … --store {folder}` or `loadfactor demo`"
        )
    from loadfactor.books.books import Books  # the query engine takes a second to load

    return Books(folder, settings().idle_below)


def dimensions(by: str) -> list[str]:
    """Dimensions typed with commas."""
    return [name.strip() for name in by.split(",") if name.strip()]


def time_zone(name: str | None) -> tzinfo:
    """The zone asked for, else the one settled."""
    return zone(name or settings().timezone)


def moment(text: str | None, where: tzinfo) -> datetime | None:
    """A point in time as typed; one without a zone is meant in `where`. InputError when it is none."""
    if text is None:
        return None
    try:
        if len(text) == len("2026-11-01"):
            return datetime.combine(date.fromisoformat(text), time(), where)
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise InputError(f"{text!r} is no time; write 2026-11-01 or 2026-11-01T08:00+01:00") from error
    return at if at.tzinfo else at.replace(tzinfo=where)


def filters(where: list[str] | None) -> dict[str, str]:
    """`--where` options as dimension → value."""
    out = {}
    for item in where or []:
        name, sign, value = item.partition("=")
        if not sign or not value:
            raise InputError(f"--where {item!r} is no filter; write --where team=vision")
        out[name.strip()] = value.strip()
    return out


class Bar:
    """A progress bar on standard error, shown only to a person. Use as a context; call it with what is done and the share."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("reading", total=None)

    def __enter__(self) -> "Bar":
        self._progress.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._progress.stop()

    def __call__(self, what: str, share: float) -> None:
        """Tell what is being done; a share of zero means nobody knows how long it takes."""
        self._progress.update(self._task, description=what, completed=share, total=1.0 if share else None)
