"""Metrics of fullness: GPU-hours by what happened in them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import repeat
from math import fsum
from operator import attrgetter
from typing import Final

from loadfactor.base.units import S_PER_HOUR
from loadfactor.ledger.columns import ACTIVITIES, HELD, HISTOGRAM, KNOWN, STATES, UNKNOWN
from loadfactor.metrics.metric import OBSERVED, UNDERUSED_S, Better, Coverage, Metric, Part, Ratio, Sum

EFFECTIVE_S = tuple(f"effective_{kind.basis}_s" for kind in ACTIVITIES)


def gpu_hours(*states: str, coverage: Coverage | None = None, holder: str = "") -> Sum:
    """GPU-hours spent in these states, in any when none is named; with this kind of holder, with any when none is named."""
    return Sum(Part(("gpu_s",), states or STATES, holder=holder), S_PER_HOUR, coverage)


PAID = gpu_hours()
SPOKEN_OF = Coverage(known=Part(("has_source_s",)), needed=Part(("gpu_s",)))
"""The paid time of which an allocation source speaks."""
LISTED = Coverage(known=Part(("listed_s",)), needed=Part(("gpu_s",)))
"""The paid time of GPUs that somebody lists, rather than of those that jobs show to be there."""
ALLOCATED = gpu_hours(*HELD, holder=KNOWN)
OBSERVED_HOURS = gpu_hours("idle", "busy", coverage=OBSERVED)
EFFECTIVE = Sum(Part(EFFECTIVE_S), S_PER_HOUR, OBSERVED)


def _hours(name: str, title: str, meaning: str, better: Better, kind: Sum) -> Metric:
    return Metric(name, "GPU-hours", title, meaning, better, kind, "fullness")


def _share(name: str, title: str, meaning: str, better: Better, kind: Ratio) -> Metric:
    return Metric(name, "share", title, meaning, better, kind, "fullness")


FULLNESS = (
    _hours("paid_gpu_hours", "Paid", "Installed GPUs × time: what the money buys.", "neither", PAID),
    _hours(
        "allocated_gpu_hours",
        "Allocated",
        "Held by a known holder, whatever it did with it: idle, busy and unobserved.",
        "neither",
        ALLOCATED,
    ),
    _hours(
        "unattributed_gpu_hours",
        "Unattributed",
        "Held by an unknown holder: no allocation source speaks of the GPU, or it works unallocated.",
        "lower",
        gpu_hours(*HELD, holder=UNKNOWN),
    ),
    _hours(
        "unallocated_gpu_hours",
        "Unallocated",
        "Usable and held by nobody; unknown where nobody lists the GPUs.",
        "lower",
        gpu_hours("unallocated", coverage=LISTED),
    ),
    _hours(
        "observed_gpu_hours",
        "Observed",
        "Held, by a known or an unknown holder, with a valid sample: idle and busy.",
        "higher",
        OBSERVED_HOURS,
    ),
    _hours(
        "idle_gpu_hours",
        "Idle",
        "Held, with activity under the idle threshold.",
        "lower",
        gpu_hours("idle", coverage=OBSERVED),
    ),
    _hours("busy_gpu_hours", "Busy", "Held, and working.", "higher", gpu_hours("busy", coverage=OBSERVED)),
    _hours(
        "unobserved_gpu_hours",
        "Unobserved",
        "Held, without a valid sample.",
        "lower",
        gpu_hours("unobserved"),
    ),
    _hours("down_gpu_hours", "Down", "Installed but not usable: drained or failed.", "lower", gpu_hours("down")),
    _hours(
        "effective_gpu_hours",
        "Effective",
        "Held observed hours × activity: wall-clock GPU-hours × average utilization, by the best signal present.",
        "higher",
        EFFECTIVE,
    ),
    _hours(
        "underused_gpu_hours",
        "Underused",
        "Busy less effective: what working GPUs left over. Paid less unallocated, down, unobserved, idle and this is effective.",
        "lower",
        Sum(Part((UNDERUSED_S,), ("idle", "busy")), S_PER_HOUR, OBSERVED),
    ),
    Metric(
        "allocation",
        "share",
        "Allocation",
        "Allocated ÷ paid GPU-hours; unknown where no allocation source speaks of the GPUs.",
        "higher",
        Ratio(replace(ALLOCATED, coverage=SPOKEN_OF), PAID),
        "fullness",
    ),
    Metric(
        "utilization",
        "share",
        "Utilization",
        "Effective ÷ observed GPU-hours: how active held GPUs were where it was measured.",
        "higher",
        Ratio(EFFECTIVE, OBSERVED_HOURS),
        "fullness",
    ),
    Metric(
        "load_factor",
        "share",
        "Load factor",
        "Effective ÷ paid GPU-hours: how full the fleet was.",
        "higher",
        Ratio(EFFECTIVE, PAID),
        "fullness",
    ),
    _share(
        "idle_share", "Idle share", "Idle ÷ observed GPU-hours.", "lower",
        Ratio(gpu_hours("idle", coverage=OBSERVED), OBSERVED_HOURS),
    ),
    _share(
        "unallocated_share", "Unallocated share", "Unallocated ÷ paid GPU-hours; unknown where nobody lists the GPUs.", "lower",
        Ratio(gpu_hours("unallocated", coverage=LISTED), PAID),
    ),
    _share(
        "unobserved_share", "Unobserved share", "Unobserved ÷ held GPU-hours: what telemetry does not know.", "lower",
        Ratio(gpu_hours("unobserved"), gpu_hours(*HELD)),
    ),
    _share(
        "measured_share", "Measured share", "Time, held or not, in which activity was measured ÷ paid GPU-hours.", "higher",
        Ratio(Sum(Part(("activity_measured_s",))), Sum(Part(("gpu_s",)))),
    ),
    _share(
        "down_share", "Down share", "Down ÷ paid GPU-hours.", "lower",
        Ratio(gpu_hours("down"), PAID),
    ),
    _share(
        "unheld_work_share", "Work without a holder",
        "Busy with an unknown holder ÷ paid GPU-hours, of GPUs that an allocation source speaks of.", "lower",
        Ratio(
            Sum(Part(("has_source_s",), ("busy",), holder=UNKNOWN), coverage=SPOKEN_OF),
            Sum(Part(("has_source_s",)), coverage=SPOKEN_OF),
        ),
    ),
    Metric(
        "utilization_histogram",
        "GPU-hours",
        "Utilization histogram",
        "Observed GPU-hours in each twentieth of the activity scale, from 0 to 1.",
        "neither",
        Sum(Part(HISTOGRAM), S_PER_HOUR, OBSERVED, each=True),
        "fullness",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Level:
    """What is left after a step: its name for programs, its title and meaning for people, and how a sentence says it of hours."""

    name: str
    title: str
    meaning: str
    were: str


@dataclass(frozen=True)
class Drop:
    """One thing that what was paid goes to, on the way down to the level `to`.

    `goes_on` of an unknown one: what would let people know more, where nobody knows anything beyond it.
    """

    name: str
    to: str
    title: str
    meaning: str
    goes_on: str = ""

    @property
    def is_unknown(self) -> bool:
        """Whether nobody knows if it was a loss."""
        return bool(self.goes_on)


STEPS: Final = (
    Level("paid", "paid", "installed", "were paid for"),
    Level("held", "held", "held by somebody", "were held"),
    Level("observed", "observed", "held, with samples", "were observed"),
    Level("not_idle", "busy", "held, and working", "were busy"),
    Level("active", "effective", "held × activity", "were effective"),
    Level("math", "math", "model FLOPs (MFU)", "were the network's FLOPs"),
    Level("kept", "kept", "FLOPs not lost", "were kept"),
    Level("useful", "useful", "jobs that ended well", "were useful"),
)
"""The levels from paid to useful: the one list of their names, which reports, savings, diagnoses, JSON and docs show."""
LEVELS: Final = tuple(level.name for level in STEPS)
DROPS: Final = (
    Drop("down", "held", "down", "drained or failed"),
    Drop("unallocated", "held", "unallocated", "held by nobody"),
    Drop("unobserved", "observed", "unobserved", "held, no samples",
         "let somebody measure these GPUs: `loadfactor check` says what can"),
    Drop("idle", "not_idle", "idle", "under the threshold"),
    Drop("underused", "active", "underused", "busy, less activity"),
    Drop("uncounted", "math", "FLOPs not known", "no network is named",
         "name the network of the jobs (`[[network]]` in loadfactor.toml) or track the runs (`loadfactor.track`)"),
    Drop("not_math", "math", "not model FLOPs", "active in other ways"),
    Drop("lost_work", "kept", "lost work", "made and lost"),
    Drop("failed_work", "useful", "failed work", "of jobs that failed"),
)  # fmt: skip
"""Everything between paid and useful, in the order in which it is taken away; the titles of metrics of the same are theirs."""
LOST_WORK, WITHOUT_MATH = "lost_work", "without_math"
NOT_MATH: Final = ("idle", "underused", "uncounted", "not_math")
"""The drops from observed to math: held and observed, and not the FLOPs of a network as far as anybody knows."""


@dataclass(frozen=True)
class Spent:
    """GPU-hours, or what they cost, by what they were spent on; `active` is the activity of held time, idle time too."""

    down: float = 0.0
    unallocated: float = 0.0
    unobserved: float = 0.0
    idle: float = 0.0
    busy: float = 0.0
    active: float = 0.0


@dataclass(frozen=True)
class WorkShares:
    """Of active time the share that was the network's FLOPs; of those the share kept; of these that of jobs that did not fail."""

    math: float
    kept: float
    useful: float


