"""`loadfactor demo`: a simulated fleet, imported as anybody's data is, and its report."""

import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote

import typer

from loadfactor.base.errors import InputError
from loadfactor.base.request import Request, option
from loadfactor.interfaces.cli.books_request import find_store
from loadfactor.interfaces.cli.commands import add_command
from loadfactor.interfaces.document import Document, Section, Suggestion

ABOUT = "Simulate a fleet of about 200 GPUs and print its report.\n\nTwo weeks of it; then it says what to try next."
MARK = ".loadfactor-demo"


@dataclass(frozen=True, kw_only=True)
class DemoRequest(Request):
    """Where the demo is kept."""

    store: Path = option("Where to keep its books; an earlier demo there is replaced.", Path("demo"))


def add_to(app: typer.Typer) -> None:
    """Add `demo`."""
    add_command(app, "demo", DemoRequest, build_page, ABOUT)


def build_page(request: DemoRequest) -> Document:
    """Simulate, import, and the report of it."""
    # the query engine, the drawing and the simulation take seconds to load, and only this command needs them all
    from loadfactor.books.books import Books
    from loadfactor.interfaces.progress import ProgressBar
    from loadfactor.interfaces.report.inquiry import Inquiry
    from loadfactor.interfaces.report.page import build_document
    from loadfactor.simulator import DEMO, simulate, write_tables

    store = find_store(request.store)
    if store.exists() and any(store.iterdir()) and not (store / MARK).exists():
        raise InputError(f"{store} holds something else than a demo; choose another folder with --store")
    shutil.rmtree(store, ignore_errors=True)
    store.mkdir(parents=True)
    (store / MARK).touch()
    with ProgressBar() as bar, tempfile.TemporaryDirectory() as folder:
        bar("simulating a fleet", 0.0)
        write_tables(simulate(DEMO), Path(folder))
        books = Books(store)
        books.add("tables", [folder], progress=bar)
        bar("writing the report", 0.0)
        with books.snapshot() as snapshot:
            report = build_document(Inquiry(snapshot))
    return replace(report, sections=(*report.sections, Section(suggestions=_next_steps(store))))


def _next_steps(store: Path) -> tuple[Suggestion, ...]:
    return (
        Suggestion(
            f"loadfactor report --store {quote(str(store))} --output demo.html",
            "the same with better pictures, for your manager",
        ),
        Suggestion("loadfactor import nvidia-smi YOUR.csv --timezone Europe/Berlin", "and now your own"),
    )
