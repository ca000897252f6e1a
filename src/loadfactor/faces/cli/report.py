"""`loadfactor report`: the whole report on a fleet, for a terminal, as a file or for programs."""

from typing import Annotated

import typer

from loadfactor.faces.cli.asking import (
    Bar,
    Basis,
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
from loadfactor.faces.cli.options import Format, Output
from loadfactor.tables import DIMENSIONS


def add_to(app: typer.Typer) -> None:
    """Hang `report` under the command line."""
    app.command("report")(run)


def run(
    by: Annotated[
        str,
        typer.Option(
            "--by",
            help="Split by dimensions, with commas: "
            + ", ".join(DIMENSIONS)
            + ". If not given, by team, else by what is tagged.",
        ),
    ] = "",
    start: From = None,
    end: To = None,
    where: Where = None,
    job: Annotated[
        str | None, typer.Option("--job", help="Job to look into; the most expensive training job if not given.")
    ] = None,
    store: StoreFolder = None,
    timezone: Zone = None,
    basis: Basis = None,
    output_format: Format = "terminal",
    output: Output = None,
) -> None:
    """Show how full the fleet was, what it cost and who waited.

    From paid to effective, over time, by team, queue waits, unit costs, jobs, data quality, what to try next.
    """
    zone = time_zone(timezone)
    from loadfactor.faces.report.inquiry import Inquiry
    from loadfactor.metrics.query.question import check

    inquiry = Inquiry(
        books(store), check(dimensions(by)), moment(start, zone), moment(end, zone), zone, basis, filters(where), job
    )
    from loadfactor.faces.render.present import present
    from loadfactor.faces.report.page import build_document

    with Bar() as bar:
        bar("asking the books", 0.0)
        document = build_document(inquiry)
    present(document, output_format, output)
