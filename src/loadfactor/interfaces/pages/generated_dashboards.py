"""The page of `loadfactor generate grafana`: what was written where, and how Grafana comes to it."""

from pathlib import Path
from shlex import quote
from urllib.parse import urlsplit

from loadfactor.base.errors import InputError
from loadfactor.interfaces.document import DataTable, Document, Section, Suggestion, TableColumn
from loadfactor.interfaces.grafana.dashboards import DASHBOARDS
from loadfactor.interfaces.grafana.gauges import Gauges
from loadfactor.interfaces.grafana.write import DASHBOARDS_FOLDER, ON_GRAFANA, list_files, write_files

COLUMNS = (TableColumn("dashboard"), TableColumn(f"file in {DASHBOARDS_FOLDER}"), TableColumn("panels", "number"))


def write_dashboards(folder: Path, prometheus: str, runbooks: str | None, currency: str) -> Document:
    """Write the files; raises InputError where an address is none, or the folder cannot be written."""
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
            Section(tables=(DataTable(COLUMNS, rows),)),
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


def _check_address(option: str, address: str) -> None:
    """Raises InputError for what is no address of a web server."""
    try:
        parts = urlsplit(address)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and address.isprintable()
    except ValueError:
        is_address = False
    if not is_address or " " in address:
        raise InputError(f"{option} {address!r} is no address; write it like http://prometheus:9090")
