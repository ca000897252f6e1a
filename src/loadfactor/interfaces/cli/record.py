"""`loadfactor record -- COMMAND`: runs a command, samples the GPUs it uses, and shows what it cost and how full they were."""

import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from loadfactor.base.errors import InputError
from loadfactor.interfaces.cli.books_request import STORE_HELP, find_store
from loadfactor.interfaces.cli.invocation import as_typed
from loadfactor.interfaces.cli.options import Brief, Format, Json, Output

ABOUT = (
    "Run a command and show what it cost and how full its GPUs were.\n\n"
    "The GPUs it uses are sampled, what stood out is said, and what was read is in the books. It ends with the command's exit code."
)
SHORTEST_S, LONGEST_S = 1.0, 60.0


def add_to(app: typer.Typer) -> None:
    """Add `record`."""

    @app.command("record", help=ABOUT, context_settings={"allow_interspersed_args": False})
    def record(
        command: Annotated[list[str], typer.Argument(metavar="-- COMMAND…", help="What to run.")],
        store: Annotated[Path | None, typer.Option(help=STORE_HELP)] = None,
        every: Annotated[str, typer.Option(metavar="TIME", help="How often to sample, 1s to 60s.")] = "1s",
        price_per_gpu_hour: Annotated[
            float | None,
            typer.Option(help="What an hour of a GPU costs. [default: what the books say, else the catalog]"),
        ] = None,
        output_format: Format = "terminal",
        json: Json = False,
        output: Output = None,
        brief: Brief = False,
    ) -> None:
        from loadfactor.base.quantities import parse_duration_s
        from loadfactor.books.books import Books
        from loadfactor.collect.recording import record_command
        from loadfactor.interfaces.pages.recorded_run import build_document
        from loadfactor.interfaces.render.present import present
        from loadfactor.settings.config import settings
        from loadfactor.sources.prometheus.query_answers import SOURCE

        every_s = parse_duration_s(every)
        if not SHORTEST_S <= every_s <= LONGEST_S:
            raise InputError("--every takes 1s to 60s")
        if price_per_gpu_hour is not None and price_per_gpu_hour <= 0:
            raise InputError("--price-per-gpu-hour takes an amount above 0")
        books = Books(find_store(store), settings().idle_below)
        with tempfile.TemporaryDirectory(prefix="loadfactor-record-") as folder:
            run = record_command(command, every_s, Path(folder))
            if run.gpus:
                books.add_rows(SOURCE, run.read_rows(price_per_gpu_hour), run.job)
        with books.snapshot() as asked:
            page = as_typed(build_document(run, asked))
        present(page, "json" if json else output_format, output, brief)
        sys.exit(run.exit_code)
