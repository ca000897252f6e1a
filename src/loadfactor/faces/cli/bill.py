"""`loadfactor bill`: commands that look into bills."""

import typer

from loadfactor.faces.cli.books_request import StoreRequest
from loadfactor.faces.cli.commands import add_commands
from loadfactor.faces.document import Document

ABOUT = "Look into bills: what commitments saved."
ABOUT_COMMITMENTS = (
    "Show what commitments, reservations and spot capacity saved.\n\n"
    "Effective savings rate, coverage, utilization and unused cost of each, by the bills that were imported."
)


def add_to(app: typer.Typer) -> None:
    """Add `bill` and its commands."""
    add_commands(app, "bill", ABOUT, ("commitments", StoreRequest, build_page, ABOUT_COMMITMENTS))


def build_page(request: StoreRequest) -> Document:
    """All commitments of the bills."""
    from loadfactor.faces.pages.commitments import build_commitments

    return build_commitments(request.books.commitments())
