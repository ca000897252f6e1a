"""Layouts scored: what each takes under the objective and in a benchmark, and the one that carries a demand with the fewest."""

from dataclasses import dataclass, field

from loadfactor.base.errors import PlanError
from loadfactor.base.units import MS_PER_S
from loadfactor.catalog.accelerators import Accelerator
from loadfactor.catalog.engines import EngineConstants
from loadfactor.catalog.models import Network
from loadfactor.planner.serving.cache_memory import check_fits, most_sequences
from loadfactor.planner.serving.layouts import EVERY_LAYOUT, AskedLayout, explain_no_layout, list_layouts
from loadfactor.planner.serving.replica_layout import Precision
from loadfactor.planner.serving.service import Service, Traffic, find_benchmark, find_capacity
from loadfactor.planner.serving.simulation.fleet import Slo
from loadfactor.planner.serving.step import Replica


@dataclass(frozen=True)
class LayoutOption:
    """One layout: the replica, the most it takes under the objective (None: it cannot keep it) and in a benchmark."""

    replica: Replica = field(repr=False)
    capacity: Service | None
    benchmark: Service

    @property
    def layout(self) -> str:
        """The layout in words."""
        return str(self.replica.layout)

    def require_capacity(self) -> Service:
        """The capacity of a layout that is known to keep the objective."""
        assert self.capacity is not None
        return self.capacity


def list_options(
    network: Network,
    chip: Accelerator,
    kept: Precision,
    engine: EngineConstants,
    traffic: Traffic,
    slo: Slo,
    asked: AskedLayout = EVERY_LAYOUT,
) -> tuple[LayoutOption, ...]:
    """Every layout on which at least one whole request fits. Raises PlanError, naming what would do, when there is none."""
    found, layouts = [], list_layouts(network, chip, asked)
    for layout in layouts:
        replica = Replica(network, chip, layout, kept, engine)
        if most_sequences(replica, traffic.prompt + traffic.output) >= 1:
            found.append(LayoutOption(replica, find_capacity(replica, traffic, slo), find_benchmark(replica, traffic)))
    if not layouts:
        raise PlanError(explain_no_layout(network, chip, asked))
    if not found:
        largest = max(layouts, key=lambda x: (x.gpus, -x.attention_dp))
        check_fits(Replica(network, chip, largest, kept, engine), traffic.prompt + traffic.output)
    return tuple(found)


def choose_cheapest(
    found: tuple[LayoutOption, ...], peak_requests_per_s: float, headroom_share: float, slo: Slo
) -> LayoutOption:
    """The layout that carries the peak with the fewest accelerators. Raises PlanError when no layout keeps the objective."""
    able = [o for o in found if o.capacity is not None]
    if not able:
        best = min(found, key=lambda o: o.benchmark.tpot_s)
        raise PlanError(
            f"no layout of {best.replica.network.name} on {best.replica.accelerator.name} keeps {slo.ttft_s:g} s to the "
            f"first token and {slo.tpot_s * MS_PER_S:g} ms a token even alone; "
            "relax them with --ttft or --tpot, or take a faster accelerator"
        )

    def gpus(o: LayoutOption) -> tuple[float, float]:
        c = o.require_capacity()
        return count_replicas(peak_requests_per_s, c, headroom_share) * c.gpus, -c.requests_per_gpu_s

    return min(able, key=gpus)


def count_replicas(requests_per_s: float, capacity_of_one: Service, headroom_share: float) -> int:
    """Replicas that carry a rate with this share of their capacity kept free.

    >>> count_replicas(9.5, Service(10, 1.0, 0.1, 0.01, 1, 0.2), 0.1)
    11
    """
    needed = requests_per_s / (capacity_of_one.requests_per_s * (1 - headroom_share))
    return max(1, -int(-needed // 1))
