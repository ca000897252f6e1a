"""Incidents: nodes and GPUs that fail, nodes drained for maintenance, exporters that fall silent."""

from dataclasses import dataclass

import numpy as np

from loadfactor.base.units import MS_PER_DAY, MS_PER_HOUR, MS_PER_S, S_PER_HOUR
from loadfactor.simulator.fleet import Node
from loadfactor.simulator.scenario import Scenario


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
