"""`loadfactor validate serve`: its options, and its page."""

import typer

from loadfactor.interfaces.cli.commands import add_command
from loadfactor.interfaces.document import Document
from loadfactor.planner.validation.request import ABOUT_SERVING, ServingValidationRequest


def add_to(app: typer.Typer) -> None:
    """Add the command under `validate`."""
    add_command(app, "serve", ServingValidationRequest, build_page, ABOUT_SERVING)


def build_page(request: ServingValidationRequest) -> Document:
    """The page of the serving planner's validation."""
    if request.about:
        from loadfactor.interfaces.validations.about import build_serving

        return build_serving()
    from loadfactor.interfaces.validations.serve import build_document  # the planner takes a while to import

    return build_document(request)
