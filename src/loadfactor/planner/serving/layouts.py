"""Which layouts are worth looking at? Every width the network can be split to inside a scale-up domain, experts spread or split."""

from dataclasses import dataclass

from loadfactor.catalog.accelerators import Accelerator
from loadfactor.catalog.models import Network
from loadfactor.errors import PlanError
from loadfactor.planner.serving.cache import check_fits, most_sequences
from loadfactor.planner.serving.engines import EngineConstants
from loadfactor.planner.serving.layout import Layout, Precision
from loadfactor.planner.serving.service import Service, Traffic, benchmark, capacity
from loadfactor.planner.serving.simulation.fleet import Slo
from loadfactor.planner.serving.step import Replica


@dataclass(frozen=True)
class Option:
    """One layout: the replica, the most it takes under the objective (None: it cannot keep it) and in a benchmark."""

    replica: Replica
    capacity: Service | None
    benchmark: Service


def widths(network: Network, chip: Accelerator) -> list[int]:
    """Powers of two up to the scale-up domain (or two of them) that divide the heads."""
    most = max(chip.scale_up_gpus, 8)
    return [w for w in (1, 2, 4, 8, 16, 32, 64) if w <= most and network.heads % w == 0]


def layouts(network: Network, chip: Accelerator) -> list[Layout]:
    """Tensor parallel at every width; with experts also expert parallel, and with copies of the attention (for latent caches)."""
    found = []
    for gpus in widths(network, chip):
        found.append(Layout(gpus))
        if network.experts is not None and gpus > 1 and network.experts.count % gpus == 0:
            found += [Layout(gpus, 1, gpus), Layout(gpus, gpus, gpus)]
    return found


def options(
    network: Network, chip: Accelerator, kept: Precision, engine: EngineConstants, traffic: Traffic, slo: Slo
) -> tuple[Option, ...]:
    """Every layout on which at least one whole request fits. Raises PlanError, naming what would do, when there is none."""
    found = []
    for layout in layouts(network, chip):
        replica = Replica(network, chip, layout, kept, engine)
        if most_sequences(replica, traffic.prompt + traffic.output) >= 1:
            found.append(Option(replica, capacity(replica, traffic, slo), benchmark(replica, traffic)))
    if not found:
        check_fits(Replica(network, chip, layouts(network, chip)[-1], kept, engine), traffic.prompt + traffic.output)
    return tuple(found)


def cheapest(found: tuple[Option, ...], peak_requests_per_s: float, headroom_share: float, slo: Slo) -> Option:
    """The layout that carries the peak with the fewest accelerators. Raises PlanError when no layout keeps the objective."""
    able = [o for o in found if o.capacity is not None]
    if not able:
        best = min(found, key=lambda o: o.benchmark.tpot_s)
        raise PlanError(
            f"no layout of {best.replica.network.name} on {best.replica.accelerator.name} keeps {slo.ttft_s:g} s to the first "
            f"token and {slo.tpot_s * 1000:g} ms a token even alone; relax them with --ttft or --tpot, or take a faster accelerator"
        )

    def gpus(o: Option) -> tuple[float, float]:
        assert o.capacity is not None
        return replicas_for(
            peak_requests_per_s, o.capacity, headroom_share
        ) * o.capacity.gpus, -o.capacity.requests_per_gpu_s

    return min(able, key=gpus)


def replicas_for(requests_per_s: float, capacity_of_one: Service, headroom_share: float) -> int:
    """Replicas that carry a rate with this share of their capacity kept free.

    >>> replicas_for(9.5, Service(10, 1.0, 0.1, 0.01, 1, 0.2), 0.1)
    11
    """
    needed = requests_per_s / (capacity_of_one.requests_per_s * (1 - headroom_share))
    return max(1, -int(-needed // 1))
