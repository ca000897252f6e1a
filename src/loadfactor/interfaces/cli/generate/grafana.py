"""`loadfactor generate grafana`: dashboards over the numbers that `loadfactor up` shows Prometheus."""

from dataclasses import dataclass
from pathlib import Path

import typer

from loadfactor.base.request import Request, option
from loadfactor.interfaces.cli.books_request import STORE_HELP
from loadfactor.interfaces.cli.commands import add_command
from loadfactor.interfaces.cli.generate.books_currency import find_currency
from loadfactor.interfaces.document import Document

ABOUT = (
    "Write dashboards for Grafana, and the files that have it load them.\n\n"
    "They read a Prometheus that scrapes /metrics of `loadfactor up`: cluster, team, job, money and telemetry quality."
)


@dataclass(frozen=True, kw_only=True)
class GrafanaRequest(Request):
    """Where to write, and what the dashboards point to."""

    output: Path = option("Folder to write into; files of these names are replaced.")
    prometheus: str = option("Address under which Grafana reaches Prometheus.", "http://localhost:9090")
    runbooks: str | None = option("Address of these docs where you host them; panels then link to runbooks.", None)
    currency: str | None = option("Currency of the books: EUR. [default: that of the store]", None)
    store: Path | None = option(STORE_HELP, None)


def add_to(app: typer.Typer) -> None:
    """Add `grafana`."""
    add_command(app, "grafana", GrafanaRequest, build_page, ABOUT)


def build_page(request: GrafanaRequest) -> Document:
    """Write the files; which there are, and what to do with them."""
    from loadfactor.interfaces.pages.generated_dashboards import write_dashboards

    currency = find_currency(request.currency, request.store)
    return write_dashboards(request.output, request.prometheus, request.runbooks, currency)
