"""Commands that are more than one page of the books: the demo, the server, the agent, `record`, rules for Prometheus.

What they need is imported in them: each loads other heavy packages.
"""

import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from loadfactor.base.errors import InputError, LoadfactorError, no_such, say_why
from loadfactor.base.paths import read_url
from loadfactor.base.quantities import parse_duration_s
from loadfactor.interfaces.cli.commands import Brief, Json, Output, name_formats
from loadfactor.interfaces.document import Document, Section, Suggestion
from loadfactor.interfaces.requests import (
    LISTEN,
    STORE_HELP,
    DemoRequest,
    SeffRequest,
    find_store,
)

if TYPE_CHECKING:
    from loadfactor.planner.serving.request import ServingRequest
    from loadfactor.planner.validation.request import ServingValidationRequest, TrainingValidationRequest

Format = name_formats()
Store = Annotated[list[Path] | None, typer.Option("--store", metavar="PATH", help=STORE_HELP, show_default=False)]
DEMO_MARK = ".loadfactor-demo"
SHORTEST_S, LONGEST_S = 1.0, 60.0
"""Between samples of `record`."""
RULE_TARGETS = ("loadfactor", "dcgm")


def build_demo(request: DemoRequest) -> Document:
    """Simulate a fleet, import its rows as anybody's are, and report on it."""
    from loadfactor.books.books import Books
    from loadfactor.interfaces.progress import ProgressBar
    from loadfactor.interfaces.reports.inquiry import Inquiry
    from loadfactor.interfaces.reports.page import build_document
    from loadfactor.simulator import DEMO, make_tables, simulate
    from loadfactor.sources import find_source
    from loadfactor.sources.base import Rows
    from loadfactor.store.manifest import NAME as MANIFEST

    store = find_store(request.store)
    if read_url(store):
        raise InputError("a demo is kept in a folder; choose one with --store")
    if request.serve and (store / DEMO_MARK).exists() and (store / MANIFEST).exists():
        serve_demo(store, request.listen)
    if store.exists() and any(store.iterdir()) and not (store / DEMO_MARK).exists():
        raise InputError(f"{store} holds something else than a demo; choose another folder with --store")
    shutil.rmtree(store, ignore_errors=True)
    store.mkdir(parents=True)
    (store / DEMO_MARK).touch()
    with ProgressBar() as bar:
        bar("simulating a fleet", 0.0)
        tables = make_tables(simulate(DEMO))
        rows = (Rows(batch.table, batch.data, "the demo's fleet") for batch in tables)
        books = Books(store)
        books.add_rows(find_source("tables"), rows, "the demo's fleet", progress=bar)
        if not request.serve:
            bar("writing the report", 0.0)
            with books.snapshot() as snapshot:
                report = build_document(Inquiry(snapshot))
    if request.serve:
        serve_demo(store, request.listen)
    pictures = f"loadfactor report --store {quote(str(store))} --output demo.html"
    steps = (
        Suggestion(f"loadfactor demo --serve --store {quote(str(store))}", "its pages, for your browser"),
        Suggestion(pictures, "the same with better pictures, for your manager"),
        Suggestion("loadfactor import nvidia-smi YOUR.csv --timezone Europe/Berlin", "and now your own"),
    )
    return replace(report, sections=(*report.sections, Section(suggestions=steps)))


def serve_demo(store: Path, listen: str) -> NoReturn:
    """Show the demo in a browser until a signal."""
    from loadfactor.interfaces.server.run import serve_at_rest
    from loadfactor.settings.config import settings

    serve_at_rest(store, listen, settings())
    raise typer.Exit


def serve(
    store: Store = None,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where it listens. Port 0 takes any.")] = LISTEN,
) -> None:
    """Show books that are at rest in a browser until a signal."""
    from loadfactor.interfaces.server.run import serve_at_rest
    from loadfactor.settings.config import settings

    serve_at_rest(find_store(store), listen, settings())


def offer_tools(
    store: Store = None,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with a token, which decides what may be read.")
    ] = None,
) -> None:
    """Offer the books as tools of the Model Context Protocol, over standard input and output."""
    try:
        from loadfactor.interfaces.server.mcp import serve_tools
    except ModuleNotFoundError as error:
        raise InputError("its SDK is not installed: `pip install 'loadfactor[mcp]'`") from error
    from loadfactor.settings.config import settings

    try:
        token = None if token_file is None else token_file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise InputError(f"the token in {token_file} cannot be read: {say_why(error)}") from error
    serve_tools(find_store(store), token, settings())


def record(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND…", help="What to run.")],
    store: Store = None,
    every: Annotated[str, typer.Option(metavar="TIME", help="How often to sample, 1s to 60s.")] = "1s",
    price_per_gpu_hour: Annotated[
        float | None,
        typer.Option(help="What an hour of a GPU costs. [default: what the books say, else the catalog]"),
    ] = None,
    output_format: Format = "terminal",  # type: ignore[valid-type]
    json: Json = False,
    output: Output = None,
    brief: Brief = False,
) -> None:
    """Run a command, sample the GPUs it uses, and show what it cost and how full they were."""
    from loadfactor.books.books import Books
    from loadfactor.collect.own_gpus import record_command
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
            books.add_rows(SOURCE, list(run.read_rows(price_per_gpu_hour)), run.job)
    with books.snapshot() as snapshot:
        page = build_document(run, snapshot)
    present(page, "json" if json else output_format, output, brief)
    sys.exit(run.exit_code)


