"""The most expensive jobs, and how one of them used its GPUs: the most expensive training job."""

from collections.abc import Sequence
from datetime import timedelta

from loadfactor.interfaces.charts import Chart, Series
from loadfactor.interfaces.document import DataTable, Histogram, Section, TableColumn
from loadfactor.interfaces.formats import duration, number, percent
from loadfactor.interfaces.reports.facts import JobFacts
from loadfactor.interfaces.reports.inquiry import OF_JOBS, UNTAGGED, Group, Inquiry, Key, group_readings
from loadfactor.metrics.query.calendar import instant
from loadfactor.metrics.query.reading import Readings, rank

MOST = 10
LOWEST, HIGHEST = 16, 8
"""GPUs shown of a larger job."""


def build_section(inquiry: Inquiry) -> JobFacts | None:
    """The most expensive jobs, and a histogram of each GPU of the one looked into."""
    readings = inquiry.jobs.of(OF_JOBS)
    jobs = _most_expensive_first(readings)
    if not jobs:
        return None
    keys = readings.keys
    training = (keys[number][0] for number in jobs if keys[number][2] == "training")
    job = next(training, keys[jobs[0]][0]) or ""
    shown = group_readings(readings.pick([*jobs[:MOST], *(number for number in jobs[MOST:] if keys[number][0] == job)]))
    gpus = find_gpus(inquiry, job)
    section = Section(
        "Most expensive jobs",
        _lead(len(jobs), job, next((group for key, group in shown if key[0] == job), Group({})), gpus),
        draw_activity(inquiry, job),
        (_table(shown, inquiry.totals.currency),),
        draw_histograms(gpus),
    )
    return JobFacts("job", section, [r for _, group in (*shown, *gpus) for r in group.all], job)


def find_gpus(inquiry: Inquiry, job: str) -> Sequence[tuple[Key, Group]]:
    """The GPUs of a job with their histograms, the lowest utilization first. Raises InputError for a job the books do not know."""
    by_gpu = inquiry.groups("utilization_histogram", "utilization", "observed_gpu_hours", by=("device",), job=job)
    gpus = [(key, group) for key, group in by_gpu if group.bins("utilization_histogram")]
    return sorted(gpus, key=lambda g: (rank(g[1].value("utilization")), str(g[0])))


def draw_histograms(gpus: Sequence[tuple[Key, Group]]) -> Sequence[Histogram]:
    """One a GPU; of many the lowest and the highest."""
    return [_histogram(key, group) for key, group in _lowest_and_highest(gpus)]


def _most_expensive_first(readings: Readings) -> list[int]:
    """The numbers of the groups that are jobs with GPUs; of thousands a few are shown, so no more is made of the others."""
    keys, costs, hours = readings.keys, readings.column("cost"), readings.column("allocated_gpu_hours")
    held = [number for number, key in enumerate(keys) if key[0] is not None and hours[number]]
    return sorted(held, key=lambda n: (-rank(costs[n]), -rank(hours[n]), str(keys[n])))


def draw_activity(inquiry: Inquiry, job: str) -> Sequence[Chart]:
    """Activity of the job's GPUs over time, as finely as its samples and the picture allow."""
    activity = inquiry.books.job_activity(job, *inquiry.window)
    if activity is None or len(activity.mean) < 2:
        return ()
    start = inquiry.local(instant(activity.start_ms))
    at = [start + timedelta(seconds=i * activity.step_s) for i in range(len(activity.mean))]
    series = [Series("mean", activity.mean)]
    if activity.gpus > 1:
        series = [Series("highest GPU", activity.highest), *series, Series("lowest GPU", activity.lowest)]
    title = f"Activity of the GPUs of job {job}, each {duration(activity.step_s)}"
    return (Chart(title, "line", at, series, str(inquiry.timezone), "share"),)


def _table(jobs: Sequence[tuple[Key, Group]], currency: str) -> DataTable:
    columns = (
        TableColumn("job"),
        TableColumn("team"),
        TableColumn("purpose"),
        TableColumn("cost", "money", currency),
        TableColumn("allocated GPU-hours", "number"),
        TableColumn("utilization", "percent"),
        TableColumn("idle cost", "money", currency),
    )
    rows = [(*(name or UNTAGGED for name in key), *(group.value(m) for m in OF_JOBS)) for key, group in jobs]
    return DataTable(columns, rows)


def _lead(jobs: int, job: str, found: Group, gpus: Sequence[tuple[Key, Group]]) -> str:
    said = [f"{jobs:,} jobs had GPUs allocated." if jobs > 1 else "One job had GPUs allocated."]
    said.append(
        f"Job {job} cost {found.money('cost')}." if found.value("cost") is not None else f"Job {job} has no price."
    )
    return " ".join((*said, say_gpus(gpus))).rstrip()


def say_gpus(gpus: Sequence[tuple[Key, Group]]) -> str:
    """From which utilization to which, and what is shown."""
    said = []
    if gpus:
        low, high = (percent(gpus[place][1].value("utilization")) for place in (0, -1))
        said.append(
            f"Utilization of its {len(gpus)} GPUs: {low} to {high}."
            if len(gpus) > 1
            else f"Utilization of its GPU: {low}."
        )
        said.append("Each histogram shows one GPU's observed time by activity, 0 on the left, 100 % on the right.")
    if len(gpus) > LOWEST + HIGHEST:
        said.append(f"Shown are the {LOWEST} lowest and the {HIGHEST} highest.")
    return " ".join(said)


def _lowest_and_highest(gpus: Sequence[tuple[Key, Group]]) -> Sequence[tuple[Key, Group]]:
    return gpus if len(gpus) <= LOWEST + HIGHEST else [*gpus[:LOWEST], *gpus[-HIGHEST:]]


def _histogram(key: Key, group: Group) -> Histogram:
    note = f"{percent(group.value('utilization'))}, {number(group.value('observed_gpu_hours'))} h observed"
    return Histogram(key[0] or "", group.bins("utilization_histogram"), note)
