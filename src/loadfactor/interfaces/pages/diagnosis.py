"""Pages of diagnoses of the books: why GPUs were not fuller, what is at stake, and what to change."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from loadfactor.base.quantities import write_share
from loadfactor.base.units import S_PER_MIN
from loadfactor.insight.diagnosis.diagnose import LEAST_SHARE
from loadfactor.insight.diagnosis.finding import CauseFinding, CauseTotal, FleetDiagnosis, JobDiagnosis, Range
from loadfactor.interfaces.charts import Chart, Series
from loadfactor.interfaces.document import DataTable, Document, Section, Tile
from loadfactor.interfaces.formats import UNKNOWN, instant, money, number
from loadfactor.interfaces.tables import col, table
from loadfactor.metrics.query.calendar import instant as moment

MOST_DRAWN: Final = 480
MOST_EXPLAINED: Final = 2
CAUSES: Final = "Causes over these jobs"
WORST_JOBS: Final = "The jobs that lost most"
STAKE: Final = "What its causes took at least and at most, each second counted once."
OVERLAP: Final = "ranges of several causes overlap and do not add up; the total counts every GPU-second once"


def build_diagnosis(found: FleetDiagnosis) -> Document:
    """The page of one job, or of the jobs that lost most."""
    if len(found.jobs) == 1 and found.of == f"job {found.jobs[0].job}":
        one = found.jobs[0]
        return Document(
            say_job(one, found.currency), draw_job(one, found.currency), _say_span(one), _list_tiles(one, found.currency),
            data=found,
        )  # fmt: skip
    sections = [
        Section(CAUSES, tables=(list_causes(found.causes, found.currency),)),
        Section(WORST_JOBS, tables=(list_jobs(found),)),
    ]
    notes = [f"{say_rest(found)}."] if found.not_looked_at else []
    if found.scheduling:
        sections.append(list_scheduling(found.scheduling, found.currency))
        sections += [explain(finding) for finding in found.scheduling[:MOST_EXPLAINED]]
    return Document(say_fleet(found), sections if found.jobs or found.scheduling else (), notes=notes, data=found)


def draw_job(job: JobDiagnosis, currency: str) -> tuple[Section, ...]:
    sections = [Section("Causes", tables=(list_findings(job.findings, currency),))] if job.findings else []
    sections += [explain(finding) for finding in job.findings]
    if job.cannot_tell:
        missing = table(
            job.cannot_tell, col("cause", "title"), col("not measured", lambda each: ", ".join(each.missing))
        )
        sections.append(Section("What cannot be told", "Neither found nor excluded.", tables=(missing,)))
    if charts := _draw_activity(job):
        sections.append(Section("When", charts=charts))
    return tuple(sections)


def say_fleet(found: FleetDiagnosis) -> str:
    """The first cause and the job to begin with; then what was lost, and for how much of it causes were found."""
    if not found.jobs:
        return f"Nothing of {found.of} lost GPU time that is known."
    low = sum(job.at_stake_gpu_hours.low for job in found.jobs)
    high = sum(job.at_stake_gpu_hours.high for job in found.jobs)
    lost = sum(job.lost_gpu_hours for job in found.jobs)
    count = "1 job" if len(found.jobs) == 1 else f"{len(found.jobs)} jobs"
    if not found.causes:
        return f"No cause was found: {count} of {found.of} lost {number(lost)} GPU-hours."
    first = found.causes[0]
    worst = max(
        ((job, of.gpu_hours.high) for job in found.jobs for of in job.findings if of.cause == first.cause),
        key=lambda pair: pair[1],
    )[0].job
    where = (
        f"in {first.jobs} jobs; look at job {worst} first" if first.jobs > 1 else f"in job {worst}; look at it first"
    )
    known = f"Causes were found for {number(low)} to {number(high)} of {number(lost)} GPU-hours"
    costs = [job.at_stake_cost for job in found.jobs if job.at_stake_cost is not None]
    worth = (
        f": {money(sum(c.low for c in costs), found.currency)} – {money(sum(c.high for c in costs), found.currency)}"
        if costs
        else ""
    )
    return f"Begin with {first.title}, {where}. {known} that {count} of {found.of} lost{worth}."


def say_rest(found: FleetDiagnosis) -> str:
    """Jobs that were not looked at; nothing where there are none."""
    if not found.not_looked_at:
        return ""
    jobs = "1 job with less was" if found.not_looked_at == 1 else f"{found.not_looked_at:,} jobs with less were"
    return f"{jobs} not looked at: {number(found.not_looked_at_gpu_hours)} GPU-hours idle or underused"


def list_jobs(found: FleetDiagnosis) -> DataTable:
    """The jobs that were looked at, each with its first cause and what all its causes have at stake."""

    def say(job: JobDiagnosis) -> str | None:
        return say_stake(job.at_stake_gpu_hours, job.at_stake_cost, found.currency) if job.findings else None

    return table(
        found.jobs,
        col("job", "job"),
        col("held GPU-h", "held_gpu_hours", "number"),
        col("lost GPU-h", "lost_gpu_hours", "number"),
        col("first cause", lambda job: job.findings[0].title if job.findings else _say_nothing(job)),
        col("how sure", lambda job: job.findings[0].sureness if job.findings else None),
        col("lost to known causes", say, hint=STAKE),
    )


def say_job(job: JobDiagnosis, currency: str) -> str:
    """What is wrong with a job, in the words of its first cause, and what that took; of a job without one, what it lost."""
    lost = f"lost {number(job.lost_gpu_hours)} of {number(job.held_gpu_hours)} GPU-hours"
    if not job.findings:
        return f"Job {job.job} {lost}; {'why cannot be told' if job.cannot_tell else 'no cause was found'}."
    first, *others = job.findings
    took = say_stake(first.gpu_hours, first.cost, currency)
    stake = say_stake(job.at_stake_gpu_hours, job.at_stake_cost, currency)
    return (
        f"{capitalize(first.title)}: it took {took} of job {job.job}, which {lost}. How sure: {first.sureness}."
        f"{f' All causes together: {stake}.' if others else ''}"
    )


def capitalize(title: str) -> str:
    """A title as a heading."""
    return title[:1].upper() + title[1:]


def _say_nothing(job: JobDiagnosis) -> str:
    return "cannot tell" if job.cannot_tell else "no cause found"


def _say_span(job: JobDiagnosis) -> str:
    read = f"in steps of {job.step_s // S_PER_MIN} min"
    return f"{job.gpus} GPUs, {instant(moment(job.start_ms))} to {instant(moment(job.end_ms))}, {read}."


def _list_tiles(job: JobDiagnosis, currency: str) -> tuple[Tile, ...]:
    stake = say_stake(job.at_stake_gpu_hours, job.at_stake_cost, currency) if job.findings else UNKNOWN
    rest = job.lost_gpu_hours - job.idle_gpu_hours - job.underused_gpu_hours
    parts = [("idle", job.idle_gpu_hours), ("underused", job.underused_gpu_hours), ("no tensor cores, or failed", rest)]
    lost = ", ".join(f"{number(hours)} {part}" for part, hours in parts if hours >= LEAST_SHARE * job.held_gpu_hours)
    return (
        Tile("Held", f"{number(job.held_gpu_hours)} GPU-h", f"{number(job.unobserved_gpu_hours)} of them unobserved"),
        Tile("Lost", f"{number(job.lost_gpu_hours)} GPU-h", lost),
        Tile("Lost to known causes", stake, "of all causes together" if job.findings else _say_nothing(job)),
    )


def list_scheduling(findings: Sequence[CauseFinding], currency: str) -> Section:
    """GPUs that were free beside waiting jobs."""
    free = table(
        findings,
        col("pool", "pool"),
        col("cause", "title"),
        col("GPU-h", "gpu_hours.high", "number"),
        col("lost to it", lambda f: say_stake(f.gpu_hours, f.cost, currency)),
    )
    lead = "GPUs that nobody held, beside jobs that waited: no job lost them."
    return Section("Free while jobs wait", lead, tables=(free,))


def list_findings(findings: Sequence[CauseFinding], currency: str) -> DataTable:
    """The causes of a job, each with its class and its own range."""
    return table(
        findings,
        col("cause", "title"),
        col("class", "class_"),
        col("how sure", "sureness"),
        col("of held time", lambda f: f"{write_share(f.share.low)} to {write_share(f.share.high)}"),
        col("lost to it", lambda f: say_stake(f.gpu_hours, f.cost, currency)),
        note=OVERLAP,
    )


def list_causes(causes: Sequence[CauseTotal], currency: str) -> DataTable:
    """Causes added up over jobs."""
    return table(
        causes,
        col("cause", "title"),
        col("class", "class_"),
        col("jobs", "jobs", "number"),
        col("lost to it", lambda c: say_stake(c.gpu_hours, c.cost, currency)),
        note=OVERLAP,
    )


def explain(finding: CauseFinding) -> Section:
    """One cause: what was seen, what speaks against it, what to measure next, what to change."""
    parts = (
        ("Seen", finding.evidence),
        ("Against it", finding.against),
        ("Measure next", finding.measure_next),
        ("Change", (finding.action.rstrip("."),)),
    )
    lines = tuple(f"{title}: {'; '.join(texts)}." for title, texts in parts if texts)
    return Section(finding.title[:1].upper() + finding.title[1:], lead=" ".join(lines))


def say_stake(hours: Range, cost: Range | None, currency: str) -> str:
    """A range of money; of GPU-hours where no price is known."""
    if cost is None:
        return f"{number(hours.low)} – {number(hours.high)} GPU-h"
    return f"{money(cost.low, currency)} – {money(cost.high, currency)}"


def _draw_activity(job: JobDiagnosis) -> tuple[Chart, ...]:
    known = job.activity
    if len(known) < 2:
        return ()
    stride = -(-len(known) // MOST_DRAWN)
    means = []
    for first in range(0, len(known), stride):
        values = [value for value in known[first : first + stride] if value is not None]
        means.append(sum(values) / len(values) if values else None)
    begin = moment(job.start_ms)
    at = [begin + timedelta(seconds=place * stride * job.step_s) for place in range(len(means))]
    return (Chart(f"Activity of the GPUs of job {job.job}", "line", at, (Series("mean", means),), "UTC", "share"),)