def up(
    store: Store = None,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where it listens. Port 0 takes any.")] = LISTEN,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The configuration. [default: loadfactor.toml]")
    ] = None,
    log_format: Annotated[str, typer.Option(metavar="json|text", help="How lines of the log are written.")] = "json",
    log_level: Annotated[
        str, typer.Option(metavar="info|warning|error", help="Which lines; those of requests are info.")
    ] = "info",
) -> None:
    """Collect, keep the books current and serve them until a signal."""
    from loadfactor.interfaces.server.log import STYLE
    from loadfactor.interfaces.server.run import serve
    from loadfactor.settings.config import choose_file, settings

    STYLE.choose(log_format, log_level)
    chosen = settings() if config is None else choose_file(config)
    folder = find_store(chosen.store if not store and config is not None else store)
    serve(folder, listen, chosen)


def agent(context: typer.Context) -> None:
    """Sample this machine's GPUs; the agent reads its options itself."""
    from loadfactor_agent.main import main

    main(context.args, "loadfactor agent")


def prometheus_rules(
    against: Annotated[
        str,
        typer.Option(
            metavar="|".join(RULE_TARGETS),
            help="Whose series they read: /metrics of `loadfactor up`, or dcgm-exporter and kube-state-metrics.",
        ),
    ] = RULE_TARGETS[0],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; without it they are printed.")
    ] = None,
    runbooks: Annotated[
        str | None, typer.Option(help="Address of these docs where you host them; alerts then link to runbooks.")
    ] = None,
    currency: Annotated[
        str | None, typer.Option(help="Currency of the books: EUR. [default: that of the store]")
    ] = None,
    store: Store = None,
) -> None:
    """Write the rules of alerts for Prometheus to a file, or print them. Raises InputError where it cannot be written."""
    from loadfactor.insight.alerts.configured import configure
    from loadfactor.insight.alerts.rules import RULES
    from loadfactor.interfaces.prometheus_rules.files import write_for
    from loadfactor.interfaces.render.present import replacing
    from loadfactor.interfaces.requests import find_currency
    from loadfactor.settings.config import settings

    if against not in RULE_TARGETS:
        raise no_such("target", against, RULE_TARGETS)
    rules = configure(RULES, settings().alert)
    text, written, left_out = write_for(
        against, rules, find_currency(currency, store), runbooks or settings().alerts.runbooks
    )
    if output is None:
        typer.echo(text, nl=False)
        return
    if output.is_dir():
        raise InputError(f"--output {output}: is a folder; name a file in it, like {output}/loadfactor.rules.yml")
    with replacing(output) as beside:
        beside.write_text(text, encoding="utf-8")
    left = f"; {left_out} that PromQL cannot say are named in it, with the reason" if left_out else ""
    typer.echo(f"Wrote {written} rules into {output}{left}. Name the file under rule_files in prometheus.yml.")


def build_seff(request: SeffRequest) -> Document:
    """A job by the books or by a server; with --notice nothing, rather than a failure."""
    from loadfactor.interfaces.reports import seff

    if request.server is not None and request.store is not None:
        raise InputError("--server and --store both say where to read; give one of them")
    try:
        if request.server is None:
            return _leave_empty(seff.build_page(request))
        from loadfactor.interfaces.cli.server_answer import fetch_answer

        address = f"{request.server.rstrip('/')}/api/v1/seff"
        payload = fetch_answer(address, "jobs", {"job": request.job}, request.token_file)
        return _leave_empty(seff.build_seff(seff.read_answer(payload), request))
    except LoadfactorError:
        if request.notice:
            raise typer.Exit from None
        raise


def _leave_empty(page: Document) -> Document:
    """The page; ends the command where it has nothing to say."""
    if not page.headline:
        raise typer.Exit
    return page


def build_serving_plan(request: "ServingRequest") -> Document:
    """The plan of a serving fleet, with a word on what it takes time for."""
    from loadfactor.interfaces.plans.inputs import show_search
    from loadfactor.interfaces.plans.serve import build_document

    with show_search() as status:
        return build_document(request, status.update)


def build_training_validation(request: "TrainingValidationRequest") -> Document:
    """The page of the training planner's validation, of one job beside its plan, or of the constants."""
    from loadfactor.interfaces.validations import job_run, training

    if request.job is not None:
        return job_run.build_document(request)
    return training.build_training() if request.about else training.build_document(request)


def build_serving_validation(request: "ServingValidationRequest") -> Document:
    """The page of the serving planner's validation, or of the constants."""
    from loadfactor.interfaces.validations import serve

    return serve.build_serving() if request.about else serve.build_document(request)
