"""`loadfactor validate mfu`: its options, and its page."""

import typer

from loadfactor.faces.cli.commands import add_command
from loadfactor.faces.validations.mfu import ABOUT, build_document
from loadfactor.validation.mfu_claims import MfuRequest


def add_to(app: typer.Typer) -> None:
    """Add the command under `validate`."""
    add_command(app, "mfu", MfuRequest, build_document, ABOUT)
