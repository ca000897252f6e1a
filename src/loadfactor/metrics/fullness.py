"""Metrics of fullness: GPU-hours by what happened in them."""

from dataclasses import replace

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
