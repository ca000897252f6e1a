"""`loadfactor plan breakeven`: its options, and its page."""

import typer

from loadfactor.interfaces.cli.commands import add_command
from loadfactor.interfaces.document import Document
from loadfactor.planner.economics.request import BREAKEVEN_ABOUT, BreakEvenRequest


def add_to(app: typer.Typer) -> None:
    """Add the command under `plan`."""
    add_command(app, "breakeven", BreakEvenRequest, build_page, BREAKEVEN_ABOUT)


def build_page(request: BreakEvenRequest) -> Document:
    """The plan that the request asks for."""
    from loadfactor.interfaces.plans.breakeven import build_document  # the planner takes a while to import

    return build_document(request)
