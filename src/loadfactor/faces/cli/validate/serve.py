"""`loadfactor validate serve`: the options of a validation of the serving planner, and its page."""

import typer

from loadfactor.faces.cli.commands import add_command
from loadfactor.faces.validations.serve import ABOUT, build_document
from loadfactor.validation.serving import ServingValidationRequest


def add_to(app: typer.Typer) -> None:
    """Add the command under `validate`."""
    add_command(app, "serve", ServingValidationRequest, build_document, ABOUT)
