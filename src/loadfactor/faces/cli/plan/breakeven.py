"""`loadfactor plan breakeven`: the options of a break-even plan, and its page."""

import typer

from loadfactor.faces.cli.commands import add_command
from loadfactor.faces.plans.breakeven import ABOUT, build_document
from loadfactor.planner.economics.request import BreakEvenRequest


def add_to(app: typer.Typer) -> None:
    """Add the command under `plan`."""
    add_command(app, "breakeven", BreakEvenRequest, build_document, ABOUT)
