"""`loadfactor validate train`: its options, and its page."""

import typer

from loadfactor.faces.cli.commands import add_command
from loadfactor.faces.document import Document
from loadfactor.validation.request import ABOUT_TRAINING, TrainingValidationRequest


def add_to(app: typer.Typer) -> None:
    """Add the command under `validate`."""
    add_command(app, "train", TrainingValidationRequest, build_page, ABOUT_TRAINING)


def build_page(request: TrainingValidationRequest) -> Document:
    """The page of the training planner's validation."""
    from loadfactor.faces.validations.training import build_document  # the planner takes a while to import

    return build_document(request)
