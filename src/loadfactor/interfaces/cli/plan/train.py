"""`loadfactor plan train`: its options, and its page."""

import typer

from loadfactor.interfaces.cli.commands import add_command
from loadfactor.interfaces.document import Document
from loadfactor.planner.training.request import ABOUT, TrainingRequest


def add_to(app: typer.Typer) -> None:
    """Add the command under `plan`."""
    add_command(app, "train", TrainingRequest, build_page, ABOUT)


def build_page(request: TrainingRequest) -> Document:
    """The plan that the request asks for."""
    from loadfactor.interfaces.plans.train import build_document  # the planner takes a while to import

    return build_document(request)
