"""`loadfactor demo`: a simulated fleet through the same door as everybody, and its report. Nothing to configure."""

import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from loadfactor.errors import InputError
from loadfactor.faces.cli.asking import Bar
from loadfactor.faces.readings import print_table
from loadfactor.metrics.books import Books
from loadfactor.sources.simulated import DEMO, simulate, write_tables

MARK = ".loadfactor-demo"


def add_to(app: typer.Typer) -> None:
    """Hang `demo` under the command line."""
    app.command("demo")(run)


def run(
    store: Annotated[
        Path, typer.Option("--store", help="Where to keep its books; an earlier demo there is replaced.")
    ] = Path("demo"),
) -> None:
    """Simulate a fleet of about 200 GPUs over two weeks, import it, print its report, and say what to try next."""
    if store.exists() and any(store.iterdir()) and not (store / MARK).exists():
        raise InputError(f"{store} holds something else than a demo; choose another folder with --store")
    shutil.rmtree(store, ignore_errors=True)
    store.mkdir(parents=True)
    (store / MARK).touch()
    console = Console(highlight=False)
    with Bar() as bar, tempfile.TemporaryDirectory() as folder:
        bar("simulating a fleet", 0.0)
        write_tables(simulate(DEMO), Path(folder))
        books = Books(store)
        books.add("tables", [folder], progress=bar)
    print_table(books.show(), console)
    console.print("\ntry next", style="bold")
    for command, why in (
        ("show utilization idle_usd --by team", "who holds GPUs and leaves them idle"),
        ("show cost_usd load_factor --by day", "how the two weeks went"),
        ("report --format html --output demo.html", "the report with pictures, for your manager"),
        ("doctor", "whether these books can be trusted"),
    ):
        name, _, rest = command.partition(" ")
        console.print(f"  loadfactor {name} --store {store} {rest}".rstrip(), f"[dim]# {why}[/]")
    console.print("  loadfactor import nvidia-smi YOUR.csv --timezone Europe/Berlin [dim]# and now your own[/]")