def take_shares(amount: float, shares: Iterable[float]) -> tuple[list[float], float]:
    """The losses of each share of what the one before left, and what is left in the end.

    >>> losses, left = take_shares(10_000, (0.9, 0.8, 0.7, 0.55, 0.92))
    >>> [round(loss, 2) for loss in losses], round(left, 2)
    ([1000.0, 1800.0, 2160.0, 2268.0, 221.76], 2550.24)
    """
    losses = []
    for share in shares:
        left = amount * share
        losses.append(amount - left)
        amount = left
    return losses, amount


def count_observed(hours: Spent, made_hours: float) -> float:
    """The part of what a job made that counts for its observed time: in proportion to held time."""
    observed = hours.idle + hours.busy
    return made_hours * observed / (observed + hours.unobserved) if observed else 0.0


def measure_shares(hours: Spent, made_hours: float, kept_hours: float, has_failed: bool) -> WorkShares:
    """The shares of a job whose model FLOPs, as GPU-hours at the dense peak, are known: those made, and those kept of them.

    What is more than its activity does not count.
    """
    return WorkShares(
        min(1.0, count_observed(hours, made_hours) / hours.active) if hours.active else 0.0,
        kept_hours / made_hours if made_hours else 1.0,
        0.0 if has_failed else 1.0,
    )


