"""`loadfactor validate mfu`: its options, and its page."""

import typer

from loadfactor.interfaces.cli.commands import add_command
from loadfactor.interfaces.document import Document
from loadfactor.planner.validation.request import ABOUT_MFU, MfuRequest


def add_to(app: typer.Typer) -> None:
    """Add the command under `validate`."""
    add_command(app, "mfu", MfuRequest, build_page, ABOUT_MFU)


def build_page(request: MfuRequest) -> Document:
    """The page of the MFU table's validation."""
    from loadfactor.interfaces.validations.mfu import build_document  # the planner takes a while to import

    return build_document(request)
