"""A dcgm-exporter without GPUs, whose numbers follow a known truth: what was served at an instant can be computed afterwards.

    with FakeDcgmExporter(FleetTruth(gpus=64, began_s=time.time())) as exporter:
        …  # a Prometheus scrapes exporter.address
        exporter.truth.energy_j(gpu, 0, instant), exporter.answers

Run by hand: `python -m tests.live.fake_dcgm_exporter --gpus 64` prints its address and serves until it is interrupted.
"""

import argparse
import gzip
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.live.local_server import LocalServer

PATTERN = (0, 97, 100, 35, 88, 0, 62, 100, 5, 71, 93)  # percent busy, one tick after the other
IDLE_W, PER_PERCENT_W = 70, 6
MEMORY_MIB = 81_559
XID = 31  # a fault of the memory's pages


@dataclass(frozen=True)
class FleetTruth:
    """State of every GPU at every instant (seconds since 1970). Load changes every tick, who holds it every stay."""

    gpus: int = 64
    began_s: float = 1_772_409_600.0
    tick_s: float = 5.0
    stay_s: float = 60.0
    gpus_per_node: int = 8
    xid_after_s: float = 90.0  # GPUs 3, 19, 35 … have an error so long after the beginning

    def uuid(self, gpu: int) -> str:
        """The GPU's id."""
        return f"GPU-{gpu:08x}-5eed-4f0e-8e11-{gpu * 2_654_435_761 % 16**12:012x}"

    def node(self, gpu: int) -> str:
        """The node it is in."""
        return f"node-{gpu // self.gpus_per_node:03d}"

    def percent(self, gpu: int, at_s: float) -> int:
        """How busy it is."""
        return PATTERN[(gpu + self._tick(at_s)) % len(PATTERN)]

    def power_w(self, gpu: int, at_s: float) -> int:
        """Power that it draws."""
        return IDLE_W + PER_PERCENT_W * self.percent(gpu, at_s)

    def memory_mib(self, gpu: int, at_s: float) -> int:
        """The memory used."""
        return MEMORY_MIB * self.percent(gpu, at_s) // 125

    def energy_j(self, gpu: int, from_s: float, to_s: float) -> float:
        """Energy between two instants: the integral of its power, exactly."""
        return self._energy_since_began(gpu, to_s) - self._energy_since_began(gpu, from_s)

    def energy_mj(self, gpu: int, at_s: float) -> int:
        """Reading of its counter, in millijoule: 0 at the beginning."""
        return round(1000 * self._energy_since_began(gpu, at_s))

    def holder(self, gpu: int, at_s: float) -> tuple[str, str] | None:
        """Namespace and pod that hold it, None where it is free. Four neighbours hold together."""
        stay = self._stay(at_s)
        group = gpu // 4
        if (group + stay) % 5 == 4:
            return None
        return f"team-{(group + stay) % 3}", f"train-{group}-{stay}"

    def stays(self, gpu: int, from_s: float, to_s: float) -> Iterator[tuple[float, float, tuple[str, str] | None]]:
        """From when to when who held it, cut at both ends."""
        for stay in range(self._stay(from_s), self._stay(to_s) + 1):
            begin = self.began_s + stay * self.stay_s
            cut = max(begin, from_s), min(begin + self.stay_s, to_s)
            if cut[0] < cut[1]:
                yield *cut, self.holder(gpu, begin + self.stay_s / 2)

    def xid(self, gpu: int, at_s: float) -> int:
        """The last error's code, 0 where there was none."""
        return XID if gpu % 16 == 3 and at_s >= self.began_s + self.xid_after_s else 0

    def _tick(self, at_s: float) -> int:
        return int((at_s - self.began_s) // self.tick_s)

    def _stay(self, at_s: float) -> int:
        return int((at_s - self.began_s) // self.stay_s)

    def _energy_since_began(self, gpu: int, at_s: float) -> float:
        tick = self._tick(at_s)
        rounds, rest = divmod(tick, len(PATTERN))
        percents = rounds * sum(PATTERN) + sum(PATTERN[(gpu + k) % len(PATTERN)] for k in range(rest))
        passed = tick * IDLE_W + percents * PER_PERCENT_W
        begun_s = at_s - self.began_s - tick * self.tick_s
        return passed * self.tick_s + begun_s * self.power_w(gpu, at_s)


Measure = Callable[[FleetTruth, int, float], float]
# the engine never reads 0, which beside power drawn since the last scrape would look like a profiler that failed
METRICS: tuple[tuple[str, str, str, Measure], ...] = (
    ("DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock frequency (in MHz).", lambda *_: 1980),
    ("DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C).", lambda t, g, s: 35 + t.percent(g, s) // 4),
    ("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W).", FleetTruth.power_w),
    (
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        "counter",
        "Total energy consumption since boot (in mJ).",
        FleetTruth.energy_mj,
    ),
    ("DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %).", FleetTruth.percent),
    ("DCGM_FI_DEV_XID_ERRORS", "gauge", "Value of the last XID error encountered.", FleetTruth.xid),
    (
        "DCGM_FI_DEV_FB_FREE",
        "gauge",
        "Framebuffer memory free (in MiB).",
        lambda t, g, s: MEMORY_MIB - t.memory_mib(g, s),
    ),
    ("DCGM_FI_DEV_FB_USED", "gauge", "Framebuffer memory used (in MiB).", FleetTruth.memory_mib),
    (
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        "gauge",
        "Ratio of time the graphics engine is active.",
        lambda t, g, s: max(t.percent(g, s), 1) / 100,
    ),
    (
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        "gauge",
        "Ratio of cycles the tensor (HMMA) pipe is active.",
        lambda t, g, s: t.percent(g, s) / 200,
    ),
    (
        "DCGM_FI_PROF_DRAM_ACTIVE",
        "gauge",
        "Ratio of cycles the device memory interface is active.",
        lambda t, g, s: t.percent(g, s) / 400,
    ),
)


def expose(truth: FleetTruth, at_s: float, timed: bool = False) -> str:
    """The page of metrics at an instant, with its milliseconds behind each value where `timed`."""
    end = f" {round(at_s * 1000)}\n" if timed else "\n"
    labels = [_label(truth, gpu, at_s) for gpu in range(truth.gpus)]
    lines = []
    for name, kind, text, measure in METRICS:
        lines.append(f"# HELP {name} {text}\n# TYPE {name} {kind}\n")
        lines += [f"{name}{{{labels[gpu]}}} {measure(truth, gpu, at_s)}{end}" for gpu in range(truth.gpus)]
    return "".join(lines)


def _label(truth: FleetTruth, gpu: int, at_s: float) -> str:
    index = gpu % truth.gpus_per_node
    holder = truth.holder(gpu, at_s)
    labels = {
        "gpu": str(index),
        "UUID": truth.uuid(gpu),
        "pci_bus_id": f"00000000:{index + 1:02X}:00.0",
        "device": f"nvidia{index}",
        "modelName": "NVIDIA H100 80GB HBM3",
        "Hostname": truth.node(gpu),
    }
    if holder:
        labels |= {"container": "main", "namespace": holder[0], "pod": holder[1]}
    return ",".join(f'{name}="{value}"' for name, value in labels.items())


@dataclass
class FakeDcgmExporter(LocalServer):
    """Serves /metrics on loopback. `answers` keeps the instant of every page; a value belongs to its page's instant; `asked` the
    headers of every request.

    Set `status` or `delay_s` while it runs to have it fail or be slow.
    """

    truth: FleetTruth = field(default_factory=FleetTruth)
    timed: bool = False  # dcgm-exporter gives no times; with them samples are as old as the truth says
    port: int = 0  # 0: any that is free
    clock: Callable[[], float] = time.time
    status: int = 200
    delay_s: float = 0.0
    ahead_s: float = 0.0
    packs: bool = True  # gzip, as dcgm-exporter does
    answers: list[float] = field(default_factory=list)
    asked: list[dict[str, str]] = field(default_factory=list)

    def respond(self, path: str, _body: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        """The page of this instant, packed where the request allows it."""
        self.asked.append(headers)
        status = self.status if path == "/metrics" else 404
        page = b""
        if status == 200:
            at_s = round(self.clock(), 3)
            page = expose(self.truth, at_s, self.timed).encode()
            self.answers.append(at_s)
        said = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        if self.packs and "gzip" in headers.get("accept-encoding", ""):
            return status, {**said, "Content-Encoding": "gzip"}, gzip.compress(page, 1)
        return status, said, page


def main() -> None:
    """Serves until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=64)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--began", type=float, default=None, help="seconds since 1970; now where left out")
    parser.add_argument("--timed", action="store_true")
    given = parser.parse_args()
    truth = FleetTruth(gpus=given.gpus, began_s=time.time() if given.began is None else given.began)
    with FakeDcgmExporter(truth, given.timed, given.port) as exporter:
        print(exporter.address, f"began {truth.began_s}", flush=True)
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
