"""Levers of price: what the same hours would have cost at other prices. They are no part of what was lost.

Cheaper accelerators first; spot for jobs that report checkpoints and stay; then a base of committed GPUs under what the rest held,
with the peaks at today's price; less power for what stays on GPUs that are owned. Hours that the levers before saved are left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, fsum
from typing import Final

from loadfactor.base.errors import PlanError
from loadfactor.base.quantities import write_share
from loadfactor.base.units import BYTES_PER_GB, S_PER_HOUR, S_PER_MIN
from loadfactor.books.losses.pool_jobs import JobNeed
from loadfactor.catalog.accelerators import Accelerator, accelerators, find_accelerator
from loadfactor.catalog.power_caps import read_power_caps
from loadfactor.insight.diagnosis.diagnosed_job import SERVING
from loadfactor.insight.diagnosis.finding import CauseFinding, Range
from loadfactor.insight.levers.lever import LOW, MEDIUM, KeptHours, PriceSaving, Situation, say_hours, say_largest
from loadfactor.planner.economics.load_duration import choose_owned_gpus, cost_own_and_rent, load_duration
from loadfactor.planner.economics.renting import SpotOffer, cost_spot

PRICE_LEVERS: Final = {
    "cheaper_gpu": "Run it on a cheaper accelerator",
    "spot": "Run what has checkpoints on spot capacity",
    "committed_base": "Commit to the base, rent the peaks",
    "power_cap": "Lower the clocks of what waits for memory or others",
}
"""Their names and titles."""
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
    """The savings of these offers, after levers that saved so many hours of each job; none where no price is known."""
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
    saving = PriceSaving(
        "spot",
        PRICE_LEVERS["spot"],
        fsum(saved),
        fsum(hours),
        (
            f"{len(saved)} jobs that report checkpoints held {say_hours(fsum(hours))}; at {offers.spot_per_gpu_hour:g} a GPU-hour"
            f" and an interruption of each instance every {offers.spot_hours:g} h they cost less, repeated work included.",
        ),
        f"Checkpoint {every} (Daly's interval) and restart by itself (Slurm --requeue, a Kubernetes Job with a backoff limit).",
    )
    return saving, jobs


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
        PRICE_LEVERS["committed_base"],
        saved * situation.facts.hours,
        float(curve.marginal_share[:base].sum()) * situation.facts.hours,
        (
            f"{curve.mean_gpus:,.0f} GPUs were held on average and {curve.peak_gpus:,.0f} at most, at {price:.3g} an hour; GPU"
            f" {base:,} was needed {write_share(curve.utilization_share(base))} of the time.",
        ),
        f"Commit to {base:,} GPUs at {offers.committed_per_gpu_hour:g} an hour, and rent the rest while it is needed.",
    )


BOUND: Final = {"hbm_bound": "hbm_bound", "communication": "communication", "imbalance": "communication"}
"""Causes of which the clock is not the limit, and whose published share is theirs."""


@dataclass(frozen=True)
class _Drawn:
    """The energy of a job while it was bound by something else, kWh, and the price of one; None is not known."""

    finding: CauseFinding
    kept: KeptHours
    kwh: float | None
    price: float | None


def find_power_caps(situation: Situation, kept: Mapping[str, KeptHours]) -> PriceSaving | None:
    """The electricity that less power would have saved; None where no job is known to be bound by anything but its clock."""
    found = [
        drawn
        for job in situation.diagnoses
        if job.job in kept
        for drawn in _read(situation, job.findings, kept[job.job])
    ]
    if not found:
        return None
    hours = fsum(of.kept.gpu_hours for of in found)
    caps = read_power_caps()
    jobs = f"{len(found)} jobs wait for memory or for each other, so that their clocks are not what bounds them."
    action = (
        "Lock the SM clock of these jobs lower (`nvidia-smi -lgc`, DCGM policies), step by step while samples/s stay as they are; a"
        " cap of power (`nvidia-smi -pl`) does nothing where they draw less than it."
    )
    known = [(of, of.kwh * of.price) for of in found if of.kwh is not None and of.price is not None]
    missing = tuple(
        name
        for name, is_missing in (
            ("power of their GPUs (power_w or energy_j of samples)", any(of.kwh is None for of in found)),
            ("price_per_kwh in [[owned]] of loadfactor.toml", any(of.price is None for of in found)),
        )
        if is_missing
    )
    title = PRICE_LEVERS["power_cap"]
    if not known:
        return PriceSaving(
            "power_cap", title, None, hours, (jobs, situation.looked_at + "."), action, None, LOW, missing
        )
    saved = Range(
        fsum(cost * caps.least.value for _, cost in known),
        fsum(cost * caps.most[BOUND[of.finding.cause]].value for of, cost in known),
    )
    paid = fsum(of.kept.gpu_hours * of.kept.price for of, _ in known)
    evidence = (
        jobs,
        f"They drew {fsum(of.kwh or 0.0 for of, _ in known):,.3g} kWh meanwhile, electricity for"
        f" {fsum(cost for _, cost in known):,.3g}.",
        f"{write_share(caps.least.value, 1)} of it at least ({caps.least.source};"
        f" {write_share(caps.time_lost.value, 1)} of the time was lost there),"
        f" at most {write_share(max(fact.value for fact in caps.most.values()))}"
        f" ({'; '.join(fact.source for fact in caps.most.values())}).",
        f"Their {say_hours(hours)} cost {paid:,.3g}: it pays while they become slower by less than"
        f" {write_share(saved.low / paid, 2)}.",
        f"{situation.looked_at}.",
    )
    return PriceSaving("power_cap", title, saved.low, hours, evidence, action, saved, LOW, missing)


def _read(situation: Situation, findings: tuple[CauseFinding, ...], kept: KeptHours) -> list[_Drawn]:
    """The energy of a job while it was bound by the cause that had most of its time; none where nothing like that was found."""
    bound = [finding for finding in findings if finding.cause in BOUND and finding.sureness != "low"]
    if not bound or not kept.gpu_hours:
        return []
    finding = max(bound, key=lambda each: each.share.high)
    rows = [of for of in situation.facts.job_energy if of.job == finding.job]
    if not rows:
        return [_Drawn(finding, kept, None, None)]
    # of time that other levers saved nothing is saved again
    share = finding.share.high * kept.gpu_hours / kept.held_hours
    drawn = [None if of.kwh is None else of.kwh * share for of in rows]
    kwh = None if all(each is None for each in drawn) else fsum(each or 0.0 for each in drawn)
    priced = [
        (each, of.price_per_kwh) for each, of in zip(drawn, rows, strict=True) if each and of.price_per_kwh is not None
    ]
    whole = fsum(each for each, _ in priced)
    price = fsum(each * of for each, of in priced) / whole if whole else None
    return [_Drawn(finding, kept, whole if price is not None else kwh, price)]


LEAST_OBSERVED: Final = 0.8
MEMORY_FILLED: Final = 0.9
"""Of the cheaper accelerator's memory, by the peak that was seen."""
LINKS_USED: Final = 0.05
"""Traffic of NVLink, of its peak, over which GPUs of a job need it."""
PEAKS: Final = ("peak_bf16_flops", "peak_fp32_flops", "memory_bandwidth_bytes_per_s")
"""Limits of kernels: where a job is not known to be bound by another, by the one that is worst."""


