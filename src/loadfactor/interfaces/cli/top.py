"""`loadfactor top`: live in the terminal, by GPU, node, job or team."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import typer

from loadfactor.base.errors import InputError
from loadfactor.base.quantities import parse_duration_s
from loadfactor.base.request import Request, option
from loadfactor.interfaces.cli.books_request import STORE_HELP, StoreRequest
from loadfactor.interfaces.cli.commands import add_command
from loadfactor.interfaces.document import Document

ABOUT = (
    "Show live what GPUs, nodes, jobs and teams do.\n\n"
    "Reads the books of a folder, live rows among them, or a server. With --once, or into a pipe, it prints one page."
)


@dataclass(frozen=True, kw_only=True)
class TopRequest(Request):
    """What to show, and from where."""

    by: Literal["gpu", "node", "job", "team"] = option("What a row is.", "node")
    sort: str | None = option(
        "Order by name, gpus, utilization, sm_activity, memory, power_w, temperature_c or cost_per_hour; -NAME: largest first.",
        None,
    )
    filter: str = option("Only rows whose names have this in them.", "")
    where: tuple[str, ...] = option("Only these: team=vision,job=4711.", ())
    gpu: str | None = option("The last hour of one GPU, by the beginning of its name.", None)
    last: str = option("The window: 1min, 5min, 1h, before the last sample.", "5min")
    limit: int | None = option("Print at most so many rows.", None, at_least=1)
    every: str = option("How often to look again.", "2s")
    once: bool = option("Print one page.", False)
    server: str | None = option("Address of a `loadfactor up` to ask: http://127.0.0.1:9417.", None)
    token_file: Path | None = option("File with the token that server asks for.", None)
    store: Path | None = option(STORE_HELP, None)


def add_to(app: typer.Typer) -> None:
    """Add `top`."""
    add_command(app, "top", TopRequest, build_page, ABOUT)


def build_page(request: TopRequest) -> Document:
    """One page, or the live one until a person quits it."""
    from loadfactor.base.errors import no_such
    from loadfactor.interfaces.top.page import build_history
    from loadfactor.interfaces.top.page import build_page as build
    from loadfactor.interfaces.top.readers import ServerReader, StoreReader
    from loadfactor.interfaces.top.rows import ask_history, ask_top, find_gpu
    from loadfactor.interfaces.top.view import ORDERS, TopView

    order = (request.sort or "name").removeprefix("-")
    if order not in ORDERS:
        raise no_such("order", order, ORDERS)
    every_s = parse_duration_s(request.every)
    parse_duration_s(request.last)
    if request.server is not None and request.store is not None:
        raise InputError("--server and --store both say where to read; give one of them")
    reader = (
        StoreReader(StoreRequest(store=request.store).books)
        if request.server is None
        else ServerReader(request.server, request.token_file)
    )
    grouping = "gpu" if request.gpu is not None else request.by
    view = TopView(grouping, order, (request.sort or "").startswith("-"), request.filter)
    live = not request.once and sys.stdout.isatty() and sys.stdin.isatty()
    if live and request.gpu is None:
        from loadfactor.interfaces.top.live import run_live

        run_live(reader, view, request.last, request.where, every_s)
        raise typer.Exit
    answer = ask_top(reader, grouping, request.last, request.where)
    if request.gpu is None or answer.end is None:
        return build(answer, view, request.limit)
    return build_history(ask_history(reader, find_gpu(answer, request.gpu), answer.end))
