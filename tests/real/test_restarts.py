"""Prometheus, VictoriaMetrics and vmagent send and are asked, every party is restarted in the middle, and the books are true."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.live.fake_dcgm_exporter import XID, FakeDcgmExporter, FleetTruth
from tests.live.scrapes import read_samples
from tests.live.up_process import UpProcess, free_port
from tests.real.components import (
    INTERVAL_S,
    JOB,
    NODES,
    Component,
    make_node_exporter,
    make_prometheus,
    make_victoria_metrics,
    make_vmagent,
)
from tests.waiting import LONGEST_S

from loadfactor.base.units import BYTES_PER_MIB, MS_PER_S, S_PER_HOUR
from loadfactor.books.books import Books
from loadfactor.tables.schema import IDLE_BELOW, REACH_STEPS

STEP_MS = INTERVAL_S * MS_PER_S
REACH_MS = REACH_STEPS * STEP_MS
"""Farther apart than this is a gap."""
JITTER_MS = 50
"""A scrape is stamped when it begins, or when it should have."""
LATE_SHARE = 0.05
SOURCE = f"dcgm:{JOB}"


@dataclass(frozen=True)
class Scrape:
    """One scrape that its server keeps: the instant it says, and the one at which the exporter answered."""

    at_ms: int
    answered_s: float


def list_scrapes(server: Component, exporter: FakeDcgmExporter) -> list[Scrape]:
    """The scrapes that a server keeps, each of an answer of its own: the one with this energy, which grows every millisecond."""
    truth = exporter.truth
    answered_s = {truth.energy_mj(0, at_s): at_s for at_s in exporter.answers}
    kept = server.list_samples(f'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{UUID="{truth.uuid(0)}"}}')
    found = [Scrape(at_ms, answered_s[round(energy_mj)]) for at_ms, energy_mj in sorted(set(kept))]
    assert found
    late_ms = [scrape.answered_s * MS_PER_S - scrape.at_ms for scrape in found]
    assert all(late >= -JITTER_MS for late in late_ms), late_ms
    assert len({scrape.answered_s for scrape in found}) == len(found)
    return found


def check_fleet(store: Path, truth: FleetTruth, scrapes: Sequence[Scrape], is_sent: bool = False) -> None:
    """The books hold these scrapes, each once, and say of them what is true.

    `is_sent`: a sender that backed off may bring half a scrape long after the next one. Then there is no rate of its energy: the
    power of a few rows is the glimpse at their instant, or not known.
    """
    books = Books(store)
    rows = read_samples(store)
    truths = [(gpu, scrape) for gpu in range(truth.gpus) for scrape in scrapes]
    assert set(rows["source"]) == {SOURCE}
    found = list(zip(rows["device_id"], rows["to_utc"].tolist(), strict=True))
    missing = sorted({scrape.at_ms for scrape in scrapes} - set(rows["to_utc"]))
    assert not missing, f"scrapes that are not in the books: {missing} of {[scrape.at_ms for scrape in scrapes]}"
    expected = [(truth.uuid(gpu), scrape.at_ms) for gpu, scrape in truths]
    assert found == expected, f"not in both the books and the server: {sorted({*found} ^ {*expected})[:5]}"
    busy = np.array([truth.percent(gpu, scrape.answered_s) for gpu, scrape in truths]) / 100
    memory = [truth.memory_mib(gpu, scrape.answered_s) * BYTES_PER_MIB for gpu, scrape in truths]
    for name, value in (
        ("busy_share", busy),
        ("engine_active_share", np.maximum(busy, 0.01)),
        ("tensor_active_share", busy / 2),
        ("dram_active_share", busy / 4),
        ("mem_used_bytes", memory),
        ("temperature_c", 35 + 100 * busy // 4),
    ):
        check_column(rows, name, value)
    power_w = np.array([watt for gpu in range(truth.gpus) for watt in list_power_w(truth, gpu, scrapes)])
    if is_sent:
        found_w, seen_w = rows["power_w"].to_numpy(), [truth.power_w(gpu, scrape.answered_s) for gpu, scrape in truths]
        is_rate = np.isclose(found_w, power_w, rtol=1e-6)
        left = ~np.isnan(power_w) & ~is_rate & (np.isnan(found_w) | (found_w == seen_w))
        assert left.mean() <= LATE_SHARE
        power_w[left] = np.nan
    check_column(rows, "power_w", power_w)
    check_activity(books, truth, scrapes)
    check_holders(books, truth, scrapes)
    check_errors(books, truth, scrapes)
    assert books.check().balance.holds


def check_column(rows: Any, name: str, expected: Any) -> None:
    """A column has the values that are expected of each row; NaN expects nothing."""
    found, asked = rows[name].to_numpy(), ~np.isnan(np.asarray(expected, float))
    wrong = np.flatnonzero(asked & ~(np.abs(found - expected) <= 1e-6 * np.abs(expected)))
    shown = [(rows["device_id"][i], rows["to_utc"][i], found[i], np.asarray(expected)[i]) for i in wrong[:5]]
    assert not len(wrong), f"{name}: {len(wrong)} of {len(rows)} are wrong (GPU, instant, found, expected): {shown}"


def check_activity(books: Books, truth: FleetTruth, scrapes: Sequence[Scrape]) -> None:
    """Time is observed where somebody holds the GPU or it works; utilization is the mean over that time."""
    lengths_h = np.array(list_lengths_ms(scrapes)) / MS_PER_S / S_PER_HOUR
    hours = {r.by["device"]: r.value for r in books.show(["observed_gpu_hours"], by=["device"])}
    mean = {r.by["device"]: r.value for r in books.show(["utilization"], by=["device"])}
    for gpu in range(truth.gpus):
        active = np.array([max(truth.percent(gpu, scrape.answered_s), 1) / 100 for scrape in scrapes])
        held = np.array([truth.holder(gpu, scrape.answered_s) is not None for scrape in scrapes])
        counts = held | (active >= IDLE_BELOW)
        assert hours[truth.uuid(gpu)] == pytest.approx(lengths_h[counts].sum(), rel=2e-3), gpu
        assert mean[truth.uuid(gpu)] == pytest.approx(np.average(active[counts], weights=lengths_h[counts]), rel=2e-3)


def list_lengths_ms(scrapes: Sequence[Scrape]) -> list[int]:
    """How much time each scrape speaks of: since the one before, a step where that is too long ago."""
    gaps = [b.at_ms - a.at_ms for a, b in pairwise(scrapes)]
    return [STEP_MS, *(gap if gap <= REACH_MS else STEP_MS for gap in gaps)]


def list_power_w(truth: FleetTruth, gpu: int, scrapes: Sequence[Scrape]) -> list[float]:
    """The mean power since the scrape before, by its energy counter; NaN where there is a gap."""
    found = [float("nan")]
    for a, b in pairwise(scrapes):
        joules = (truth.energy_mj(gpu, b.answered_s) - truth.energy_mj(gpu, a.answered_s)) / 1000
        near = b.at_ms - a.at_ms <= REACH_MS
        found.append(joules * MS_PER_S / (b.at_ms - a.at_ms) if near else float("nan"))
    return found


def check_holders(books: Books, truth: FleetTruth, scrapes: Sequence[Scrape]) -> None:
    """Every pod holds its GPUs from the scrape before the first that names it through the last one."""
    rows = books.table("allocations").execute().sort_values(["device_id", "from_utc"])
    found: list[tuple[str, str, int, int]] = []
    for device, job, from_ms, to_ms in zip(
        *(rows[c] for c in ("device_id", "job_id", "from_utc", "to_utc")), strict=True
    ):
        if found and found[-1][:2] == (device, job) and from_ms <= found[-1][3]:  # late samples have rows of their own
            found[-1] = (*found[-1][:3], max(to_ms, found[-1][3]))
        else:
            found.append((device, job, from_ms, to_ms))
    expected = [
        (truth.uuid(gpu), "/".join(holder), first_ms, last_ms)
        for gpu in range(truth.gpus)
        for first_ms, last_ms, holder in list_held(truth, gpu, scrapes)
    ]
    assert [row[:2] for row in found] == [row[:2] for row in expected]
    assert [row[3] for row in found] == [row[3] for row in expected]
    assert [row[2] for row in found] == pytest.approx([row[2] for row in expected], rel=0, abs=JITTER_MS)


def list_held(truth: FleetTruth, gpu: int, scrapes: Sequence[Scrape]) -> list[tuple[int, int, tuple[str, str]]]:
    """From when to when who holds a GPU: seen before and after a gap, through it."""
    held: list[list[Any]] = []
    lengths_ms = list_lengths_ms(scrapes)
    for scrape, length_ms in zip(scrapes, lengths_ms, strict=True):
        holder, begin_ms = truth.holder(gpu, scrape.answered_s), scrape.at_ms - length_ms
        if held and held[-1][2] == holder:
            held[-1][1] = scrape.at_ms
        else:
            held.append([begin_ms, scrape.at_ms, holder])
    return [(first_ms, last_ms, holder) for first_ms, last_ms, holder in held if holder]


def check_errors(books: Books, truth: FleetTruth, scrapes: Sequence[Scrape]) -> None:
    """The error of a GPU is an event at the first scrape that tells of it."""
    rows = books.table("device_events").execute()
    expected = []
    for gpu in range(truth.gpus):
        first = next((scrape for scrape in scrapes if truth.xid(gpu, scrape.answered_s)), None)
        if first:
            expected.append((truth.uuid(gpu), first.at_ms, "xid", str(XID)))
    assert sorted(zip(rows["device_id"], rows["at_utc"], rows["kind"], rows["detail"], strict=True)) == sorted(expected)


def check_nodes(store: Path, scrapes: Sequence[Scrape]) -> None:
    """The node-exporter's node has a sample for nearly every scrape of the fleet, with numbers that can be this machine's."""
    rows = Books(store).table("node_samples").execute()
    assert set(rows["node"]) == {"127.0.0.1"}
    assert set(rows["source"]) == {f"node-exporter:{NODES}"}, set(rows["source"])
    assert not rows.duplicated(["node", "to_utc"]).any()
    assert len(rows) >= len(scrapes) / 2
    rows = rows[rows["to_utc"] <= scrapes[-1].at_ms]  # a server that is stopped may send part of its last scrape
    total_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert rows["mem_total_bytes"].to_numpy() == pytest.approx(total_bytes, rel=0.01)
    assert rows["mem_used_bytes"].between(0, total_bytes).all()
    assert rows["cpu_busy_share"].notna().sum() >= len(rows) / 2
    assert rows["cpu_busy_share"].dropna().between(0, 1).all()
    assert rows["net_rx_bytes_per_s"].dropna().ge(0).all()


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
        self.up.wait_until(lambda: self._read_through_ms(name) >= through_ms)

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
        timeout=LONGEST_S,
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