@dataclass(frozen=True)
class _Move:
    """A job, where it would fit, and what it would have cost less there: at least, and at most."""

    need: JobNeed
    kept: KeptHours
    board: Accelerator
    to: Accelerator
    price: float
    saved: Range

    @property
    def words(self) -> str:
        """The evidence."""
        used = self.need.memory_share * self.board.driver_memory_bytes / BYTES_PER_GB
        return (
            f"{self.need.job} had kernels {write_share(self.need.kernel_share)} of its time and used {used:.3g} GB at most:"
            f" {self.to.id} has {self.to.driver_memory_bytes / BYTES_PER_GB:.3g} GB, at {self.price:.3g} an hour in place of"
            f" {self.kept.price:.3g}"
        )


def find_cheaper_gpus(situation: Situation, kept: Mapping[str, KeptHours]) -> tuple[PriceSaving | None, set[str]]:
    """The jobs that would have cost less elsewhere even if all their kernels took as long as the peaks say, and which they are."""
    prices = [(accelerators()[name], price) for name, price in situation.facts.prices.items()]
    moves = (
        []
        if len(prices) < 2
        else [move for need in situation.facts.job_needs if (move := _move(situation, need, kept, prices))]
    )
    if not moves:
        return None, set()
    hours: dict[str, float] = {}
    for move in moves:
        name = f"{move.to.id} in place of {move.board.id}"
        hours[name] = hours.get(name, 0.0) + move.kept.gpu_hours
    largest = max(moves, key=lambda move: move.saved.low)
    saved = Range(fsum(move.saved.low for move in moves), fsum(move.saved.high for move in moves))
    saving = PriceSaving(
        "cheaper_gpu",
        PRICE_LEVERS["cheaper_gpu"],
        saved.low,
        fsum(hours.values()),
        (
            f"{len(moves)} jobs would have fitted a cheaper accelerator: {say_largest(hours)}.",
            f"{largest.words}.",
            "At least: kernels take longer by the worst ratio of peaks (16 bits, FP32, memory bandwidth); at most: they do not.",
            f"They held {say_hours(fsum(hours.values()))} after what the levers above save.",
        ),
        f"Ask for {largest.to.id} (Slurm: --gres=gpu:{largest.to.id}:N; Kubernetes: a nodeSelector), and compare samples/s over an"
        " hour.",
        saved,
        MEDIUM if all(move.need.is_profiled for move in moves) else LOW,
    )
    return saving, {move.need.job for move in moves}


