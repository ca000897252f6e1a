"""`loadfactor doctor`: whether the books can be trusted."""

import typer

from loadfactor.interfaces.cli.books_request import StoreRequest
from loadfactor.interfaces.cli.commands import add_command
from loadfactor.interfaces.document import Document

ABOUT = "Check that the books balance and say what is missing.\n\nExits with 1 when they do not balance or are damaged."


def add_to(app: typer.Typer) -> None:
    """Add `doctor`."""
    add_command(app, "doctor", StoreRequest, build_page, ABOUT)


def build_page(request: StoreRequest) -> Document:
    """The check of the books that the request names."""
    from loadfactor.interfaces.pages.books_check import build_document

    return build_document(request.books)
