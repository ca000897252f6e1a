"""`loadfactor demo`: a simulated fleet through the same door as everybody, and its report. Nothing to configure."""

import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from loadfactor.errors import InputError
from loadfactor.faces.cli.asking import Bar

MARK = ".loadfactor-demo"


def add_to(app: typer.Typer) -> None:
    """Hang `demo` under the command line."""
    app.command("demo")(run)


def run(
    store: Annotated[
        Path, typer.Option("--store", help="Where to keep its books; an earlier demo there is replaced.")
    ] = Path("demo"),
    output_format: Annotated[str, typer.Option("--format", help="terminal or json")] = "terminal",
) -> None:
    """Simulate a fleet of about 200 GPUs and print its report.

    Two weeks, imported like anybody's data; then it says what to try next.
    """
    # the query engine, the drawing and the simulation take seconds to load, and only this command needs them all
    from loadfactor.books.books import Books
    from loadfactor.faces.render.present import present
    from loadfactor.faces.report.inquiry import Inquiry
    from loadfactor.faces.report.page import build_document
    from loadfactor.simulator import DEMO, simulate, write_tables

    if output_format not in ("terminal", "json"):
        raise InputError(f"no format called {output_format!r}; choose terminal or json")
    if store.exists() and any(store.iterdir()) and not (store / MARK).exists():
        raise InputError(f"{store} holds something else than a demo; choose another folder with --store")
    shutil.rmtree(store, ignore_errors=True)
    store.mkdir(parents=True)
    (store / MARK).touch()
    with Bar() as bar, tempfile.TemporaryDirectory() as folder:
        bar("simulating a fleet", 0.0)
        write_tables(simulate(DEMO), Path(folder))
        books = Books(store)
        books.add("tables", [folder], progress=bar)
        bar("writing the report", 0.0)
        document = build_document(Inquiry(books))
    present(document, output_format)
    if output_format == "json":
        return
    console = Console(highlight=False)
    for command, why in (
        (f"loadfactor report --store {store} --output demo.html", "the same with better pictures, for your manager"),
        ("loadfactor import nvidia-smi YOUR.csv --timezone Europe/Berlin", "and now your own"),
    ):
        console.print(Text.assemble(f"  {command}\n      ", (why, "dim")), soft_wrap=True)
