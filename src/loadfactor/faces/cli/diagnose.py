"""`loadfactor diagnose`: what traces of profilers say of a GPU's time, and why it was not fuller."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from loadfactor.errors import InputError
from loadfactor.faces.cli.commands import add_command
from loadfactor.faces.document import Document
from loadfactor.request import Request, option

if TYPE_CHECKING:
    from loadfactor.faces.render.page import Page

ABOUT = (
    "Say from traces of profilers why GPUs were not fuller.\n\n"
    "Kineto or Chrome JSON of torch.profiler, XPlane of TensorFlow and JAX, exports of Nsight Systems (SQLite,"
    " Parquet, Arrow), gzip"
    " too; several ranks of a job together. Each device's time is divided exactly, the ranks are compared, causes are"
    " ranked with their"
    " evidence; what a trace cannot tell is said. The files are only read."
)


@dataclass(frozen=True, kw_only=True)
class DiagnoseRequest(Request):
    """What is to be diagnosed."""

    trace: tuple[Path, ...] = option(
        "Traces: files, folders of them, or a folder that `nsys export` wrote.", (), is_argument=True
    )


def add_to(app: typer.Typer) -> None:
    """Add `diagnose`."""
    add_command(app, "diagnose", DiagnoseRequest, build_page, ABOUT)


def build_page(request: DiagnoseRequest) -> Document:
    """The page of what was asked for."""
    if not request.trace:
        raise InputError("nothing to diagnose: name the traces, `loadfactor diagnose TRACE…`")
    from loadfactor.faces.pages.traces import build_traces_page

    return build_traces_page(request.trace)


def diagnose(**given: object) -> "Page":
    """The answer of `loadfactor diagnose` as a page.

    Arguments:
        trace: files or folders of traces.
    """
    from loadfactor.faces.render.page import Page
    from loadfactor.request import make_request

    return Page(build_page(make_request(DiagnoseRequest, given)))
