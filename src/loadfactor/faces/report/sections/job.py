"""Which jobs cost most, and how evenly did one of them use its GPUs? By default the dearest one that trained."""

from loadfactor.faces.answer import Column, Table
from loadfactor.faces.formats import money, number, percent
from loadfactor.faces.report import Histogram, Section
from loadfactor.faces.report.inquiry import UNTAGGED, Inquiry

DEAREST = 10
LOWEST, HIGHEST = 16, 8  # GPUs shown of a larger job
METRICS = ("cost", "allocated_gpu_hours", "utilization", "idle_cost")


def section(inquiry: Inquiry) -> Section | None:
    """The dearest jobs, and a histogram of each GPU of the one looked into."""
    jobs = inquiry.groups(*METRICS, by=("job", "team", "purpose"))
    jobs = [(key, row) for key, row in jobs if key[0] is not None]
    if not jobs:
        return None
    jobs.sort(key=lambda j: (-(j[1].value("cost") or 0.0), -(j[1].value("allocated_gpu_hours") or 0.0)))
    gangs = [key[0] for key, _ in jobs if key[2] == "training"] or [key[0] for key, _ in jobs]
    job = inquiry.job or gangs[0] or ""
    table = Table(
        "",
        (
            Column("job"), Column("team"), Column("for"), Column("cost", "money"), Column("GPU-h", "number"),
            Column("utilization", "percent"), Column("idle", "money"),
        ),
        [
            (key[0], key[1] or UNTAGGED, key[2] or UNTAGGED, *(row.value(m) for m in METRICS))
            for key, row in jobs[:DEAREST]
        ],
    )  # fmt: skip
    gpus = inquiry.groups("utilization_histogram", "utilization", "observed_gpu_hours", by=("device",), job=job)
    gpus = [(key, row) for key, row in gpus if row.bins("utilization_histogram")]
    gpus.sort(key=lambda g: g[1].value("utilization") or 0.0)
    (cost,) = inquiry.ask("cost", job=job)
    dollars = f" cost {money(cost.value)}" if isinstance(cost.value, float) else " has no price"
    lead = f"{len(jobs):,} jobs held GPUs. Job {job}{dollars}"
    if gpus:
        low, high = (percent(g[1].value("utilization")) for g in (gpus[0], gpus[-1]))
        spread = f"; its {len(gpus)} GPUs ran between {low} and {high}" if len(gpus) > 1 else f"; its GPU ran at {low}"
        lead += spread + ". Below, how long each was how active, empty on the left, full on the right"
    shown = gpus if len(gpus) <= LOWEST + HIGHEST else [*gpus[:LOWEST], *gpus[-HIGHEST:]]
    if len(shown) < len(gpus):
        lead += f"; the {LOWEST} lowest and the {HIGHEST} highest of them"
    histograms = [
        Histogram(
            key[0] or "",
            row.bins("utilization_histogram"),
            f"{percent(row.value('utilization'))}, {number(row.value('observed_gpu_hours'))} h seen",
        )
        for key, row in shown
    ]
    readings = [r for _, row in (*jobs[:DEAREST], *gpus) for r in row.all]
    return Section(
        "job", "Dearest jobs, and one looked into", f"{lead}.", (), (table,), histograms, readings=readings,
        data={"job": job},
    )  # fmt: skip
