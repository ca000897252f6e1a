"""`loadfactor validate memory`: its options, and its page."""

import typer

from loadfactor.interfaces.cli.commands import add_command
from loadfactor.interfaces.document import Document
from loadfactor.planner.validation.request import ABOUT_MEMORY, MemoryValidationRequest


def add_to(app: typer.Typer) -> None:
    """Add the command under `validate`."""
    add_command(app, "memory", MemoryValidationRequest, build_page, ABOUT_MEMORY)


def build_page(request: MemoryValidationRequest) -> Document:
    """The page of the validation of memory."""
    from loadfactor.interfaces.validations.memory import build_document  # the planner takes a while to import

    return build_document(request)
