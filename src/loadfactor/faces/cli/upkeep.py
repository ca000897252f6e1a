"""`loadfactor compact` and `loadfactor repair`: the files of the books in order."""

import typer

from loadfactor.faces.cli.books_request import StoreRequest
from loadfactor.faces.cli.commands import add_command
from loadfactor.faces.document import Document

ABOUT_COMPACT = "Merge the files of the books that belong together.\n\nNo answer changes."
ABOUT_REPAIR = (
    "Put damaged files into quarantine and make good what can be.\n\n"
    "A lost manifest is rebuilt from the files. Exits with 1 where something is lost, and says which imports would bring it again."
)


def add_to(app: typer.Typer) -> None:
    """Add `compact` and `repair`."""
    add_command(app, "compact", StoreRequest, build_compaction, ABOUT_COMPACT)
    add_command(app, "repair", StoreRequest, build_repair, ABOUT_REPAIR)


def build_compaction(request: StoreRequest) -> Document:
    """Merge, and how many files there were and are."""
    from loadfactor.faces.pages.upkeep import build_compaction as build_document
    from loadfactor.faces.progress import ProgressBar

    books = request.books
    before = books.store.manifest
    with ProgressBar() as bar:
        books.compact(bar)
    return build_document(before, books.store.manifest)


def build_repair(request: StoreRequest) -> Document:
    """Repair, and what is lost."""
    from loadfactor.faces.pages.upkeep import build_repair as build_document
    from loadfactor.faces.progress import ProgressBar

    books = request.books
    with ProgressBar() as bar:
        losses = books.repair(bar)
    return build_document(losses)
