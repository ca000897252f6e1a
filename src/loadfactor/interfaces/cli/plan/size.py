"""`loadfactor plan size`: its options, and its page."""

import typer

from loadfactor.interfaces.cli.commands import add_command
from loadfactor.interfaces.document import Document
from loadfactor.planner.sizing.request import ABOUT, SizeRequest


def add_to(app: typer.Typer) -> None:
    """Add the command under `plan`."""
    add_command(app, "size", SizeRequest, build_page, ABOUT)


def build_page(request: SizeRequest) -> Document:
    """The plan that the request asks for."""
    from loadfactor.interfaces.plans.size import build_document  # the planner takes a while to import

    return build_document(request)
