"""`loadfactor validate …`: predictions beside published or your own measurements, one module each, listed in `VALIDATIONS`."""

from types import ModuleType

import typer

from loadfactor.faces.cli.validate import mfu, serve, train

VALIDATIONS: tuple[ModuleType, ...] = (train, serve, mfu)


def add_to(app: typer.Typer) -> None:
    """Hang `validate` and its kinds under the command line."""
    group = typer.Typer(
        help="Predictions beside measurements, published or your own, with the errors.", no_args_is_help=True
    )
    for validation in VALIDATIONS:
        validation.add_to(group)
    app.add_typer(group, name="validate")
