"""`loadfactor imports` and `loadfactor forget IMPORT`: what was read into the books, and taking it out again."""

from dataclasses import dataclass

import typer

from loadfactor.base.request import option
from loadfactor.interfaces.cli.books_request import StoreRequest
from loadfactor.interfaces.cli.commands import add_command
from loadfactor.interfaces.document import Document

ABOUT_IMPORTS = "List what was read into the books, with the number of each import."
ABOUT_FORGET = (
    "Take an import out of the books again, whole.\n\n"
    "What other imports said of the same GPUs, jobs and times stays, or comes back. `loadfactor imports` lists the numbers."
)


@dataclass(frozen=True, kw_only=True)
class ForgetRequest(StoreRequest):
    """Which import to take out."""

    number: int = option("Number of the import.", is_argument=True, at_least=1)


def add_to(app: typer.Typer) -> None:
    """Add `imports` and `forget`."""
    add_command(app, "imports", StoreRequest, build_list, ABOUT_IMPORTS)
    add_command(app, "forget", ForgetRequest, build_receipt, ABOUT_FORGET)


def build_list(request: StoreRequest) -> Document:
    """What was imported."""
    from loadfactor.interfaces.pages.imports_list import build_document

    return build_document(request.books)


def build_receipt(request: ForgetRequest) -> Document:
    """Take the import out, and what that was."""
    from loadfactor.interfaces.pages.receipt import name_rows
    from loadfactor.interfaces.progress import ProgressBar

    with ProgressBar() as bar:
        record = request.books.forget(request.number, bar)
    return Document(f"Import {record.number} is forgotten: {name_rows(record.rows)} from {record.source}.", data=record)
