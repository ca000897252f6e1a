"""`loadfactor plan serve`: the options of a serving plan, and its page."""

import typer
from rich.console import Console

from loadfactor.faces.cli.commands import add_command
from loadfactor.faces.document import Document
from loadfactor.faces.plans.serve import ABOUT, build_document
from loadfactor.planner.serving.request import ServingRequest


def add_to(app: typer.Typer) -> None:
    """Add the command under `plan`."""
    add_command(app, "serve", ServingRequest, _build, ABOUT)


def _build(request: ServingRequest) -> Document:
    with Console(stderr=True).status("choosing a layout (the first run compiles the simulation)") as status:
        return build_document(request, status.update)
