"""`loadfactor validate train`: its options, and its page."""

import typer

from loadfactor.faces.cli.commands import add_command
from loadfactor.faces.validations.training import ABOUT, build_document
from loadfactor.validation.training import TrainingValidationRequest


def add_to(app: typer.Typer) -> None:
    """Add the command under `validate`."""
    add_command(app, "train", TrainingValidationRequest, build_document, ABOUT)
