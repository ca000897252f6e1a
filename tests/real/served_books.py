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
from tests.faces.server.conftest import Remembering
from tests.live.up_process import free_port
from tests.real.components import Component, make_prometheus

from loadfactor.books.books import Books
from loadfactor.faces.server.app import make_app
from loadfactor.faces.server.fleet_gauges import GaugeWindow
from loadfactor.faces.server.guard import Guard
from loadfactor.store.tokens import TokenFile

LONGEST_S = 90.0


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
    with serve_books(books, at) as target, make_prometheus(folder, {"loadfactor": target}) as prometheus:
        end = time.monotonic() + LONGEST_S
        while not query(prometheus, until):
            assert time.monotonic() < end, f"{until} is not scraped"
            time.sleep(0.5)
        time.sleep(3)
        yield prometheus


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