@dataclass(frozen=True)
class Waterfall:
    """Paid amounts by where they went: one for each of `DROPS`, and what was useful."""

    down: float
    unallocated: float
    unobserved: float
    idle: float
    underused: float
    uncounted: float
    not_math: float
    lost_work: float
    failed_work: float
    useful: float

    @property
    def paid(self) -> float:
        """All of it."""
        return fsum(_list_amounts(self))

    @property
    def unknown(self) -> float:
        """Time that is neither a loss nor useful, as far as anybody knows."""
        return fsum(getattr(self, drop.name) for drop in DROPS if drop.is_unknown)

    @property
    def without_math(self) -> float:
        """Time held and observed that was not the FLOPs of a network as far as anybody knows."""
        return fsum(_list_not_math(self))

    def after(self, level: str) -> float:
        """The amount at a level."""
        below = [drop.name for drop in DROPS if LEVELS.index(drop.to) > LEVELS.index(level)]
        return fsum([*(getattr(self, name) for name in below), self.useful])


AMOUNTS: Final = tuple(f.name for f in fields(Waterfall))
_list_amounts, _list_not_math = attrgetter(*AMOUNTS), attrgetter(*NOT_MATH)


def pour(spent: Spent, shares: WorkShares | None) -> Waterfall:
    """Where it went; `shares` is None where nobody knows the FLOPs.

    >>> fleet = Spent(unallocated=1000.0, idle=1800.0, busy=7200.0, active=5040.0)
    >>> found = pour(fleet, WorkShares(0.55, 0.92, 1.0))
    >>> [round(getattr(found, name), 2) for name in ("underused", "not_math", "lost_work", "useful", "paid", "unknown")]
    [2160.0, 2268.0, 221.76, 2550.24, 10000.0, 0.0]
    """
    active = spent.active
    # a little activity under the threshold is effective: less is left of what busy time is short of, as the metric has it
    before = (spent.down, spent.unallocated, spent.unobserved, spent.idle, spent.busy - active)
    if shares is None:
        return Waterfall(*before, active, 0.0, 0.0, 0.0, 0.0)
    (not_math, lost, failed), useful = take_shares(active, (shares.math, shares.kept, shares.useful))
    return Waterfall(*before, 0.0, not_math, lost, failed, useful)


def divide(amount: float, parts: Mapping[str, float], whole: float) -> dict[str, float]:
    """An amount by cause, where `parts` of a `whole` have a known one; what is left has none. The parts are never more than all.

    >>> divide(100.0, {"restart": 3.0, "preemption": 1.0}, 8.0), divide(100.0, {"checkpoint": 12.0}, 8.0)
    ({'restart': 37.5, 'preemption': 12.5}, {'checkpoint': 100.0})
    """
    needed = max(whole, fsum(parts.values()))
    return {cause: amount * part / needed for cause, part in parts.items() if part > 0}


def join(falls: Sequence[Waterfall]) -> Waterfall:
    """Several as one."""
    if len(falls) == 1:  # as most groups by job have
        return falls[0]
    columns = zip(*map(_list_amounts, falls), strict=True) if falls else repeat((), len(AMOUNTS))
    return Waterfall(*map(fsum, columns))
