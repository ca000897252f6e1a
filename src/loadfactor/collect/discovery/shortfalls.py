"""Shortfalls of a source: what it does not give, what that costs in answers, and what to enable."""

from dataclasses import dataclass
from functools import cache
from typing import Final

from loadfactor.metrics import METRICS
from loadfactor.metrics.metric import Metric, Quantile
from loadfactor.sources.dcgm.fields import BY_KEY, PREFIX
from loadfactor.sources.prometheus.node_source import NODE_EXPORTER


@dataclass(frozen=True)
class Signal:
    """One signal. Any of `keys` (fields of GPU exporters) gives it; metrics that add up any of `columns` of the ledger need it."""

    name: str
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    also: str = ""  # what else is lost without it

    @property
    def fields(self) -> str:
        """The field of dcgm-exporter that gives it best."""
        return PREFIX + BY_KEY[self.keys[0]].names[0]


MEMORY: Final = ("mem_used_bytes", "mem_used_share", "mem_used_of_total_share")
SM_ACTIVE: Final = Signal("SM active", ("sm_active_share",), ("sm_active_s",))
ENGINE_ACTIVE: Final = Signal("engine active", ("engine_active_share",), ("engine_active_s",))
GPU_UTIL: Final = Signal("GPU_UTIL", ("busy_share",), ("busy_s",))
ENERGY: Final = Signal(
    "energy counter", ("energy_j",), (), "energy_kwh and power_w are taken from samples of the power, less exactly"
)
POWER: Final = Signal("energy and power", ("energy_j", "power_w", "power_now_w"), ("energy_j",))
SIGNALS: Final = (
    SM_ACTIVE,
    ENGINE_ACTIVE,
    GPU_UTIL,
    Signal("tensor active", ("tensor_active_share",), ("tensor_active_s",)),
    Signal("DRAM active", ("dram_active_share",), ("dram_active_s",)),
    Signal("FP32 active", ("fp32_active_share",), ("fp32_active_s",)),
    Signal("SM occupancy", ("sm_occupancy_share",), ("sm_occupancy_s",)),
    Signal("memory in use", MEMORY, ("mem_used_byte_s", "mem_peak_share")),
    POWER,
    Signal("temperature", ("temperature_c",), ("temperature_c_s", "temperature_peak_c")),
    Signal("throttle reasons", ("throttle_mask",), ("throttled_s",)),
    Signal("PCIe traffic", ("pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s"), ("pcie_of_peak_bytes",)),
    Signal("NVLink traffic", ("nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s"), ("nvlink_of_peak_bytes",)),
)
"""In the order in which their loss matters."""
ACTIVITY: Final = (SM_ACTIVE, ENGINE_ACTIVE, GPU_UTIL)
"""Best first: utilization rests on the first of them that is measured."""


@cache
def list_metrics(signal: Signal) -> tuple[str, ...]:
    """The metrics that are unknown without a signal.

    >>> list_metrics(SM_ACTIVE)
    ('sm_activity',)
    """
    return tuple(m.name for m in METRICS if set(signal.columns) & _list_columns(m))


def _list_columns(metric: Metric) -> set[str]:
    if isinstance(metric.kind, Quantile):
        return {metric.kind.of}
    return {column for part in metric.parts for column in part.columns}


LARGEST_CLOCK_ERROR_S: Final = 5.0
LONGEST_STEP_S: Final = 60.0
OPTIONAL: Final = ("FP32 active", "SM occupancy", "engine active")
"""Signals that few exporters give and few questions need: they come last."""


@dataclass(frozen=True)
class Shortfall:
    """Something that is missing: `costs`: what is unknown without it; `do`: what to do. `grade`: missing or note.

    `field`: of a signal, what dcgm-exporter calls it.
    """

    grade: str
    what: str
    costs: str
    do: str
    field: str = ""


@dataclass(frozen=True)
class SourceCheck:
    """Check of one server or group of exporters. `clock_s`: how far its clock is ahead of ours; `step_s`: time between two
    scrapes; `newest_s`: age of the newest sample by the server's clock; `signals`: the fields its exporters give of GPUs.
    `targets`: the exporters of a group, of which so many are `answering`.

    Numbers are None where the server does not give them. The address holds no password.
    """

    name: str
    url: str
    reachable: bool
    error: str | None = None
    exporters: tuple[str, ...] = ()
    gpus: int = 0
    nodes: int = 0
    held_gpus: int = 0
    step_s: float | None = None
    newest_s: float | None = None
    clock_s: float | None = None
    signals: tuple[str, ...] = ()
    missing: tuple[Shortfall, ...] = ()
    targets: int | None = None
    answering: int | None = None


