"""`loadfactor untagged` and `loadfactor retag`: held time without an experiment, and rules applied to history."""

from dataclasses import dataclass
from pathlib import Path
from shlex import quote

import typer

from loadfactor.base.paths import read_path
from loadfactor.base.request import option
from loadfactor.interfaces.cli.books_request import BooksRequest, StoreRequest
from loadfactor.interfaces.cli.commands import add_command
from loadfactor.interfaces.document import Document

ABOUT_UNTAGGED = (
    "List held GPU-hours and cost without an experiment, by who could fix them.\n\n"
    "The most expensive come first, with the rule that would tag them. Without a team, a project or a purpose: in all."
)
ABOUT_RETAG = (
    "Apply the rules and the mapping of today to what is in the books already.\n\n"
    "Rules are tables [[tag]] of loadfactor.toml, the mapping a CSV that [tagging] names there. Nothing is imported again; doing it"
    " twice changes nothing."
)


@dataclass(frozen=True, kw_only=True)
class UntaggedRequest(BooksRequest):
    """Of which part of the books, and by what to list it."""

    by: tuple[str, ...] = option(
        "List by user, team, project, queue, pool, job, or a tag: namespace, account, job_name, label.NAME.",
        ("user", "team"),
    )


@dataclass(frozen=True, kw_only=True)
class RetagRequest(StoreRequest):
    """What to apply."""

    mapping: Path | None = option("CSV to use in place of the mapping that loadfactor.toml names.", None)
    dry_run: bool = option("Say what would change, and change nothing.", False)


def add_to(app: typer.Typer) -> None:
    """Add `untagged` and `retag`."""
    add_command(app, "untagged", UntaggedRequest, build_list, ABOUT_UNTAGGED)
    add_command(app, "retag", RetagRequest, build_receipt, ABOUT_RETAG)


def build_list(request: UntaggedRequest) -> Document:
    """What is not tagged."""
    from loadfactor.interfaces.pages.tagging import build_untagged

    books = request.books
    start, end = request.window(books)
    with books.snapshot() as snapshot:
        found = snapshot.find_untagged(request.by, start, end, request.zone, request.basis, request.filters)
    return build_untagged(found, f" --store {quote(str(books.store.folder))}")


def build_receipt(request: RetagRequest) -> Document:
    """Tag history anew, and what that changed."""
    from loadfactor.interfaces.pages.tagging import build_retagging
    from loadfactor.interfaces.progress import ProgressBar

    with ProgressBar() as bar:
        found = request.books.retag(request.mapping and read_path(request.mapping), request.dry_run, bar)
    return build_retagging(found, request.mapping is not None)
