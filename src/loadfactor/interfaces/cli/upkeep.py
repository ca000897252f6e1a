"""`loadfactor compact`, `repair` and `backup`: the files of the books in order."""

from dataclasses import dataclass
from pathlib import Path

import typer

from loadfactor.base.request import option
from loadfactor.interfaces.cli.books_request import StoreRequest, find_store
from loadfactor.interfaces.cli.commands import add_command
from loadfactor.interfaces.document import Document

ABOUT_COMPACT = "Merge the files of the books that belong together.\n\nNo answer changes."
ABOUT_REPAIR = (
    "Put damaged files into quarantine and make good what can be.\n\n"
    "A lost manifest is rebuilt from the files. Exits with 1 where something is lost, and says which imports would bring it again."
)

ABOUT_BACKUP = (
    "Copy the books into a new folder, also while they are read and written.\n\n"
    "With live rows and tokens. The copy is books like any other: `--store FOLDER` asks it."
)


@dataclass(frozen=True, kw_only=True)
class BackupRequest(StoreRequest):
    """Where to copy the books."""

    folder: Path = option("A folder that does not exist yet, or is empty.", is_argument=True)


def add_to(app: typer.Typer) -> None:
    """Add `compact`, `repair` and `backup`."""
    add_command(app, "compact", StoreRequest, build_compaction, ABOUT_COMPACT)
    add_command(app, "repair", StoreRequest, build_repair, ABOUT_REPAIR)
    add_command(app, "backup", BackupRequest, build_backup, ABOUT_BACKUP)


def build_compaction(request: StoreRequest) -> Document:
    """Merge, and how many files there were and are."""
    from loadfactor.interfaces.pages.upkeep import build_compaction as build_document
    from loadfactor.interfaces.progress import ProgressBar

    books = request.books
    before = books.store.manifest
    with ProgressBar() as bar:
        books.compact(bar)
    return build_document(before, books.store.manifest)


def build_repair(request: StoreRequest) -> Document:
    """Repair, and what is lost."""
    from loadfactor.interfaces.pages.upkeep import build_repair as build_document
    from loadfactor.interfaces.progress import ProgressBar

    books = request.books
    with ProgressBar() as bar:
        losses = books.repair(bar)
    return build_document(losses)


def build_backup(request: BackupRequest) -> Document:
    """Copy the books, and what was copied."""
    from loadfactor.interfaces.pages.upkeep import build_backup as build_document
    from loadfactor.store.backup import back_up

    return build_document(back_up(find_store(request.store), request.folder), request.folder)