def _move(
    situation: Situation, need: JobNeed, kept: Mapping[str, KeptHours], prices: Sequence[tuple[Accelerator, float]]
) -> _Move | None:
    """Where a job would have cost least; None where it would not have fitted, or not have been cheaper for certain."""
    board, of = find_accelerator(need.accelerator), kept.get(need.job)
    if board is None or of is None or not of.gpu_hours or need.observed_share < LEAST_OBSERVED:
        return None
    if situation.facts.purposes.get(need.job) in SERVING:  # who asks waits for each answer
        return None
    links = 0.0 if len(situation.facts.job_gpus.get(need.job, ())) == 1 else need.nvlink_share
    if links is None or links > LINKS_USED:
        return None
    # what levers saved had no kernels
    kernels = min(1.0, need.kernel_share * of.held_hours / of.gpu_hours)
    found = []
    for other, price in prices:
        slower = _slow_down(board, other)
        fits = need.memory_share * board.driver_memory_bytes <= MEMORY_FILLED * other.driver_memory_bytes
        if other.id == board.id or other.vendor != board.vendor or not fits or slower is None:
            continue
        low, high = (of.gpu_hours * (of.price - price * (1 - kernels + kernels * times)) for times in (slower, 1.0))
        if low > 0:
            found.append(_Move(need, of, board, other, price, Range(low, high)))
    return max(found, key=lambda move: move.saved.low, default=None)


def _slow_down(board: Accelerator, other: Accelerator) -> float | None:
    """How many times as long kernels take at most, never less than once; None where the catalog lacks a peak."""
    ratios = []
    for name in PEAKS:
        own, its = board.get(name), other.get(name)
        if own is None or its is None:
            return None
        ratios.append(own / its)
    return max(1.0, *ratios)
