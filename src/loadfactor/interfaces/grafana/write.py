"""The files of `loadfactor generate grafana`: dashboards, and beside them what has Grafana load them."""

from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import Final
from urllib.parse import urlsplit

import yaml

from loadfactor.base.errors import InputError, say_why
from loadfactor.interfaces.document import DataTable, Document, Section, Suggestion, TableColumn
from loadfactor.interfaces.grafana.dashboards import build_cluster, build_job, build_money, build_team, build_telemetry
from loadfactor.interfaces.grafana.panels import Gauges, GrafanaPage
from loadfactor.interfaces.render.present import replacing
from loadfactor.interfaces.requests import GrafanaRequest, find_currency
from loadfactor.settings.config import settings

DASHBOARDS: Final[tuple[Callable[[Gauges], GrafanaPage], ...]] = (
    build_cluster,
    build_team,
    build_job,
    build_money,
    build_telemetry,
)


DASHBOARDS_FOLDER: Final = "dashboards"
ON_GRAFANA: Final = "/var/lib/grafana/dashboards/loadfactor"
"""Where Grafana looks for the dashboards, by the file beside them."""


def build_page(request: GrafanaRequest) -> Document:
    """Write the dashboards and the files that have Grafana load them. Raises InputError for what is no address or no folder."""
    folder, prometheus = request.output, request.prometheus
    runbooks = request.runbooks or settings().alerts.runbooks or None
    currency = find_currency(request.currency, request.store)
    for name, address in (("--prometheus", prometheus), ("--runbooks", runbooks)):
        if address is not None:
            _check_address(name, address)
    write_files(folder, list_files(currency, prometheus, runbooks or ""))
    pages = [build(Gauges(currency)) for build in DASHBOARDS]
    rows = [(page.title, f"{page.uid}.json", sum(len(row.panels) for row in page.rows)) for page in pages]
    there, provisioning = quote(str(folder / DASHBOARDS_FOLDER)), quote(str(folder / "provisioning"))
    steps = (
        Suggestion(
            f"cp -r {provisioning}/. /etc/grafana/provisioning/", "where Grafana looks for them, and its Prometheus"
        ),
        Suggestion(f"mkdir -p {ON_GRAFANA} && cp {there}/* {ON_GRAFANA}/", "the dashboards themselves"),
    )
    lead = "Prometheus has to scrape /metrics of the server (`up`). Then, on the machine of Grafana, or import the files by hand:"
    return Document(
        headline=f"Wrote {len(pages)} dashboards into {folder}; money is in {currency}.",
        sections=(
            Section(tables=(DataTable(DASHBOARD_COLUMNS, rows),)),
            Section(lead=lead, suggestions=steps),
        ),
        data={
            "folder": str(folder),
            "currency": currency,
            "dashboards": [
                {"title": title, "file": f"{DASHBOARDS_FOLDER}/{file}", "panels": n} for title, file, n in rows
            ],
        },
    )


def list_files(currency: str, prometheus: str, runbooks: str) -> dict[str, str]:
    """Every file by its path in the folder. `prometheus`: the address under which Grafana reaches it."""
    from loadfactor.interfaces.grafana.build import write_dashboard  # a moment to import

    pages = [build(Gauges(currency)) for build in DASHBOARDS]
    return {
        **{f"{DASHBOARDS_FOLDER}/{page.uid}.json": write_dashboard(page, runbooks) for page in pages},
        "provisioning/datasources/loadfactor.yaml": _write_yaml(
            "The Prometheus that scrapes `loadfactor up`.",
            {
                "datasources": [
                    {
                        "name": "Prometheus",
                        "type": "prometheus",
                        "access": "proxy",
                        "url": prometheus,
                        "isDefault": True,
                    }
                ]
            },
        ),
        "provisioning/dashboards/loadfactor.yaml": _write_yaml(
            f"Has Grafana load the dashboards; put the folder {DASHBOARDS_FOLDER} where `path` says.",
            {
                "providers": [
                    {
                        "name": "loadfactor",
                        "folder": "loadfactor",
                        "type": "file",
                        "disableDeletion": False,
                        "allowUiUpdates": False,
                        "options": {"path": ON_GRAFANA},
                    }
                ]
            },
        ),
    }


def write_files(folder: Path, files: dict[str, str]) -> None:
    """Write them into a folder, which is made; files of these names are replaced, others stay. Raises InputError."""
    for name, text in files.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"--output {folder}: cannot be written ({say_why(error)})") from error
        with replacing(path) as beside:
            beside.write_text(text, encoding="utf-8")


def _write_yaml(about: str, content: dict[str, object]) -> str:
    return f"# {about}\n{yaml.safe_dump({'apiVersion': 1, **content}, sort_keys=False)}"


DASHBOARD_COLUMNS = (
    TableColumn("dashboard"),
    TableColumn(f"file in {DASHBOARDS_FOLDER}"),
    TableColumn("panels", "number"),
)


def _check_address(option: str, address: str) -> None:
    """Raises InputError for what is no address of a web server."""
    try:
        parts = urlsplit(address)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and address.isprintable()
    except ValueError:
        is_address = False
    if not is_address or " " in address:
        raise InputError(f"{option} {address!r} is no address; write it like http://prometheus:9090")
