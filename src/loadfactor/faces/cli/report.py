"""`loadfactor report`: how full, at what cost, who waited, can it be trusted: for a terminal, a manager or a program."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loadfactor.errors import InputError
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
from loadfactor.tables import DIMENSIONS

if TYPE_CHECKING:
    from loadfactor.faces.report.inquiry import Inquiry

FORMATS = ("terminal", "html", "md", "json")
SUFFIXES = {".html": "html", ".htm": "html", ".md": "md", ".json": "json", ".txt": "terminal"}


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
        str | None, typer.Option("--job", help="Job to look into; the dearest training job if not given.")
    ] = None,
    store: StoreFolder = None,
    timezone: Zone = None,
    basis: Basis = None,
    output_format: Annotated[
        str | None,
        typer.Option("--format", help="terminal, html, md or json; if not given, by the suffix of --output."),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the report to this file.")] = None,
) -> None:
    """Show how full the fleet was, what it cost and who waited.

    Where the hours and the money went, over time, by team, waits, unit costs, one job, data quality, what to try.
    """
    kind = output_format or (SUFFIXES.get(output.suffix.lower()) if output else "terminal")
    if kind not in FORMATS:
        wrong = f"no format called {output_format!r}" if output_format else f"cannot tell the format from {output}"
        raise InputError(f"{wrong}; choose --format {', '.join(FORMATS)}")
    if output is not None and not output.parent.is_dir():
        raise InputError(f"--output {output}: there is no folder {output.parent}")
    zone = time_zone(timezone)
    from loadfactor.faces.report.inquiry import Inquiry
    from loadfactor.metrics.query.question import check

    inquiry = Inquiry(
        books(store), check(dimensions(by)), moment(start, zone), moment(end, zone), zone, basis, filters(where), job
    )
    _give(inquiry, kind, output)


def _give(inquiry: "Inquiry", kind: str, output: Path | None) -> None:
    from loadfactor.faces.report import html, markdown, plain, terminal  # drawing libraries take a while to load
    from loadfactor.faces.report.compile import compile_report

    with Bar() as bar:
        bar("asking the books", 0.0)
        report = compile_report(inquiry)
        if kind == "terminal" and output is None:
            text = ""
        else:
            writers = {
                "terminal": terminal.as_text,
                "html": html.page,
                "md": markdown.document,
                "json": plain.as_json,
            }
            text = writers[kind](report)
    if output is not None:
        output.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
        sys.stdout.write(f"{report.headline}\nWritten to {output}\n")
    elif text:
        sys.stdout.write(text.rstrip("\n") + "\n")
    else:
        terminal.show(report)
