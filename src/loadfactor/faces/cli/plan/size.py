"""`loadfactor plan size`: the options of a size plan, and its page."""

import typer

from loadfactor.faces.cli.commands import add_command
from loadfactor.faces.plans.size import ABOUT, build_document
from loadfactor.planner.sizing.request import SizeRequest


def add_to(app: typer.Typer) -> None:
    """Add the command under `plan`."""
    add_command(app, "size", SizeRequest, build_document, ABOUT)
