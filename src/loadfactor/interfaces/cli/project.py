"""`loadfactor project`: what projects were planned to cost, what they cost so far, and what they come to."""

from dataclasses import dataclass

import typer

from loadfactor.base.request import option
from loadfactor.interfaces.cli.books_request import StoreRequest
from loadfactor.interfaces.cli.commands import add_command
from loadfactor.interfaces.document import Document

ABOUT = (
    "Show what projects were planned to cost, cost so far, and come to.\n\n"
    "Projects are tables [[project]] of loadfactor.toml: runs with their retries, evaluation, storage, staff, GPU-hours and price."
)


@dataclass(frozen=True, kw_only=True)
class ProjectRequest(StoreRequest):
    """In which kind of money."""

    basis: str | None = option(
        "Kind of money: effective, contracted, owned, list or estimate. [default: the best there is]", None
    )


def add_to(app: typer.Typer) -> None:
    """Add `project`."""
    add_command(app, "project", ProjectRequest, build_page, ABOUT)


def build_page(request: ProjectRequest) -> Document:
    """All projects of the settings."""
    from loadfactor.interfaces.pages.projects import build_projects

    return build_projects(request.books.projects(request.basis))
