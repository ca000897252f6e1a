"""The GPUs of a scenario as arrays, in the order of their names, and their prices."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loadfactor.base.units import MS_PER_DAY, MS_PER_HOUR, MS_PER_S, S_PER_HOUR
from loadfactor.simulator.scenario import NodeGroup, Scenario

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
MIG_SLICES = 7


@dataclass(frozen=True)
class Node:
    """One machine. `whole` are the GPUs of it that the queue may give away, as indices into the devices."""

    name: str
    group: NodeGroup
    from_ms: int
    to_ms: int
    whole: tuple[int, ...]


@dataclass(frozen=True)
class SimulatedFleet:
    """All devices, one array element each. `to_ms` is the end of the simulation for those still installed then."""

    nodes: tuple[Node, ...]
    device_id: tuple[str, ...]
    node: Ints
    share: Floats  # part of a physical GPU
    from_ms: Ints
    to_ms: Ints
    phase_ms: Ints  # samples end at start + phase + k × step
    profiled: npt.NDArray[np.bool_]  # false: the exporter has no profiling counters
    divided: int | None  # the GPU held by three pods
    mig: tuple[int, ...]  # the slices of the GPU cut into seven


def build_fleet(scenario: Scenario) -> SimulatedFleet:
    """Lay the groups out, node after node. The divided GPUs sit in the last plain A100-like node, in its last places."""
    groups = sorted(scenario.groups, key=lambda g: g.name)
    host = next((g for g in reversed(groups) if _can_host_shared(g)), None)
    rng = np.random.default_rng((scenario.seed, 1))
    nodes: list[Node] = []
    ids: list[str] = []
    node_of: list[int] = []
    share: list[float] = []
    divided: int | None = None
    mig: list[int] = []
    for group in groups:
        for n in range(group.nodes):
            name = f"{group.name}-{n:03d}"
            special = group is host and n == group.nodes - 1
            whole: list[int] = []
            for g in range(group.gpus_per_node):
                cut = scenario.mig_gpu and special and g == group.gpus_per_node - 1
                shared = scenario.divided_gpu and special and g == group.gpus_per_node - 1 - scenario.mig_gpu
                for part in range(MIG_SLICES) if cut else (None,):
                    at = len(ids)
                    ids.append(f"{name}/gpu{g}" if part is None else f"{name}/gpu{g}/mig{part}")
                    node_of.append(len(nodes))
                    share.append(1.0 if part is None else 1 / MIG_SLICES)
                    if cut:
                        mig.append(at)
                    elif shared:
                        divided = at
                    else:
                        whole.append(at)
            since = scenario.start_ms + convert_days(group.bought_day or 0)
            until = (
                scenario.end_ms if group.retired_day is None else scenario.start_ms + convert_days(group.retired_day)
            )
            nodes.append(Node(name, group, since, until, tuple(whole)))
    owner = np.array(node_of, dtype=np.int64)
    # Scrapes of different machines are not aligned; one machine scrapes on the mark, so that the simulation ends with a sample.
    phase_s = rng.integers(0, scenario.step_s, len(nodes))
    phase_s[0] = 0
    return SimulatedFleet(
        nodes=tuple(nodes),
        device_id=tuple(ids),
        node=owner,
        share=np.array(share),
        from_ms=np.array([n.from_ms for n in nodes], dtype=np.int64)[owner],
        to_ms=np.array([n.to_ms for n in nodes], dtype=np.int64)[owner],
        phase_ms=(phase_s * MS_PER_S)[owner],
        profiled=np.array([n.group.exporter == "dcgm" for n in nodes])[owner],
        divided=divided,
        mig=tuple(mig),
    )


def _can_host_shared(group: NodeGroup) -> bool:
    return (
        group.gpus_per_node >= 3
        and group.exporter == "dcgm"
        and group.bought_day is None
        and group.retired_day is None
        and group.accelerator.startswith("a100")
    )


def convert_days(days: float) -> int:
    """A number of days as whole seconds, in milliseconds.

    >>> convert_days(0.5)
    43200000
    """
    return round(days * MS_PER_DAY / MS_PER_S) * MS_PER_S


@dataclass(frozen=True)
class GpuPrice:
    """The price of a whole GPU of one accelerator from one instant to another."""

    accelerator: str
    from_ms: int
    to_ms: int | None
    basis: str
    price_per_gpu_hour: float


def build_prices(scenario: Scenario) -> tuple[GpuPrice, ...]:
    """Contracted prices, with their change if the scenario has one, and the list prices beside them."""
    out: list[GpuPrice] = []
    seen: set[str] = set()
    for group in scenario.groups:
        if group.accelerator in seen:
            continue
        seen.add(group.accelerator)
        paid, change_day = group.contracted_price_per_gpu_hour, scenario.price_change_day
        if change_day is None:
            out.append(GpuPrice(group.accelerator, scenario.start_ms, None, "contracted", paid))
        else:
            at = scenario.start_ms + convert_days(change_day)
            later = round(paid * scenario.price_change_ratio, 4)
            out.append(GpuPrice(group.accelerator, scenario.start_ms, at, "contracted", paid))
            out.append(GpuPrice(group.accelerator, at, None, "contracted", later))
        out.append(GpuPrice(group.accelerator, scenario.start_ms, None, "list", group.list_price_per_gpu_hour))
    return tuple(out)


@dataclass(frozen=True)
class Incident:
    """Something that happens to node number `node` of a pool, or to one of its GPUs."""

    node: int
    gpu: int | None
    from_ms: int
    lasts_ms: int
    reason: str


@dataclass(frozen=True)
class ExporterFailure:
    """A node whose exporter says nothing, while its jobs go on."""

    node: int
    from_ms: int
    to_ms: int


def build_incidents(scenario: Scenario, nodes: list[Node], rng: np.random.Generator) -> list[Incident]:
    """Failures and drains of the nodes of one pool, as rare events at their rates.

    The node with divided GPUs is spared: its pods are placed by hand, and nothing would move them.
    """
    out: list[Incident] = []
    for n, node in enumerate(nodes):
        whole = len(node.whole)
        if whole < node.group.gpus_per_node:
            continue
        for rate, reason, hours in (
            (scenario.node_failures_per_day, "failed", (1.5, 16.0)),
            (scenario.gpu_failures_per_day * whole, "gpu failed", (3.0, 30.0)),
            (scenario.drains_per_day, "drained", (1.0, 5.0)),
        ):
            for _ in range(rng.poisson(rate * scenario.days)):
                at = (
                    scenario.start_ms + int(rng.integers(S_PER_HOUR, scenario.days * MS_PER_DAY // MS_PER_S)) * MS_PER_S
                )
                lasts = int(rng.uniform(*hours) * S_PER_HOUR) * MS_PER_S
                gpu = int(rng.integers(0, whole)) if reason == "gpu failed" else None
                out.append(Incident(n, gpu, at, lasts, reason))
    return sorted(out, key=lambda t: (t.from_ms, t.node))


def build_exporter_failures(scenario: Scenario, nodes: int) -> list[ExporterFailure]:
    """Exporters that are down for one to nine hours each."""
    rng = np.random.default_rng((scenario.seed, 4))
    out = []
    for node in range(nodes):
        for _ in range(rng.poisson(scenario.exporter_failures_per_day * scenario.days)):
            at = scenario.start_ms + int(rng.integers(0, scenario.days * MS_PER_DAY // MS_PER_S)) * MS_PER_S
            out.append(ExporterFailure(node, at, at + int(rng.uniform(1, 9) * MS_PER_HOUR)))
    return out
