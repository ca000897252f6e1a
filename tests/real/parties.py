"""The parties of a test: exporters, what scrapes them and `loadfactor up`, ended and started again in the middle."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tests.live.fake_dcgm_exporter import FakeDcgmExporter, FleetTruth
from tests.live.up_process import UpProcess, free_port
from tests.real.components import JOB, NODES, Component, make_node_exporter
from tests.real.fleet_books import Scrape, list_scrapes

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