def list_shortfalls(given: SourceCheck, unnamed_gpus: int) -> tuple[Shortfall, ...]:
    """List shortfalls, what matters most first. `unnamed_gpus`: how many GPUs say no model."""
    found = note_clock(given.clock_s)
    if not given.signals:
        has_nodes = given.targets is not None and NODE_EXPORTER in given.exporters  # a group of node-exporters is whole
        return (*found, *(() if has_nodes else (_no_gpus(given),)))
    found += _list_labels(given, unnamed_gpus)
    found += _list_signals(given)
    if given.step_s is not None and given.step_s > LONGEST_STEP_S:
        found.append(
            Shortfall(
                "note",
                f"GPUs are scraped every {given.step_s:.0f} s",
                "short idle spells are not seen",
                "set scrape_interval of that job to 15s or 30s"
                if given.targets is None
                else "set `every` to 15s or 30s",
            )
        )
    if NODE_EXPORTER not in given.exporters:
        found.append(
            Shortfall(
                "note",
                "no node-exporter",
                "nothing tells whether a GPU waited for CPU, disk or network",
                "run node-exporter on the GPU nodes, or loadfactor agent"
                if given.targets is None
                else "run node-exporter (port 9100) on the GPU nodes and name it in a [[scrape]], or run loadfactor agent",
            )
        )
    return tuple(found)


def note_clock(clock_s: float | None) -> list[Shortfall]:
    """A clock that differs from ours by too much (s ahead of it), if it does."""
    if clock_s is None or abs(clock_s) <= LARGEST_CLOCK_ERROR_S:
        return []
    way = "ahead of" if clock_s > 0 else "behind"
    return [
        Shortfall(
            "missing",
            f"its clock is {abs(clock_s):.0f} s {way} this machine's",
            "samples and jobs of other sources are moved against each other",
            "run NTP (chrony) on both machines",
        )
    ]


def _no_gpus(given: SourceCheck) -> Shortfall:
    if given.targets is None:
        do = "have it scrape dcgm-exporter (port 9400) on the GPU nodes, or run loadfactor agent there; check `match`"
    else:
        do = "name the dcgm-exporters of the GPU nodes (port 9400); check `path`"
    return Shortfall("missing", "no metrics of GPUs", "everything: nothing can be booked from it", do)


def _list_labels(given: SourceCheck, unnamed_gpus: int) -> list[Shortfall]:
    found = []
    if not given.held_gpus:
        found.append(
            Shortfall(
                "missing",
                "no pod or job label on any GPU",
                "who holds GPUs: all working time is unattributed, nothing by team, user or job",
                "Kubernetes: DCGM_EXPORTER_KUBERNETES=true; Slurm: --hpc-job-mapping-dir and a prolog that writes it",
            )
        )
    if unnamed_gpus:
        found.append(
            Shortfall(
                "missing",
                f"{unnamed_gpus} of {given.gpus} GPUs say no model",
                "their estimated prices, pcie_saturation and nvlink_saturation",
                "keep the label modelName in relabelling",
            )
        )
    return found


def _list_signals(given: SourceCheck) -> list[Shortfall]:
    missing = [s for s in SIGNALS if not set(given.signals).intersection(s.keys)]
    found = []
    best = next((s for s in ACTIVITY if s not in missing), None)
    if best is None:
        found.append(
            Shortfall(
                "missing",
                "no signal of activity",
                "idle, busy, utilization, and all that rests on them",
                f"give {ACTIVITY[0].fields}, or at least {ACTIVITY[-1].fields}",
            )
        )
    for signal in missing:
        costs = ", ".join(list_metrics(signal))
        if signal is ACTIVITY[0] and best is not None:
            costs += f"; utilization rests on {best.name}, which is optimistic"
        if signal in ACTIVITY[1:] and best is ACTIVITY[0]:
            grade = "note"
        else:
            grade = "note" if signal.name in OPTIONAL else "missing"
        found.append(_name_signal(grade, signal, costs))
    if ENERGY.keys[0] not in given.signals and POWER not in missing:
        found.append(_name_signal("note", ENERGY, ENERGY.also))
    return sorted(found, key=lambda one: one.grade != "missing")


def _name_signal(grade: str, signal: Signal, costs: str) -> Shortfall:
    do = f"add {signal.fields} to the counters of dcgm-exporter"
    return Shortfall(grade, f"no {signal.name}", costs, do, signal.fields)
