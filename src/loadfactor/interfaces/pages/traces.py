"""The page of `loadfactor diagnose TRACE…`: the parts of each device's time, causes with their evidence, owners, kernels, ranks."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Final

from loadfactor.base.errors import SourceError
from loadfactor.base.units import US_PER_MS
from loadfactor.insight.causes import Cause
from loadfactor.insight.diagnosis.finding import JobDiagnosis
from loadfactor.insight.traces.collectives import Skew
from loadfactor.insight.traces.diagnose import diagnose_captures
from loadfactor.insight.traces.report import (
    DeviceReport,
    JobRate,
    TraceCost,
    TraceDiagnosis,
    TraceFinding,
    TraceInBooks,
    price_trace,
)
from loadfactor.interfaces.charts import Chart, Series
from loadfactor.interfaces.document import Assumption, Cell, Document, Section, Tile
from loadfactor.interfaces.formats import money, number, percent
from loadfactor.interfaces.pages.diagnosis import capitalize, say_job, say_stake
from loadfactor.interfaces.tables import col, cols, table
from loadfactor.sources.traces.read import read_trace
from loadfactor.tables.trace_events import TraceCapture, no_gpu_events, no_host_events

MOST: Final = 12
_NAME: Final = 60
DEVICE_PARTS: Final = {
    "busy_us": "busy",
    "kernel_busy_us": "kernels busy",
    "compute_us": "computing",
    "comm_exposed_us": "comm. exposed",
    "memcpy_exposed_us": "copies exposed",
    "idle_us": "idle",
}
STEP_PARTS: Final = {
    "duration_us": "length (ms)",
    "busy_us": "busy (ms)",
    "compute_us": "computing (ms)",
    "comm_exposed_us": "comm. exposed (ms)",
    "memcpy_exposed_us": "copies exposed (ms)",
    "idle_us": "idle (ms)",
}


def list_owners(reports: Sequence[DeviceReport]) -> Section | None:
    owners = [(report, owner) for report in reports for owner in report.host_owners]
    if not owners:
        return None
    longest = table(
        sorted(owners, key=lambda of: -of[1].idle_us)[:MOST],
        col("device", lambda of: name_device(of[0])),
        col(
            "the launching thread was in",
            lambda of: f"{of[1].name[:_NAME]}{f' ({of[1].call[:_NAME]})' if of[1].call else ''}",
        ),
        col("phase", lambda of: of[1].phase[:_NAME]),
        col("waits for", lambda of: of[1].waits_for),
        col("idle (ms)", lambda of: of[1].idle_us / US_PER_MS, "number"),
        col("longest (ms)", lambda of: of[1].longest_us / US_PER_MS, "number"),
        note="a correlation in time, not yet a cause",
    )
    return Section("Idle for the host", tables=(longest,))


def list_steps(reports: Sequence[DeviceReport]) -> Section | None:
    """The steps of the first of these devices that has some."""
    chosen = next((report for report in reports if report.steps), None)
    if chosen is None:
        return None
    steps = table(
        chosen.steps[:MOST],
        col("step", "step"),
        *cols(STEP_PARTS, lambda step, name: getattr(step, name) / US_PER_MS, "number"),
    )
    return Section(f"Steps of {name_device(chosen)}", tables=(steps,))


def list_kernels(reports: Sequence[DeviceReport]) -> Section | None:
    """The kernels and copies that took the longest, of the first of these devices that has some."""
    chosen = next((report for report in reports if report.top_kernels), None)
    if chosen is None:
        return None
    kernels = table(
        chosen.top_kernels,
        col("kernel or copy", lambda kernel: kernel.name[:_NAME]),
        col("kind", "kind"),
        col("count", "count", "number"),
        col("total (ms)", lambda kernel: kernel.total_us / US_PER_MS, "number"),
        col("of all", "share", "percent"),
        col("tensor cores", "tensor_cores"),
        col("of peak", "peak_share", "percent"),
        col("nearer limit", "bound"),
        note="tensor cores by the kernel's name; of peak: FLOP/s of matrix products ÷ the dense peak in 16 bits, a lower bound",
    )
    return Section(f"Kernels of {name_device(chosen)}", tables=(kernels,))


def list_ranks(skew: Skew) -> Section:
    clocks = "agree" if skew.clocks_agree else "do not agree: durations alone are compared"
    note = (
        f"{skew.collectives:,} collectives that all ranks have in common, counted from the end; the transfers take"
        f" {skew.transfer_us / US_PER_MS:,.3g} ms; clocks {clocks} ({skew.end_spread_us:,.3g} µs)"
    )
    ranks = table(
        sorted(skew.ranks, key=lambda rank: -rank.caused_us),
        col("rank", lambda rank: str(rank.rank)),
        col("waited (ms)", lambda rank: rank.wait_us / US_PER_MS, "number"),
        col("came last", "times_last", "number"),
        col("others waited for it (ms)", lambda rank: rank.caused_us / US_PER_MS, "number"),
        col("of all waiting", "caused_share", "percent"),
        note=note,
    )
    return Section("Ranks in collectives", tables=(ranks,))


NOT_ADDED: Final = "causes are bounds one by one: they do not add up"
SECONDS: Final = (
    "traces are some seconds of the job, the books all of it: where they differ, ask for a trace of another time"
)


def list_costs(books: TraceInBooks) -> Section:
    """Each cause in the money of the job that the traces are of."""
    costs = table(
        books.costs,
        col("cause", "title"),
        col("GPU-seconds in the traces", "gpu_s", "number"),
        col("their cost", "cost", "money"),
        col("saved, if all work of the job ran so", lambda cost: _say_saved(cost, books.currency)),
        currency=books.currency,
        note=NOT_ADDED,
    )
    price = books.price_per_gpu_hour
    rate = "without a known price" if price is None else f"at {money(price, books.currency)} per GPU-hour"
    hours = f"{number(books.busy_gpu_hours)} of {number(books.held_gpu_hours)} GPU-hours"
    lead = f"Job {books.job} worked {hours} that it held, {rate}."
    return Section(f"In the books of job {books.job}", lead, tables=(costs,))


def compare_with_books(diagnosis: JobDiagnosis, traced: TraceDiagnosis) -> Section:
    """Causes of the job by the books beside those by its traces, class by class, in the order of the books."""
    assert traced.in_books is not None
    currency, costs = traced.in_books.currency, {cost.cause: cost for cost in traced.in_books.costs}

    classes: dict[Cause, None] = dict.fromkeys(
        (*(f.class_ for f in diagnosis.findings), *(f.class_ for f in traced.findings))
    )
    rows: list[tuple[Cell, ...]] = []
    for of in classes:
        known = [f for f in diagnosis.findings if f.class_ == of]
        seen = [f for f in traced.findings if f.class_ == of]
        for finding, traced_cause in zip_longest(known, seen):
            stake = say_stake(finding.gpu_hours, finding.cost, currency) if finding else ""
            by_books = f"{finding.title}: {stake}" if finding else None
            saved = traced_cause and _say_saved(costs[traced_cause.cause], currency)
            rows.append((of, by_books, f"{traced_cause.title}: {saved}" if traced_cause else None))
    lead = say_job(diagnosis, currency)
    both = [of for of in classes if {f.class_ for f in diagnosis.findings} & {f.class_ for f in traced.findings} & {of}]
    if both:
        lead += f" Books and traces agree on {', '.join(both)}."
    elif diagnosis.findings and traced.findings:
        lead += " Books and traces name no cause of the same class."
    most = max((cost.job_gpu_hours_high for cost in traced.in_books.costs), default=0.0)
    if most > diagnosis.lost_gpu_hours:
        lead += (
            f" The traces would save {number(most)} GPU-hours, more than the books know to be lost: not all work of the job"
            " ran like them, or its activity is an optimistic signal."
        )
    beside = table(
        rows,
        col("class"),
        col("by the books: lost to it"),
        col("by the traces: saved, if all work ran so"),
        note=SECONDS,
    )
    return Section("Beside the books", lead, tables=(beside,) if rows else ())


def _say_saved(cost: TraceCost, currency: str) -> str:
    """The saving in all work of the job; GPU-hours where no price is known."""
    low, high = cost.job_cost_low, cost.job_cost_high
    if low is None or high is None:
        ends, unit = (number(cost.job_gpu_hours_low), number(cost.job_gpu_hours_high)), " GPU-h"
    else:
        ends, unit = (money(low, currency), money(high, currency)), ""
    return " – ".join(dict.fromkeys(ends)) + unit


UNREADABLE: Final = "not readable"
PARTS: Final = (
    ("compute", "compute_us"),
    ("exposed communication", "comm_exposed_us"),
    ("exposed copies", "memcpy_exposed_us"),
    ("exposed memsets", "memset_exposed_us"),
    ("idle: host", "idle_host_us"),
    ("idle: launch", "idle_launch_us"),
    ("idle: device", "idle_device_us"),
    ("idle: unknown", "idle_unknown_us"),
)
MOST_ROWS: Final = 64


def build_traces_page(
    paths: Sequence[Path], rate: JobRate | None = None, diagnosis: JobDiagnosis | None = None
) -> Document:
    """The diagnosis of the traces at these paths, in the money of their job and beside what its books say, where it is known.

    Raises SourceError where none can be read.
    """
    found = read_traces(paths, rate, diagnosis)
    judged = [report for report in found.traces if report.busy_us is not None]
    sections = [_list_traces(found.traces)]
    if judged:
        sections.append(_draw_parts(judged))
    if found.findings:
        causes = table(
            found.findings,
            col("cause", "title"),
            col("class", "class_"),
            col("of the time", "share", "percent", hint="From the first start to the last end on the device."),
            col("how sure", "sureness"),
            col("could be saved", "saved_share_high", "percent", hint="At most, of the time, by this cause alone."),
            col("where", _say_where),
        )
        sections.append(Section("Causes", tables=(causes,)))
    if found.findings and found.in_books is not None:
        sections.append(list_costs(found.in_books))
    if found.in_books is not None and found.in_books.diagnosis is not None:
        sections.append(compare_with_books(found.in_books.diagnosis, found))
    sections += [
        Section(
            capitalize(f.title), f"{' '.join(f.evidence)} What to do: {f.action} What else looks like it: {f.misleads}"
        )
        for f in found.findings
    ]
    late = {finding.rank for finding in found.findings if finding.rank is not None}
    first = sorted(judged, key=lambda report: report.rank not in late)
    sections += [section for section in (list_owners(judged), list_steps(first), list_kernels(first)) if section]
    if found.skew is not None:
        sections.append(list_ranks(found.skew))
    return Document(
        say_verdict(found),
        tuple(sections),
        tiles=_list_tiles(judged),
        assumptions=(
            Assumption("of the time", "from the first start to the last end on the device", "docs/diagnose-traces.md"),
            Assumption(
                "busy",
                "anything ran, copies too; counters such as GPU_UTIL know kernels alone",
                "docs/diagnose-traces.md",
            ),
            Assumption(
                "could be saved",
                "bounds for one cause alone: what is no longer lost here may be lost elsewhere",
                "findings",
            ),
        ),
        notes=_list_notes(found.traces),
        data=found,
    )


def read_traces(
    paths: Sequence[Path], rate: JobRate | None = None, diagnosis: JobDiagnosis | None = None
) -> TraceDiagnosis:
    """The diagnosis of the traces at these paths, in money where they are of a job. Raises SourceError where none can be read."""
    found = diagnose_captures(_read_all(paths))
    return found if rate is None else price_trace(found, rate, diagnosis)


def _read_all(paths: Sequence[Path]) -> Iterator[TraceCapture]:
    """The captures, one at a time. Where several paths are given, one that cannot be read is a capture that says so."""
    for path in paths:
        try:
            yield from read_trace(path)
        except SourceError as error:
            if len(paths) == 1:
                raise
            yield TraceCapture(
                trace=path.name,
                path=str(path),
                format=UNREADABLE,
                names=(),
                devices=(),
                gpu=no_gpu_events(),
                host=no_host_events(),
                refused=str(error),
            )


def say_verdict(found: TraceDiagnosis) -> str:
    """The largest cause, or why there is no verdict."""
    if found.findings:
        first = found.findings[0]
        others = f" Then: {', '.join(item.title for item in found.findings[1:3])}." if found.findings[1:] else ""
        alone = (
            ""
            if any(report.busy_us is not None for report in found.traces)
            else " (the steps of the loop, without a GPU)"
        )
        return f"{first.headline.rstrip('.')}{alone}. How sure: {first.sureness}.{others}"
    if any(report.can_judge for report in found.traces):
        return "Nothing but computing takes 5 % of the time or more."
    reason = next((because for report in found.traces for because in report.because), "there is no trace in it")
    return f"Cannot be judged: {reason[:1].lower()}{reason[1:]}"


def _say_where(finding: TraceFinding) -> str:
    """The rank that others wait for, else on how many devices it was found."""
    count = len(finding.found_at)
    return f"rank {finding.rank}" if finding.rank is not None else "1 device" if count == 1 else f"{count:,} devices"


def _list_tiles(reports: Sequence[DeviceReport]) -> tuple[Tile, ...]:
    span = sum(report.gpu_span_us or 0 for report in reports)
    if not span:
        return ()
    parts = (
        ("busy", "busy_us"),
        ("computing", "compute_us"),
        ("exposed communication", "comm_exposed_us"),
        ("idle", "idle_us"),
    )
    return tuple(
        Tile(title, percent(sum(getattr(report, name) or 0 for report in reports) / span), "of the traced time")
        for title, name in parts
    )


def name_device(report: DeviceReport) -> str:
    """A device of a trace in few words: its rank where there is one, else its file."""
    who = f"rank {report.rank}" if report.rank is not None else report.trace[:24]
    return who if report.device is None else f"{who}, {str(report.device).removeprefix('/device:')}"


def _list_traces(reports: Sequence[DeviceReport]) -> Section:
    def share(report: DeviceReport, name: str) -> float | None:
        part, span = getattr(report, name), report.gpu_span_us
        return part / span if span and part is not None else None

    def judged(report: DeviceReport) -> str:
        return ("yes" if report.can_judge else "no") if isinstance(report.can_judge, bool) else "partly"

    devices = table(
        reports[:MOST_ROWS],
        col("device", name_device),
        col("judged", judged),
        col("span (ms)", lambda of: None if of.gpu_span_us is None else of.gpu_span_us / US_PER_MS, "number"),
        *cols(DEVICE_PARTS, share, "percent"),
    )
    return Section("Devices", tables=(devices,))


def _draw_parts(reports: Sequence[DeviceReport]) -> Section:
    shown = reports[:MOST_ROWS]
    series = tuple(
        Series(title, tuple((getattr(report, name) or 0) / US_PER_MS for report in shown))
        for title, name in PARTS
        if any(getattr(report, name) for report in shown)
    )
    chart = Chart(
        title="What each device did",
        kind="stacked bar",
        x=tuple(name_device(report) for report in shown),
        series=series,
        y_label="ms",
    )
    return Section("Parts of the time", charts=(chart,))


def _list_notes(reports: Sequence[DeviceReport]) -> tuple[str, ...]:
    notes = [f"{name_device(report)}: {text}" for report in reports for text in (*report.because, *report.notes)]
    return tuple(dict.fromkeys(notes))[:MOST_ROWS]
