"""`loadfactor import SOURCE PATH…`: files into the books."""

from dataclasses import dataclass
from pathlib import Path

import typer

from loadfactor.faces.cli.books_request import find_store, read_moment, read_zone
from loadfactor.faces.cli.commands import add_command
from loadfactor.faces.document import Document
from loadfactor.request import Request, option

ABOUT = "Read files into the books, or nothing where they are wrong.\n\nThe same file twice adds nothing. Sources:"


@dataclass(frozen=True, kw_only=True)
class ImportRequest(Request):
    """What to read, and what the files do not say themselves."""

    source: str = option("What kind of files these are.", is_argument=True)
    paths: tuple[Path, ...] = option("Files or a folder, as the source asks.", is_argument=True)
    store: Path | None = option("Folder of the books. [default: books, or what loadfactor.toml says]", None)
    price_per_gpu_hour: float | None = option("One flat price for every GPU, at any time.", None, above=0)
    held_by: str | None = option("The job that held every GPU of a log, where no scheduler says who did.", None)
    timezone: str | None = option("Zone of times that carry none: Europe/Berlin.", None)
    step: float | None = option("Seconds between samples, where the files do not show it.", None, above=0)
    node: str | None = option("The machine a node-local log was taken on.", None)
    pool: str | None = option("The pool its GPUs belong to.", None)
    at: str | None = option("When a snapshot without a time was taken.", None)


def add_to(app: typer.Typer) -> None:
    """Add `import`."""
    from loadfactor.sources import SOURCES

    sources = "\n\n".join(f"{source.name}: {source.reads}" for source in SOURCES)
    add_command(app, "import", ImportRequest, build_page, f"{ABOUT}\n\n{sources}")


def build_page(request: ImportRequest) -> Document:
    """Import, and the receipt of it."""
    from loadfactor.books.books import Books
    from loadfactor.config import settings
    from loadfactor.faces.pages.receipt import build_document
    from loadfactor.faces.progress import ProgressBar
    from loadfactor.metrics.query.calendar import milliseconds
    from loadfactor.sources.base import ReadOptions

    taken = read_moment(request.at, read_zone(request.timezone))
    options = ReadOptions(
        timezone=read_zone(request.timezone) if request.timezone or settings().timezone != "UTC" else None,
        step_s=request.step,
        node=request.node,
        pool=request.pool,
        at_ms=milliseconds(taken) if taken else None,
        held_by=request.held_by,
        price_per_gpu_hour=request.price_per_gpu_hour,
    )
    books = Books(find_store(request.store), settings().idle_below)
    with ProgressBar() as bar:
        receipt = books.add(request.source, request.paths, options, bar)
    return build_document(receipt, books)
