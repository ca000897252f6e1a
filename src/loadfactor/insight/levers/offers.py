"""Levers of price: what the same hours would have cost at other prices. They are no part of what was lost.

Cheaper accelerators first; spot for jobs that report checkpoints and stay; then a base of committed GPUs under what the rest held,
with the peaks at today's price; less power for what stays on GPUs that are owned. Hours that the levers before saved are left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, fsum
from typing import Final

from loadfactor.base.errors import PlanError
from loadfactor.base.units import S_PER_HOUR, S_PER_MIN
from loadfactor.insight.levers.cheaper_gpu import find_cheaper_gpus
from loadfactor.insight.levers.power_cap import find_power_caps
from loadfactor.insight.levers.price_saving import KeptHours, PriceSaving
from loadfactor.insight.levers.situation import Situation
from loadfactor.insight.levers.wording import say_hours
from loadfactor.planner.economics.load_duration import choose_owned_gpus, cost_own_and_rent, load_duration
from loadfactor.planner.economics.renting import SpotOffer, cost_spot

PRICE_LEVERS: Final = ("cheaper_gpu", "spot", "committed_base", "power_cap")
"""Their names."""
GPUS_A_NODE: Final = 8
"""Of an instance, where the books know no nodes."""


@dataclass(frozen=True)
class PriceOffers:
    """Prices per GPU-hour that could be had, None where nobody offers one; a spot instance is taken back every `spot_hours`."""

    spot_per_gpu_hour: float | None = None
    spot_hours: float = 24.0
    committed_per_gpu_hour: float | None = None


def find_price_savings(
    situation: Situation, saved_hours: Mapping[str | None, float], offers: PriceOffers
) -> tuple[PriceSaving, ...]:
    """What these offers would have saved, after levers that saved so many hours of each job; none where no price is known."""
    kept = _list_kept(situation, saved_hours)
    cheaper, moved = find_cheaper_gpus(situation, kept)
    kept = {job: of for job, of in kept.items() if job not in moved}
    spot, on_spot = _find_spot(situation, kept, offers)
    base = _find_base(situation, kept, offers, 0.0 if spot is None else spot.gpu_hours)
    cap = find_power_caps(situation, {job: of for job, of in kept.items() if job not in on_spot})
    found = (cheaper, spot, base, cap)
    return tuple(of for of in found if of is not None and (of.saved is None or of.saved > 0))


def _list_kept(situation: Situation, saved_hours: Mapping[str | None, float]) -> dict[str, KeptHours]:
    hours: dict[str, float] = {}
    costs: dict[str, float] = {}
    for row in situation.facts.waterfall.rows:
        job = row.by["job"]
        if job is not None and row.cost is not None:
            hours[job] = hours.get(job, 0.0) + row.gpu_hours.paid
            costs[job] = costs.get(job, 0.0) + row.cost.paid
    return {
        job: KeptHours(max(0.0, held - saved_hours.get(job, 0.0)), held, costs[job] / held)
        for job, held in hours.items()
        if held > 0 and costs[job] > 0
    }


def _find_spot(
    situation: Situation, kept: Mapping[str, KeptHours], offers: PriceOffers
) -> tuple[PriceSaving | None, set[str]]:
    """Spot for the jobs that report checkpoints: an interruption costs them the work since the last one, and the
    restart. Also which they are.
    """
    if offers.spot_per_gpu_hour is None:
        return None, set()
    on_one = max((gpus for pool in situation.facts.pools for gpus in pool.node_gpus), default=GPUS_A_NODE)
    saved, hours, intervals = [], [], []
    jobs = set()
    for job, checkpoint_s in situation.facts.checkpoint_s.items():
        if job not in kept:
            continue
        instances = max(1, ceil(len(situation.facts.job_gpus.get(job, ())) / on_one))
        offer = SpotOffer(offers.spot_per_gpu_hour, offers.spot_hours, checkpoint_s, instances=instances)
        try:
            found = cost_spot(offer)
        except PlanError:  # it would finish nothing
            continue
        if found.cost_per_useful_gpu_hour < kept[job].price:
            saved.append(kept[job].gpu_hours * (kept[job].price - found.cost_per_useful_gpu_hour))
            hours.append(kept[job].gpu_hours)
            jobs.add(job)
            if found.checkpoints is not None:
                intervals.append(found.checkpoints.interval_s)
    if not saved:
        return None, set()
    every = f"every {min(intervals) / S_PER_MIN:.0f} to {max(intervals) / S_PER_MIN:.0f} min" if intervals else "often"
    told = PriceSaving(
        "spot",
        "Run what has checkpoints on spot capacity",
        fsum(saved),
        fsum(hours),
        (
            f"{len(saved)} jobs that report checkpoints held {say_hours(fsum(hours))}; at {offers.spot_per_gpu_hour:g} a GPU-hour"
            f" and an interruption of each instance every {offers.spot_hours:g} h they cost less, repeated work included.",
        ),
        f"Checkpoint {every} (Daly's interval) and restart by itself (Slurm --requeue, a Kubernetes Job with a backoff limit).",
    )
    return told, jobs


def _find_base(
    situation: Situation, kept: Mapping[str, KeptHours], offers: PriceOffers, spot_hours: float
) -> PriceSaving | None:
    """As many committed GPUs under the demand of the window as cost least, and today's price for what is held beyond them."""
    demand = situation.facts.held_gpus
    held = fsum(gpus * seconds for gpus, seconds in demand) / S_PER_HOUR
    priced = fsum(job.gpu_hours for job in kept.values())
    if offers.committed_per_gpu_hour is None or held <= 0 or priced <= spot_hours:
        return None
    price = fsum(job.gpu_hours * job.price for job in kept.values()) / priced
    scale = (priced - spot_hours) / held
    curve = load_duration([gpus * scale for gpus, _ in demand], [seconds for _, seconds in demand])
    base = choose_owned_gpus(curve, offers.committed_per_gpu_hour, price)
    if not base:
        return None
    saved = price * curve.mean_gpus - cost_own_and_rent(curve, base, offers.committed_per_gpu_hour, price)
    return PriceSaving(
        "committed_base",
        "Commit to the base, rent the peaks",
        saved * situation.facts.hours,
        float(curve.marginal_share[:base].sum()) * situation.facts.hours,
        (
            f"{curve.mean_gpus:,.0f} GPUs were held on average and {curve.peak_gpus:,.0f} at most, at {price:.3g} an hour; GPU"
            f" {base:,} was needed {curve.utilization_share(base):.0%} of the time.",
        ),
        f"Commit to {base:,} GPUs at {offers.committed_per_gpu_hour:g} an hour, and rent the rest while it is needed.",
    )
