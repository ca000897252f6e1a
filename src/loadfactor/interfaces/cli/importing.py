"""`loadfactor import SOURCE PATH…`: files into the books."""

import shutil
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from loadfactor.base.errors import InputError
from loadfactor.base.paths import read_path
from loadfactor.base.quantities import parse_duration_s
from loadfactor.interfaces.document import Document
from loadfactor.interfaces.requests import ImportRequest, find_store, read_moment, read_zone

if TYPE_CHECKING:
    from loadfactor.store.importing import Progress

FLAGS = {
    "last": "--last",
    "start": "--from",
    "end": "--to",
    "match": "--match",
    "bearer_token_file": "--bearer-token-file",
}
"""Options of what is fetched over the network."""
DEFAULT_LAST = "1d"
STANDARD_INPUT = "-"
PROMETHEUS = "prometheus"
"""The source that is fetched over the network."""
TRAINING = "training-log"
"""The source that is of one job."""
OF_SOURCES = {
    "job": "--job",
    "timezone": "--timezone",
    "step": "--step",
    "node": "--node",
    "pool": "--pool",
    "currency": "--currency",
    "at": "--at",
    "begun": "--start",
    "gpus": "--gpus",
    "region": "--region",
    "instance_type": "--instance-type",
}
"""Options that sources of files use, each those that its `uses` names."""
BILLS = ("focus", "aws-cur", "azure-cost", "gcp-billing")
STREAMED = "cloudwatch"
"""Sources that are read from a bucket, too; the last of bills from BigQuery."""


def list_sources() -> str:
    """Every source, and what it reads."""
    from loadfactor.sources import SOURCES

    return "\n\n".join(f"{source.name}: {source.reads}" for source in SOURCES)


def build_page(request: ImportRequest) -> Document:
    """Import, and the receipt of it."""
    from loadfactor.books.books import Books
    from loadfactor.interfaces.pages.books import build_receipt
    from loadfactor.interfaces.progress import ProgressBar
    from loadfactor.metrics.query.calendar import milliseconds
    from loadfactor.settings.config import settings
    from loadfactor.sources.base import ReadOptions

    if request.source == PROMETHEUS and any("://" in path for path in request.paths):
        return build_history(request)
    check_options(request)
    zone = read_zone(request.timezone)
    taken, begun = read_moment(request.at, zone), read_moment(request.begun, zone)
    options = ReadOptions(
        timezone=read_zone(request.timezone) if request.timezone or settings().timezone != "UTC" else None,
        step_s=request.step,
        node=request.node,
        pool=request.pool,
        at_ms=milliseconds(taken) if taken else None,
        held_by=request.job,
        price_per_gpu_hour=request.price_per_gpu_hour,
        currency=request.currency,
        begun_ms=milliseconds(begun) if begun else None,
        gpus=request.gpus,
        region=request.region,
        instance_type=request.instance_type,
    )
    books = Books(find_store(request.store), settings().idle_below)
    with ProgressBar() as bar, TemporaryDirectory(prefix="loadfactor-") as folder:
        paths = [find_input(path, Path(folder), request.source, bar) for path in request.paths]
        receipt = books.add(request.source, paths, options, bar)
    return build_receipt(receipt, books)


def check_options(request: ImportRequest) -> None:
    """Refuse an option that the source does not use, so that none is without effect, and a training log without a job."""
    from loadfactor.sources import find_source

    given = next((flag for name, flag in FLAGS.items() if getattr(request, name) is not None), None)
    if given:
        raise InputError(f"{given} is for `loadfactor import {PROMETHEUS} URL` alone; leave it out")
    if request.source == TRAINING and request.job is None:
        raise InputError(f"name the job: `loadfactor import {TRAINING} {request.paths[0]} --job NAME`")
    uses = find_source(request.source).uses
    has_moment = request.at is not None or request.begun is not None  # which may lack its zone
    for name, flag in OF_SOURCES.items():
        if getattr(request, name) is not None and name not in uses and not (name == "timezone" and has_moment):
            used = ", ".join(OF_SOURCES[of] for of in OF_SOURCES if of in uses) or "none of them"
            raise InputError(f"{request.source} does not use {flag} (it uses {used}); leave it out")


def find_input(path: str, folder: Path, source: str, progress: "Progress") -> Path:
    """The path that is meant: standard input and what lies in a bucket are put into `folder` first."""
    if path == STANDARD_INPUT:
        return save_standard_input(folder)
    if path.startswith("bigquery://"):
        if source != BILLS[-1]:
            raise InputError(f"bigquery:// is for {BILLS[-1]} alone; export the table and name its files")
        from loadfactor.collect.cloud_bills import fetch_table

        return fetch_table(path, folder, progress)
    if not path.startswith("s3://"):
        return read_path(path)
    if source == STREAMED:
        from loadfactor.collect.cloud_bills import choose_all, fetch_files

        return fetch_files(path, folder, progress, choose_all)
    if source not in BILLS:
        of = ", ".join((*BILLS, STREAMED))
        raise InputError(
            f"s3:// is for bills and metric streams ({of}); copy the files first: `aws s3 sync {path} DIR`"
        )
    from loadfactor.collect.cloud_bills import fetch_bills

    return fetch_bills(path, folder, progress)


def save_standard_input(folder: Path) -> Path:
    """Standard input as a file: sources may read one twice."""
    path = folder / "standard-input"
    with path.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    return path


def build_history(request: ImportRequest) -> Document:
    """Query a server for the past, a day at a time: days that are over are queried once."""
    from loadfactor.books.books import Books
    from loadfactor.collect.history import import_history
    from loadfactor.collect.prometheus_server import PrometheusServer
    from loadfactor.interfaces.pages.books import build_receipt
    from loadfactor.interfaces.progress import ProgressBar
    from loadfactor.metrics.query.calendar import milliseconds
    from loadfactor.settings.config import settings
    from loadfactor.settings.sources import name_server

    if len(request.paths) != 1 or not request.paths[0].startswith(("http://", "https://")):
        raise InputError("name one server by its URL: `loadfactor import prometheus http://HOST:9090 --last 30d`")
    unused = next((flag for name, flag in OF_SOURCES.items() if getattr(request, name) is not None), None)
    if unused and unused != OF_SOURCES["timezone"]:
        raise InputError(f"{unused} does nothing where a server is queried; leave it out")
    url = request.paths[0]
    server = PrometheusServer(name_server(url), url, request.bearer_token_file)
    zone = read_zone(request.timezone)
    start, end, now = read_moment(request.start, zone), read_moment(request.end, zone), datetime.now(UTC)
    if start is not None and request.last is not None:
        raise InputError("--last and --from both say where to begin; give one of them")
    end = min(end or now, now)
    start = start or end - timedelta(seconds=parse_duration_s(request.last or DEFAULT_LAST))
    if start >= end:
        raise InputError(
            f"nothing lies between {start:%Y-%m-%d %H:%M} and {end:%Y-%m-%d %H:%M}; give an earlier --from"
        )
    books = Books(find_store(request.store), settings().idle_below)
    with ProgressBar() as bar:
        receipt = import_history(
            books.add_rows, server, request.match or "", (milliseconds(start), milliseconds(end)), bar
        )
    return build_receipt(receipt, books)
