"""`loadfactor validate serve`: its options, and its page."""

import typer

from loadfactor.faces.cli.commands import add_command
from loadfactor.faces.document import Document
from loadfactor.validation.request import ABOUT_SERVING, ServingValidationRequest


def add_to(app: typer.Typer) -> None:
    """Add the command under `validate`."""
    add_command(app, "serve", ServingValidationRequest, build_page, ABOUT_SERVING)


def build_page(request: ServingValidationRequest) -> Document:
    """The page of the serving planner's validation."""
    if request.about:
        from loadfactor.faces.validations.about import build_serving

        return build_serving()
    from loadfactor.faces.validations.serve import build_document  # the planner takes a while to import

    return build_document(request)
