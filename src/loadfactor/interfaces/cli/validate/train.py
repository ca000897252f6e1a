"""`loadfactor validate train`: its options, and its page."""

import typer

from loadfactor.interfaces.cli.commands import add_command
from loadfactor.interfaces.document import Document
from loadfactor.planner.validation.request import ABOUT_TRAINING, TrainingValidationRequest


def add_to(app: typer.Typer) -> None:
    """Add the command under `validate`."""
    add_command(app, "train", TrainingValidationRequest, build_page, ABOUT_TRAINING)


def build_page(request: TrainingValidationRequest) -> Document:
    """The page of the training planner's validation, of one job beside its plan, or of the constants."""
    if request.job is not None:
        from loadfactor.interfaces.validations.job_run import (
            build_document as build_job,
        )  # the planner takes a while to import

        return build_job(request)
    if request.about:
        from loadfactor.interfaces.validations.about import build_training

        return build_training()
    from loadfactor.interfaces.validations.training import build_document

    return build_document(request)
