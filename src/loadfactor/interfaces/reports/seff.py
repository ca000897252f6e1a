"""The page of `loadfactor seff`: one job in ten lines, as `seff` and `jobstats` print it; of an array its tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from math import fsum
from shlex import quote
from typing import Any

from loadfactor.books.job_summary import JobLoss, JobSummary, ReportedUse
from loadfactor.interfaces.document import Document, Section, Suggestion
from loadfactor.interfaces.formats import UNKNOWN, counted, duration, instant, money, number, percent
from loadfactor.interfaces.functions import make_function
from loadfactor.interfaces.pages.waterfall import TITLES
from loadfactor.interfaces.reports.job import REMEDIES, say_reported
from loadfactor.interfaces.requests import SeffRequest
from loadfactor.interfaces.tables import col, table
from loadfactor.settings.config import settings

MOST_PARTS = 10
NOT_KNOWN = "not known"
INSTANTS = ("submitted", "start", "end")


@dataclass(frozen=True)
class SeffAnswer:
    """A job, or each task of an array and each component of a het job."""

    jobs: tuple[JobSummary, ...]


def build_page(request: SeffRequest) -> Document:
    """The job by the books."""
    return build_seff(SeffAnswer(request.books.summarize_jobs(request.job)), request)


def build_seff(found: SeffAnswer, request: SeffRequest) -> Document:
    """The job; nothing where it is a notice and its user opted out."""
    if request.notice:
        kept = tuple(of for of in found.jobs if not settings().notices.leaves_out(of.user))
        if not kept:
            return Document("", data=SeffAnswer(()))
        found = SeffAnswer(kept)
    more = () if request.notice or request.server else (_suggest(found, request),)
    if len(found.jobs) > 1:
        return _build_parts(found, request.job, more)
    (job,) = found.jobs
    rows = table(_list_lines(job), col("job", lambda row: row[0]), col(job.job, lambda row: row[1]))
    return Document(_say(job), (Section(tables=(rows,), suggestions=more),), data=found)


def _suggest(found: SeffAnswer, request: SeffRequest) -> Suggestion:
    job = max(found.jobs, key=lambda of: of.gpu_hours or 0.0)
    store = f" --store {quote(str(request.store))}" if request.store else ""
    return Suggestion(f"loadfactor report --job {quote(job.job)}{store}", "where its money leaked, and why")


def _say(job: JobSummary) -> str:
    full = NOT_KNOWN if job.utilization is None else percent(job.utilization)
    cost = "" if job.cost is None else f", {money(job.cost, job.currency)}"
    return f"Job {job.job}: GPU utilization {full}, {number(job.gpu_hours)} GPU-hours{cost}."


def _list_lines(job: JobSummary) -> Sequence[tuple[str, str]]:
    who = " / ".join(part for part in (job.user, job.team, job.project) if part)
    attempts = f", {job.attempts} attempts" if job.attempts > 1 else ""
    until = "still running" if job.end is None else instant(job.end)
    models = ", ".join(job.accelerators) or "GPUs of a model that is not known"
    nodes = f" on {counted(float(job.nodes), 'node')}" if job.nodes else ""
    return (
        ("name", job.name or UNKNOWN),
        ("user / team", who or UNKNOWN),
        ("state", f"{job.state or NOT_KNOWN}{attempts}"),
        ("GPUs", f"{number(job.gpus)} × {models}{nodes}" if job.gpus else NOT_KNOWN),
        ("held", f"{duration(job.wall_s)}, {instant(job.start)} to {until}"),
        ("GPU utilization", _say_observed(job)),
        ("GPU memory", _say_memory(job)),
        (
            "GPU-hours",
            f"{number(job.gpu_hours)} held, {number(job.effective_gpu_hours)} effective, {number(job.idle_gpu_hours)} idle",
        ),
        ("cost", _say_cost(job)),
        ("finding", say_finding(job)),
    )


def _say_observed(job: JobSummary) -> str:
    if job.utilization is None:
        reported = "" if job.reported is None else f"; {say_reported(job.reported)}"
        return f"{NOT_KNOWN}: nothing was sampled while it held GPUs{reported}"
    return f"{percent(job.utilization)} of the observed time, which is {percent(job.coverage)} of the time held"


def _say_memory(job: JobSummary) -> str:
    if job.mem_utilization is None and job.mem_utilization_peak is None:
        return NOT_KNOWN
    return f"peak {percent(job.mem_utilization_peak)}, mean {percent(job.mem_utilization)}"


def _say_cost(job: JobSummary) -> str:
    if job.cost is None:
        return f"{NOT_KNOWN}: no price of these GPUs"
    return f"{money(job.cost, job.currency)}, of it idle {money(job.idle_cost, job.currency)}"


def say_finding(job: JobSummary) -> str:
    """The largest loss of a job, and what to do."""
    if job.utilization is None and job.reported is not None:
        return f"idle time is not known: {say_reported(job.reported)}; import what its Prometheus still has"
    if job.utilization is None:
        return "nothing can be said: find out which exporter samples these GPUs"
    if job.loss is None:
        return "nothing was lost that is known"
    lost = f"{number(job.loss.gpu_hours)} GPU-hours" if job.loss.cost is None else money(job.loss.cost, job.currency)
    return f"{TITLES[job.loss.name]}, {lost}: {REMEDIES[job.loss.name]}"


def _build_parts(found: SeffAnswer, given: str, more: Sequence[Suggestion]) -> Document:
    """Tasks of an array, or components of a het job: the most expensive of them, and sums."""
    hours, costs = ([getattr(of, name) for of in found.jobs] for name in ("gpu_hours", "cost"))
    currency = found.jobs[0].currency
    held = number(fsum(of for of in hours if of is not None))
    cost = "of unknown cost" if None in costs else money(fsum(costs), currency)
    order = sorted(found.jobs, key=lambda of: (-(of.cost or 0.0), -(of.gpu_hours or 0.0)))
    left = len(order) - MOST_PARTS
    rows = table(
        order[:MOST_PARTS],
        col("job", "job"),
        col("state", lambda of: of.state or NOT_KNOWN),
        col("held", "wall_s", "duration"),
        col("GPU-hours", "gpu_hours", "number"),
        col("utilization", "utilization", "percent"),
        col("observed", "coverage", "percent"),
        col("cost", "cost", "money"),
        currency=currency,
        note=f"and {left:,} more; --json lists them all" if left > 0 else "",
    )
    worst = max(found.jobs, key=lambda of: (of.loss.cost or 0.0, of.loss.gpu_hours) if of.loss else (0.0, 0.0))
    return Document(
        f"Job {given}: {counted(float(len(found.jobs)), 'part')}, {held} GPU-hours, {cost}.",
        (Section("", f"Job {worst.job} lost most: {say_finding(worst)}.", tables=(rows,), suggestions=more),),
        data=found,
    )


def read_answer(payload: Mapping[str, Any]) -> SeffAnswer:
    """The answer of a server. Raises KeyError, TypeError and ValueError where it is none."""
    return SeffAnswer(tuple(_read_job(of) for of in payload["jobs"]))


def _read_job(of: Mapping[str, Any]) -> JobSummary:
    values: dict[str, Any] = {
        item.name: of.get(item.name) if item.name == "reported" else of[item.name] for item in fields(JobSummary)
    }
    for name in INSTANTS:
        values[name] = None if values[name] is None else datetime.fromisoformat(values[name])
    values["accelerators"] = tuple(values["accelerators"])
    values["loss"] = None if values["loss"] is None else JobLoss(**values["loss"])
    values["reported"] = None if values["reported"] is None else ReportedUse(**values["reported"])
    return JobSummary(**values)


seff = make_function("seff", SeffRequest, build_page, "The answer of `loadfactor seff` as a page.")
