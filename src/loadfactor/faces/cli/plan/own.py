"""`loadfactor plan own`: the options of an ownership plan, and its page."""

import typer

from loadfactor.faces.cli.commands import add_command
from loadfactor.faces.plans.own import ABOUT, build_document
from loadfactor.planner.economics.request import OwnRequest


def add_to(app: typer.Typer) -> None:
    """Add the command under `plan`."""
    add_command(app, "own", OwnRequest, build_document, ABOUT)
