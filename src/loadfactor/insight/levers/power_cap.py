"""Lever of price: less power for jobs that the clock of the SMs does not bound: they wait for memory or for each other.

Told by diagnoses of the jobs that lose most. Counted is electricity alone, of the time that a cause has at stake.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import fsum
from typing import Final

from loadfactor.catalog.power_caps import read_power_caps
from loadfactor.insight.diagnosis.finding import CauseFinding, Range
from loadfactor.insight.levers.lever import LOW
from loadfactor.insight.levers.price_saving import KeptHours, PriceSaving
from loadfactor.insight.levers.situation import Situation
from loadfactor.insight.levers.wording import say_hours

BOUND: Final = {"hbm_bound": "hbm_bound", "communication": "communication", "imbalance": "communication"}
"""Causes of which the clock is not the limit, and whose published share is theirs."""


@dataclass(frozen=True)
class _Drawn:
    """What a job drew while it was bound by something else, kWh, and the price of one; None is not known."""

    finding: CauseFinding
    kept: KeptHours
    kwh: float | None
    price: float | None


def find_power_caps(situation: Situation, kept: Mapping[str, KeptHours]) -> PriceSaving | None:
    """What electricity less power would have saved; None where no job is known to be bound by anything but its clock."""
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
    title = "Lower the clocks of what waits for memory or others"
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
        f"{caps.least.value:.1%} of it at least ({caps.least.source}; {caps.time_lost.value:.1%} of the time was lost there),"
        f" at most {max(fact.value for fact in caps.most.values()):.0%} ({'; '.join(fact.source for fact in caps.most.values())}).",
        f"Their {say_hours(hours)} cost {paid:,.3g}: it pays while they become slower by less than {saved.low / paid:.2%}.",
        f"{situation.looked_at}.",
    )
    return PriceSaving("power_cap", title, saved.low, hours, evidence, action, saved, LOW, missing)


def _read(situation: Situation, findings: tuple[CauseFinding, ...], kept: KeptHours) -> list[_Drawn]:
    """What a job drew while it was bound by the cause that had most of its time; none where nothing like that was found."""
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
