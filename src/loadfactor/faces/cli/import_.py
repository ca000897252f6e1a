"""`loadfactor import SOURCE PATH…`: files into the books."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from loadfactor.config import settings
from loadfactor.errors import InputError
from loadfactor.faces.cli.asking import Bar, StoreFolder, moment, time_zone
from loadfactor.faces.formats import instant
from loadfactor.sources import SOURCES
from loadfactor.sources.base import ReadOptions

if TYPE_CHECKING:
    from loadfactor.books.books import Books
    from loadfactor.store.store import Receipt

SHOWN_GAPS = 12


def add_to(app: typer.Typer) -> None:
    """Hang `import` under the command line."""
    sources = "\n\n".join(f"{s.name}: {s.reads}" for s in SOURCES)
    app.command("import", help=f"{run.__doc__}\n\nThe same file twice adds nothing. Sources:\n\n{sources}")(run)


def run(
    source: Annotated[str, typer.Argument(help="What kind of files these are.")],
    paths: Annotated[list[Path], typer.Argument(help="Files or a folder, as the source asks.")],
    store: StoreFolder = None,
    price_per_gpu_hour: Annotated[
        float | None, typer.Option("--price-per-gpu-hour", help="One flat price for every GPU, now and ever.")
    ] = None,
    timezone: Annotated[
        str | None, typer.Option("--timezone", help="Zone of times that carry none: Europe/Berlin.")
    ] = None,
    step: Annotated[
        float | None, typer.Option("--step", help="Seconds between samples, where the files do not show it.")
    ] = None,
    node: Annotated[str | None, typer.Option("--node", help="The machine a node-local log was taken on.")] = None,
    pool: Annotated[str | None, typer.Option("--pool", help="The pool its GPUs belong to.")] = None,
    held_by: Annotated[
        str | None,
        typer.Option("--held-by", help="The job that held every GPU of a log, where no scheduler says who did."),
    ] = None,
    at: Annotated[str | None, typer.Option("--at", help="When a snapshot without a time was taken.")] = None,
    output: Annotated[str, typer.Option("--format", help="terminal or json")] = "terminal",
) -> None:
    """Read files into the books, or nothing where they are wrong."""
    from loadfactor.books.books import Books
    from loadfactor.metrics.query.calendar import milliseconds

    if price_per_gpu_hour is not None and not 0 < price_per_gpu_hour < float("inf"):
        raise InputError(f"--price-per-gpu-hour must be a positive number, got {price_per_gpu_hour}")
    if step is not None and step <= 0:
        raise InputError(f"--step must be a positive number of seconds, got {step}")
    zone = time_zone(timezone) if timezone or settings().timezone != "UTC" else None
    taken = moment(at, time_zone(timezone))
    options = ReadOptions(zone, step, node, pool, milliseconds(taken) if taken else None, held_by, price_per_gpu_hour)
    books = Books(store or settings().store, settings().idle_below)
    with Bar() as bar:
        receipt = books.add(source, paths, options, bar)
    if output == "json":
        typer.echo(json.dumps(_as_json(receipt), indent=1))
    else:
        _tell(receipt, books)


def _as_json(receipt: "Receipt") -> dict[str, object]:
    gaps = [{"where": g.where, "what": g.what, "count": g.count} for g in receipt.gaps]
    return {"source": receipt.source, "already": receipt.already, "rows": receipt.rows, "gaps": gaps}


def _rows_of(table: str, count: int) -> str:
    """What the rows of a table are called: one outage, two outages, progress either way."""
    spoken = table.replace("_", " ")
    return spoken.removesuffix("s") if count == 1 and table != "progress" else spoken


def _tell(receipt: "Receipt", books: "Books") -> None:
    console = Console(highlight=False, markup=False)  # names may hold brackets
    rows = ", ".join(f"{count:,} {_rows_of(name, count)}" for name, count in receipt.rows.items())
    start, end = books.span
    if receipt.already:
        console.print(f"already in the books, nothing added: {rows}")
        return
    console.print(f"imported {rows}")
    for gap in receipt.gaps[:SHOWN_GAPS]:
        where = f"{Path(gap.where).name}: " if gap.where else ""
        console.print(f"  not measured  {where}{gap.what} (×{gap.count:,})", style="dim")
    if len(receipt.gaps) > SHOWN_GAPS:
        console.print(f"  and {len(receipt.gaps) - SHOWN_GAPS} more; `loadfactor doctor` lists them", style="dim")
    if "samples" in receipt.rows and not books.store.manifest.of("allocations"):
        console.print(
            "nobody says who holds these GPUs: their hours have an unknown holder."
            " Import allocations, use an exporter with job labels, or import the log with --held-by JOB"
        )
    console.print(
        f"the books now cover {instant(start)} to {instant(end)}; next: loadfactor report --store {books.store.folder}"
    )
