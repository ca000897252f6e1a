"""Prometheus, VictoriaMetrics and vmagent send and are asked, every party is restarted in the middle, and the books are true."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pytest
from tests.live.fake_dcgm_exporter import FakeDcgmExporter, FleetTruth
from tests.live.up_process import UpProcess, free_port
from tests.real.components import (
    JOB,
    NODES,
    Component,
    make_node_exporter,
    make_prometheus,
    make_victoria_metrics,
    make_vmagent,
)
from tests.real.fleet_books import Scrape, check_fleet, check_nodes, list_scrapes

GPUS = 64


@dataclass
class Parties:
    """A fleet that is scraped, and the books that are kept of it. `servers` scrape, or keep what was scraped."""

    up: UpProcess
    exporter: FakeDcgmExporter
    targets: dict[str, str]

    def restart(self, server: Component, how: str) -> None:
        """Collect, with every party away for a while; `how` the server ends: stop or kill. In the end nobody is scraped."""
        with self.exporter:
            time.sleep(9)
            self.up.kill()
            time.sleep(1.5)
            self.up.start()
        time.sleep(2.2)
        with self.exporter:
            time.sleep(3)
            assert self.up.stop() == 0
            time.sleep(2)
            self.up.start()
            server.wait_until_sent()
            server.stop() if how == "stop" else server.kill()
            server.start()
            time.sleep(8)
        time.sleep(1)
        server.wait_until_sent()

    def list_scrapes(self, server: Component) -> list[Scrape]:
        """What a server keeps of the fleet."""
        return list_scrapes(server, self.exporter)

    def wait_until_pulled(self, name: str, through_ms: int) -> None:
        """Until everything through an instant was asked for."""
        end = time.monotonic() + 240
        while self._read_through_ms(name) < through_ms:
            assert time.monotonic() < end, self.up.ask("/health")
            time.sleep(0.3)

    def _read_through_ms(self, name: str) -> float:
        sources = {one["name"]: one["last_sample"] for one in self.up.ask("/health")["sources"]}
        last = sources[f"prometheus {name}"]
        return datetime.fromisoformat(last).timestamp() * 1000 if last else 0.0

    def finish(self) -> None:
        """Have the books complete, and end."""
        self.up.wait_until_booked()
        assert self.up.stop() == 0


@contextmanager
def start_parties(folder: Path, port: int | None = None, config: Path | None = None) -> Iterator[Parties]:
    """`up` and a node-exporter run; the fleet's time begins, its exporter serves when `restart` says so."""
    up = UpProcess(folder / "books", port, config)
    exporter = FakeDcgmExporter(port=free_port())
    with make_node_exporter(folder / "node") as node, up:
        exporter.truth = FleetTruth(GPUS, time.time() - 3, tick_s=3.0, stay_s=11.0, xid_after_s=14.0)
        yield Parties(up, exporter, {JOB: exporter.address, NODES: f"127.0.0.1:{node.port}"})


def write_config(folder: Path, **urls: str) -> Path:
    """A configuration in which these servers are asked, often."""
    path = folder / "loadfactor.toml"
    lines = [f'[[prometheus]]\nname = "{name}"\nurl = "{url}"\nevery = "2s"\n' for name, url in urls.items()]
    path.write_text("".join(lines))
    return path


def import_history(server: Component, store: Path) -> str:
    """What `loadfactor import prometheus` says."""
    command = [
        sys.executable,
        "-c",
        "from loadfactor.interfaces.cli import main; main()",
        "import",
        "prometheus",
        server.url,
    ]
    done = subprocess.run(
        [*command, "--last", "15min", "--store", str(store)],
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
        cwd=store.parent,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_prometheus_sends(tmp_path: Path) -> None:
    """What Prometheus sent is in the books once, as the exporters said it; importing it as well changes nothing."""
    with start_parties(tmp_path) as parties:
        with make_prometheus(tmp_path / "prometheus", parties.targets, parties.up.url) as prometheus:
            parties.restart(prometheus, "stop")
            scrapes = parties.list_scrapes(prometheus)
            for store in (parties.up.store, parties.up.store, tmp_path / "imported"):
                print(import_history(prometheus, store))
        parties.finish()
    for store in (parties.up.store, tmp_path / "imported"):
        check_fleet(store, parties.exporter.truth, scrapes, is_sent=store == parties.up.store)
        check_nodes(store, scrapes)


def test_vmagent_sends(tmp_path: Path) -> None:
    """What vmagent sent is in the books once, beside the VictoriaMetrics that it sends to as well."""
    with start_parties(tmp_path) as parties, make_victoria_metrics(tmp_path / "victoria") as victoria:
        with make_vmagent(tmp_path / "vmagent", parties.targets, (parties.up.url, victoria.url)) as vmagent:
            parties.restart(vmagent, "stop")
            vmagent.stop()
        scrapes = parties.list_scrapes(victoria)
        for store in (parties.up.store, parties.up.store, tmp_path / "imported"):
            print(import_history(victoria, store))
        parties.finish()
    for store in (parties.up.store, tmp_path / "imported"):
        check_fleet(store, parties.exporter.truth, scrapes, is_sent=store == parties.up.store)
        check_nodes(store, scrapes)


@pytest.mark.parametrize("make_server", [make_prometheus, make_victoria_metrics])
def test_pull(tmp_path: Path, make_server: Callable[..., Component]) -> None:
    """What a server keeps is in the books once, as the exporters said it."""
    port = free_port()
    with start_parties(tmp_path, config=write_config(tmp_path, server=f"http://127.0.0.1:{port}")) as parties:
        with make_server(tmp_path / "server", parties.targets, port=port) as server:
            parties.restart(server, "kill")
            scrapes = parties.list_scrapes(server)
            parties.wait_until_pulled("server", scrapes[-1].at_ms)
        parties.finish()
    check_fleet(parties.up.store, parties.exporter.truth, scrapes)
    check_nodes(parties.up.store, scrapes)


def test_push_and_pull_at_once(tmp_path: Path) -> None:
    """A Prometheus that sends and is asked as well is in the books once."""
    port = free_port()
    with start_parties(tmp_path, config=write_config(tmp_path, server=f"http://127.0.0.1:{port}")) as parties:
        with make_prometheus(tmp_path / "server", parties.targets, parties.up.url, port) as server:
            parties.restart(server, "kill")
            scrapes = parties.list_scrapes(server)
            parties.wait_until_pulled("server", scrapes[-1].at_ms)
        parties.finish()
    check_fleet(parties.up.store, parties.exporter.truth, scrapes, is_sent=True)
    check_nodes(parties.up.store, scrapes)
