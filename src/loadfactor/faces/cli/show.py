"""`loadfactor show METRIC… --by …`: readings, as a table, JSON or CSV."""

from typing import Annotated

import typer

from loadfactor.errors import InputError
from loadfactor.faces.cli.asking import (
    Basis,
    By,
    From,
    StoreFolder,
    To,
    Where,
    Zone,
    books,
    dimensions,
    filters,
    moment,
    time_zone,
)


def add_to(app: typer.Typer) -> None:
    """Hang `show` under the command line."""
    app.command("show")(run)


def run(
    metrics: Annotated[
        list[str] | None, typer.Argument(help="Names of metrics; all of them when none is given.")
    ] = None,
    by: By = "",
    start: From = None,
    end: To = None,
    where: Where = None,
    store: StoreFolder = None,
    timezone: Zone = None,
    basis: Basis = None,
    without_idle: Annotated[
        bool, typer.Option("--without-idle", help="Unit costs without the dollars of idle and unobserved time.")
    ] = False,
    output: Annotated[str, typer.Option("--format", help="table, json or csv")] = "table",
) -> None:
    """Show metrics, in all or split by device, team, day and others.

    `--by` knows device, node, job, team, state, day and others.
    """
    from loadfactor.faces.readings import build_document
    from loadfactor.faces.render.present import present

    if output not in ("table", "json", "csv"):
        raise InputError(f"no format called {output!r}; choose table, json or csv")
    zone = time_zone(timezone)
    readings = books(store).show(
        metrics or (),
        dimensions(by),
        moment(start, zone),
        moment(end, zone),
        timezone=zone,
        basis=basis,
        where=filters(where),
        without_idle=without_idle,
    )
    present(build_document(readings), "terminal" if output == "table" else output)
