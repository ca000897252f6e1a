"""Books served over HTTP in this process, at a time of theirs that runs on, and a Prometheus that scrapes them."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from tests.interfaces.server.conftest import Remembering
from tests.live.up_process import free_port
from tests.real.components import INTERVAL_S, Component, make_prometheus

from loadfactor.books.books import Books
from loadfactor.interfaces.server.app import make_app
from loadfactor.interfaces.server.guard import Guard
from loadfactor.interfaces.server.scrape import GaugeWindow
from loadfactor.store.tokens import TokenFile

LONGEST_S = 180.0
EVERY_S = 5


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
        end = time.monotonic() + LONGEST_S
        while not query(prometheus, until):
            assert time.monotonic() < end, f"{until} is not scraped"
            time.sleep(0.5)
        time.sleep(2.5 * EVERY_S)
        yield prometheus


def _make_patient(folder: Path, target: str) -> Component:
    """A Prometheus that waits for a scrape as long as a busy machine may take."""
    made = make_prometheus(folder, {"loadfactor": target})
    config = folder / "scrapes.yml"
    config.write_text(config.read_text().replace(f"{INTERVAL_S}s", f"{EVERY_S}s"))
    return made


def query_soon(prometheus: Component, expression: str) -> list[dict[str, Any]]:
    """What an instant query answers, once it does: a scrape may be missed on a busy machine, and then nothing is there."""
    end = time.monotonic() + 6 * EVERY_S
    while not (found := query(prometheus, expression)) and time.monotonic() < end:
        time.sleep(1)
    return found


def query(prometheus: Component, expression: str) -> list[dict[str, Any]]:
    """What an instant query answers: series with their values. Asserts that Prometheus takes it."""
    answer = httpx.get(f"{prometheus.url}/api/v1/query", params={"query": expression}, timeout=60)
    assert answer.status_code == httpx.codes.OK, f"{expression}: {answer.text}"
    found: list[dict[str, Any]] = answer.json()["data"]["result"]
    return found


def list_labels(prometheus: Component, gauge: str, label: str) -> list[str]:
    """The values of a label, as Grafana's label_values asks for them."""
    answer = httpx.get(f"{prometheus.url}/api/v1/label/{label}/values", params={"match[]": gauge}, timeout=60)
    assert answer.status_code == httpx.codes.OK, f"{gauge}: {answer.text}"
    found: list[str] = answer.json()["data"]
    return found
