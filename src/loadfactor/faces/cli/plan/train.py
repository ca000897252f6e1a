"""`loadfactor plan train`: the options of a training plan, and its page."""

import typer

from loadfactor.faces.cli.commands import add_command
from loadfactor.faces.plans.train import ABOUT, build_document
from loadfactor.planner.training.request import TrainingRequest


def add_to(app: typer.Typer) -> None:
    """Add the command under `plan`."""
    add_command(app, "train", TrainingRequest, build_document, ABOUT)
