"""What a source does not give, what that costs in answers, and what to enable."""

from dataclasses import dataclass
from typing import Final, Protocol

from loadfactor.collect.discovery.signals import ACTIVITY, ENERGY, POWER, SIGNALS, Signal, list_metrics
from loadfactor.sources.prometheus.node_source import NODE_EXPORTER

LARGEST_CLOCK_ERROR_S: Final = 5.0
LONGEST_STEP_S: Final = 60.0
OPTIONAL: Final = ("FP32 active", "SM occupancy", "engine active")
"""Signals that few exporters give and few questions need: what they cost is said, last."""


@dataclass(frozen=True)
class Shortfall:
    """Something that is missing: `costs` says what is unknown without it, `do` what to do. `grade`: missing or note.

    `field`: of a signal, what dcgm-exporter calls it.
    """

    grade: str
    what: str
    costs: str
    do: str
    field: str = ""


class Given(Protocol):
    """What is known of a source that answered."""

    @property
    def exporters(self) -> tuple[str, ...]: ...
    @property
    def keys(self) -> frozenset[str]: ...
    @property
    def gpus(self) -> int: ...
    @property
    def held_gpus(self) -> int: ...
    @property
    def named_gpus(self) -> int: ...
    @property
    def step_s(self) -> float | None: ...
    @property
    def clock_s(self) -> float | None: ...
    @property
    def targets(self) -> int | None: ...


def list_shortfalls(given: Given) -> tuple[Shortfall, ...]:
    """What is missing, what matters most first."""
    found = note_clock(given.clock_s)
    if not given.keys:
        has_nodes = given.targets is not None and NODE_EXPORTER in given.exporters  # a group of node-exporters is whole
        return (*found, *(() if has_nodes else (_no_gpus(given),)))
    found += _list_labels(given)
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


def _no_gpus(given: Given) -> Shortfall:
    if given.targets is None:
        do = "have it scrape dcgm-exporter (port 9400) on the GPU nodes, or run loadfactor agent there; check `match`"
    else:
        do = "name the dcgm-exporters of the GPU nodes (port 9400); check `path`"
    return Shortfall(
        "missing",
        "no metrics of GPUs",
        "everything: nothing can be booked from it",
        do,
    )


def _list_labels(given: Given) -> list[Shortfall]:
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
    if given.named_gpus < given.gpus:
        found.append(
            Shortfall(
                "missing",
                f"{given.gpus - given.named_gpus} of {given.gpus} GPUs say no model",
                "their estimated prices, pcie_saturation and nvlink_saturation",
                "keep the label modelName in relabelling",
            )
        )
    return found


def _list_signals(given: Given) -> list[Shortfall]:
    missing = [s for s in SIGNALS if not given.keys.intersection(s.keys)]
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
    if ENERGY.keys[0] not in given.keys and POWER not in missing:
        found.append(_name_signal("note", ENERGY, ENERGY.also))
    return sorted(found, key=lambda one: one.grade != "missing")


def _name_signal(grade: str, signal: Signal, costs: str) -> Shortfall:
    do = f"add {signal.fields} to the counters of dcgm-exporter"
    return Shortfall(grade, f"no {signal.name}", costs, do, signal.fields)
