"""`loadfactor plan serve`: its options, and its page."""

import typer

from loadfactor.interfaces.cli.commands import add_command
from loadfactor.interfaces.document import Document
from loadfactor.planner.serving.request import ABOUT, ServingRequest


def add_to(app: typer.Typer) -> None:
    """Add the command under `plan`."""
    add_command(app, "serve", ServingRequest, build_page, ABOUT)


def build_page(request: ServingRequest) -> Document:
    """The plan that the request asks for."""
    from rich.console import Console

    from loadfactor.interfaces.plans.serve import build_document  # the planner takes a while to import

    with Console(stderr=True).status("choosing a layout (the first run compiles the simulation)") as status:
        return build_document(request, status.update)
