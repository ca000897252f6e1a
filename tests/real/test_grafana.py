"""Every panel of the dashboards shows data of the unit it claims, from a Prometheus that scrapes a server of the demo."""

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from math import isfinite
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from tests.interfaces.server.conftest import Remembering, write_csv
from tests.live.up_process import free_port
from tests.real.components import INTERVAL_S, Component, make_prometheus
from tests.real.test_prometheus_rules import add_blocks, serve_history
from tests.waiting import LONGEST_S, wait_until

from loadfactor.books.books import Books
from loadfactor.interfaces.gauges.exposition import SPLITS
from loadfactor.interfaces.gauges.history import DATED_SPLITS, list_texts
from loadfactor.interfaces.grafana.panels import UNITS
from loadfactor.interfaces.grafana.write import list_files
from loadfactor.interfaces.server.app import make_app
from loadfactor.interfaces.server.guard import Guard
from loadfactor.interfaces.server.scrape import GaugeWindow
from loadfactor.settings.config import settings
from loadfactor.simulator import DEMO, simulate, write_tables
from loadfactor.store.tokens import TokenFile
from loadfactor.tables.schema import DIMENSIONS

EVERY_S, SCRAPES = 5, 3


@contextmanager
def serve_books(books: Books, at: datetime) -> Iterator[str]:
    """The address, host and port, of a server for which it is this time."""
    port, began = free_port(), time.time()
    gauges = GaugeWindow(wait_s=0.2)  # a scrape may take a second
    guard = Guard(TokenFile(books.store.folder))
    app = make_app(books, Remembering(), guard, window=gauges, clock_s=lambda: at.timestamp() + time.time() - began)
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_config=None, access_log=False))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(30)


@contextmanager
def scrape_books(folder: Path, books: Books, at: datetime, until: str) -> Iterator[Component]:
    """A Prometheus that scrapes these books, once it knows the gauge `until` and has scraped a few times more."""
    with serve_books(books, at) as target, _make_patient(folder, target) as prometheus:
        counted = f"count_over_time({until}[1h]) >= {SCRAPES}"
        wait_until(lambda: query(prometheus, counted), lambda: f"{until} is not scraped")
        yield prometheus


def _make_patient(folder: Path, target: str) -> Component:
    """A Prometheus that waits for a scrape as long as a busy machine may take."""
    made = make_prometheus(folder, {"loadfactor": target})
    config = folder / "scrapes.yml"
    config.write_text(config.read_text().replace(f"{INTERVAL_S}s", f"{EVERY_S}s"))
    return made


def query_soon(prometheus: Component, expression: str) -> list[dict[str, Any]]:
    """What an instant query answers, once it does: a scrape may be missed on a busy machine, and then nothing is there."""
    found: list[dict[str, Any]] = []

    def is_there() -> bool:
        nonlocal found
        found = query(prometheus, expression)
        return bool(found)

    wait_until(is_there, lambda: f"{expression} shows nothing")
    return found


def query(prometheus: Component, expression: str) -> list[dict[str, Any]]:
    """What an instant query answers: series with their values. Asserts that Prometheus takes it."""
    answer = httpx.get(f"{prometheus.url}/api/v1/query", params={"query": expression}, timeout=LONGEST_S)
    assert answer.status_code == httpx.codes.OK, f"{expression}: {answer.text}"
    found: list[dict[str, Any]] = answer.json()["data"]["result"]
    return found


def list_labels(prometheus: Component, gauge: str, label: str) -> list[str]:
    """The values of a label, as Grafana's label_values asks for them."""
    answer = httpx.get(f"{prometheus.url}/api/v1/label/{label}/values", params={"match[]": gauge}, timeout=LONGEST_S)
    assert answer.status_code == httpx.codes.OK, f"{gauge}: {answer.text}"
    found: list[str] = answer.json()["data"]
    return found


AT = datetime(2026, 10, 30, 15, 20, tzinfo=UTC)  # a Friday afternoon of the demo
FILES = list_files("USD", "http://prometheus:9090", "")
DASHBOARDS = {name: json.loads(text) for name, text in FILES.items() if name.endswith(".json")}
MEASURED = "loadfactor_whole_job_cost_usd"
"""What is worked out last."""
RANGES = {
    "percentunit": (0, 1.0001), "celsius": (10, 120), "s": (0, 10 * 365 * 86_400), "bool_yes_no": (0, 1), "watt": (0, 2000),
}  # fmt: skip
GAUGES = {split.name(metric, "USD"): (split, metric) for split in SPLITS for metric in split.metrics}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Books:
    """The books of the demo."""
    folder = tmp_path_factory.mktemp("demo")
    write_tables(simulate(DEMO), folder / "tables")
    books = Books(folder / "books")
    books.add("tables", [folder / "tables"])
    return books


