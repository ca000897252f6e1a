"""`loadfactor metrics`: every metric, its unit and meaning."""

from dataclasses import dataclass

import typer

from loadfactor.base.request import Request
from loadfactor.interfaces.cli.commands import add_command
from loadfactor.interfaces.document import Document

ABOUT = "List every metric with its unit and meaning."


@dataclass(frozen=True, kw_only=True)
class MetricsRequest(Request):
    """Takes nothing."""


def add_to(app: typer.Typer) -> None:
    """Add `metrics`."""
    add_command(app, "metrics", MetricsRequest, build_page, ABOUT)


def build_page(_request: MetricsRequest) -> Document:
    """The list of metrics."""
    from loadfactor.interfaces.pages.metric_list import build_document

    return build_document()
