"""`loadfactor plan own`: its options, and its page."""

import typer

from loadfactor.interfaces.cli.commands import add_command
from loadfactor.interfaces.document import Document
from loadfactor.planner.economics.request import OWN_ABOUT, OwnRequest


def add_to(app: typer.Typer) -> None:
    """Add the command under `plan`."""
    add_command(app, "own", OwnRequest, build_page, OWN_ABOUT)


def build_page(request: OwnRequest) -> Document:
    """The plan that the request asks for."""
    from loadfactor.interfaces.plans.own import build_document  # the planner takes a while to import

    return build_document(request)