@pytest.fixture(scope="module")
def prometheus(demo: Books, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Component]:
    """A Prometheus that scrapes them, with a budget for all and one of a team."""
    folder = tmp_path_factory.mktemp("scraped")
    config = folder / "loadfactor.toml"
    config.write_text('[[budget]]\namount = 400000\n[[budget]]\namount = 90000\nteam = "vision"\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        settings.cache_clear()
        with scrape_books(folder / "server", demo, AT, MEASURED) as server:
            yield server
    settings.cache_clear()


def quote(name: str) -> str:
    """A name as Grafana's format `doublequote` writes it."""
    return '"' + name.replace('"', '\\"') + '"'


def fill_in(expression: str, values: dict[str, str]) -> str:
    return re.sub(r"\$\{([a-z_]+):doublequote\}", lambda found: quote(values[found[1]]), expression)


def choose(prometheus: Component, written: dict[str, Any]) -> dict[str, str]:
    """A value of each variable: the one with most to show of those that Grafana would offer."""
    chosen = {}
    for variable in written["templating"]["list"]:
        if variable["type"] != "query":
            continue
        asked = re.fullmatch(r"label_values\((.*), ([a-z_]+)\)", variable["query"]["query"])
        assert asked
        gauge, label = asked.groups()
        offered = [
            name for name in list_labels(prometheus, gauge, label) if re.fullmatch(variable["regex"][1:-1], name)
        ]
        assert offered
        shown = {
            name: len(query(prometheus, f"last_over_time({{__name__=~'loadfactor.*', {label}={quote(name)}}}[1h])"))
            for name in offered
        }
        chosen[label] = max(offered, key=lambda name: shown[name])
    return chosen


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_panel_shows_data_of_its_unit(name: str, prometheus: Component) -> None:
    """Each expression, with a team, job or node chosen, has series with values that the unit of the panel can have."""
    written = DASHBOARDS[name]
    values = choose(prometheus, written)
    for panel in written["panels"]:
        for target in panel.get("targets", ()):
            expression = fill_in(target["expr"], values)
            found = query_soon(prometheus, expression)
            low, high = RANGES.get(panel["fieldConfig"]["defaults"]["unit"], (0, float("inf")))
            for series in found:
                value = float(series["value"][1])
                assert isfinite(value), expression
                assert low <= value <= (5 if "budget" in expression and "ratio" in expression else high), (
                    f"{expression}: {series}"
                )
            for label in re.findall(r"\{\{([a-z_]+)\}\}", target["legendFormat"]):
                assert all(label in series["metric"] or label == "__name__" for series in found), expression
            if panel["type"] == "barchart":  # a table of labels
                assert {"activity", "device_id"} <= set(found[0]["metric"])


@pytest.mark.parametrize("name", DASHBOARDS)
def test_the_data_is_what_the_books_say(name: str, prometheus: Component, demo: Books) -> None:
    """A gauge that a panel shows has the value and the unit of the reading of its metric."""
    values = choose(prometheus, DASHBOARDS[name])
    compared = 0
    with demo.snapshot() as snapshot:
        for panel in DASHBOARDS[name]["panels"]:
            for target in panel.get("targets", ()):
                found = re.fullmatch(r"(loadfactor_\w+)\{(.*)\}", target["expr"])
                if not found or found[1] not in GAUGES or panel["type"] == "barchart":
                    continue
                split, metric = GAUGES[found[1]]
                start = AT - timedelta(seconds=split.window_s)
                readings = snapshot.show(metric.name, split.by, start, AT)
                said = {tuple(r.by.values()): r for r in readings}
                for series in query_soon(prometheus, fill_in(target["expr"], values)):
                    key = tuple(series["metric"][DIMENSIONS[by]] for by in split.by)
                    if "(others)" in key or "(none)" in key:
                        continue
                    reading = said[key]
                    unit = panel["fieldConfig"]["defaults"]["unit"]
                    assert unit in (UNITS.get(reading.unit), "currencyUSD", "suffix: GPUs")
                    assert (unit == "currencyUSD") == (reading.currency == "USD")
                    assert float(series["value"][1]) == pytest.approx(reading.value, rel=0.05, abs=0.5), target["expr"]
                    compared += 1
    assert compared >= 3


BEFORE = AT.replace(minute=0) - timedelta(days=1)


@pytest.fixture(scope="module")
def filled(demo: Books, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Component]:
    """A Prometheus that scrapes nothing, with blocks that promtool made of `export openmetrics`."""
    folder = tmp_path_factory.mktemp("filled")
    with demo.snapshot() as snapshot, (folder / "loadfactor.om").open("w") as file:
        file.writelines(list_texts(snapshot, BEFORE - timedelta(days=2), BEFORE, "USD", lambda *_: None))
    add_blocks(folder, "openmetrics", "loadfactor.om")
    with serve_history(folder) as server:
        yield server


def test_dashboards_start_filled(filled: Component, demo: Books) -> None:
    """Whatever a panel shows over time is there from before Prometheus was; the fleet's is what `show` says."""
    shown = {
        target["expr"].partition("{")[0]
        for written in DASHBOARDS.values()
        for panel in written["panels"]
        if panel["type"] == "timeseries"
        for target in panel["targets"]
    } & GAUGES.keys()
    dated = {name for name in shown if GAUGES[name][0] in DATED_SPLITS}
    assert len(dated) > 30
    assert shown - dated == set()
    for name in sorted(dated):
        split, metric = GAUGES[name]
        found = query(filled, f"{name} @ {BEFORE.timestamp()}")
        with demo.snapshot() as snapshot:
            readings = snapshot.show(metric.name, split.by, BEFORE - timedelta(seconds=split.window_s), BEFORE)
        known = {tuple(r.by.values()): r.value for r in readings}
        if not split.by:
            (value,) = known.values()
            assert [float(series["value"][1]) for series in found] == ([] if value is None else [pytest.approx(value)])
        else:
            assert bool(found) == any(value is not None for value in known.values()), name


HOSTILE = (
    'a"b',
    "{{ $labels.x }}",
    "x} or vector(1) #",
    '"} or up{job="',
    "${datasource}",
    "<b>bold</b>",
    "a=~'.*'",
    "[[team]]",
)
UNQUOTABLE = ("ends with \\", '\\"} or up{job=\\"', "two\nlines", "tab\tbed")


def test_hostile_names_are_data(tmp_path: Path) -> None:
    """Jobs may be called anything: labels say their names, and a panel with one chosen shows this job alone or is refused."""
    hour = 3_600_000
    end = int(AT.timestamp() * 1000)
    names = (*HOSTILE, *UNQUOTABLE)
    tables = tmp_path / "tables"
    tables.mkdir()
    begin = {"from_utc": end - 2 * hour}
    gpus = [
        {"device_id": f"GPU-{n}", "node": "n", "accelerator": "H100", "pool": "p", **begin} for n in range(len(names))
    ]
    held = [
        {"job_id": name, "team": name, "user": name, "device_id": f"GPU-{n}", "to_utc": end + hour, **begin}
        for n, name in enumerate(names)
    ]
    samples = [
        {"device_id": f"GPU-{n}", "to_utc": at, "sm_active_share": (n + 1) / 100}
        for n in range(len(names)) for at in range(end - 2 * hour + 60_000, end + hour, 60_000)
    ]  # fmt: skip
    for name, rows in (("devices", gpus), ("allocations", held), ("samples", samples)):
        write_csv(tables / f"{name}.csv", rows)
    books = Books(tmp_path / "books")
    books.add("tables", [tables])
    job = DASHBOARDS["dashboards/loadfactor-job.json"]
    (variable,) = [v for v in job["templating"]["list"] if v["type"] == "query"]
    expression = job["panels"][1]["targets"][0]["expr"]
    assert "utilization" in expression
    with scrape_books(tmp_path / "server", books, AT, MEASURED.replace("cost_usd", "paid_gpu_hours")) as prometheus:
        there = list_labels(prometheus, "loadfactor_job_paid_gpu_hours", "job_id")
        assert sorted(there) == sorted(names)
        offered = {name for name in there if re.fullmatch(variable["regex"][1:-1], name)}
        assert offered == set(HOSTILE)
        for number, name in enumerate(HOSTILE):
            (series,) = query_soon(prometheus, fill_in(expression, {"job_id": name}))
            assert series["metric"]["job_id"] == name
            assert float(series["value"][1]) == pytest.approx((number + 1) / 100)
