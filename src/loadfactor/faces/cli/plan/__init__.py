"""`loadfactor plan …`: what-if questions, one module each, listed in `PLANS`."""

from types import ModuleType

import typer

from loadfactor.faces.cli.plan import breakeven, own, serve, size, train

PLANS: tuple[ModuleType, ...] = (train, serve, size, own, breakeven)


def add_to(app: typer.Typer) -> None:
    """Hang `plan` and its questions under the command line."""
    group = typer.Typer(
        help="What if? Training, serving, sizing, owning: from the catalog and your demand.",
        no_args_is_help=True,
    )
    for plan in PLANS:
        plan.add_to(group)
    app.add_typer(group, name="plan")
