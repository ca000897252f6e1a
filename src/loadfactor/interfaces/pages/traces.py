"""The page of `loadfactor diagnose TRACE…`: the parts of each device's time, causes with their evidence, owners, kernels, ranks."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Final

from loadfactor.base.errors import SourceError
from loadfactor.base.units import US_PER_MS
from loadfactor.insight.causes import Cause
from loadfactor.insight.diagnosis.finding import JobDiagnosis
from loadfactor.insight.diagnosis.trace_money import JobRate, price_trace
from loadfactor.insight.traces.collectives import Skew
from loadfactor.insight.traces.diagnose import diagnose_captures
from loadfactor.insight.traces.report import DeviceReport, TraceCost, TraceDiagnosis, TraceFinding, TraceInBooks
from loadfactor.interfaces.charts import Chart, Series
from loadfactor.interfaces.document import Assumption, Cell, DataTable, Document, Section, TableColumn, Tile
from loadfactor.interfaces.formats import money, number, percent
from loadfactor.interfaces.pages.diagnosis import say_job, say_stake
from loadfactor.sources.traces.read import read_trace
from loadfactor.tables.trace_events import TraceCapture, no_gpu_events, no_host_events

MOST: Final = 12
_NAME: Final = 60


def _name_judged(report: DeviceReport) -> str:
    who = f"rank {report.rank}" if report.rank is not None else report.trace[:24]
    return f"{who}, {str(report.device).removeprefix('/device:')}"


def list_owners(reports: Sequence[DeviceReport]) -> Section | None:
    """Who held the host while GPUs waited, the longest of all devices."""
    columns = (
        TableColumn("device"),
        TableColumn("the launching thread was in"),
        TableColumn("phase"),
        TableColumn("waits for"),
        TableColumn("idle (ms)", "number"),
        TableColumn("longest (ms)", "number"),
    )
    owners = [(owner.idle_us, report, owner) for report in reports for owner in report.host_owners]
    rows: list[tuple[Cell, ...]] = [
        (
            _name_judged(report),
            f"{owner.name[:_NAME]}{f' ({owner.call[:_NAME]})' if owner.call else ''}",
            owner.phase[:_NAME],
            owner.waits_for,
            owner.idle_us / US_PER_MS,
            owner.longest_us / US_PER_MS,
        )
        for _, report, owner in sorted(owners, key=lambda item: -item[0])[:MOST]
    ]
    note = "a correlation in time, not yet a cause"
    return Section("Idle for the host", tables=(DataTable(columns, rows, note=note),)) if rows else None


def list_steps(reports: Sequence[DeviceReport]) -> Section | None:
    """The steps of the first device that has some."""
    chosen = next((report for report in reports if report.steps), None)
    if chosen is None:
        return None
    columns = (
        TableColumn("step"),
        *(
            TableColumn(f"{title} (ms)", "number")
            for title in ("length", "busy", "computing", "comm. exposed", "copies exposed", "idle")
        ),
    )
    rows: list[tuple[Cell, ...]] = [
        (
            step.step,
            *(
                value / US_PER_MS
                for value in (
                    step.duration_us,
                    step.busy_us,
                    step.compute_us,
                    step.comm_exposed_us,
                    step.memcpy_exposed_us,
                    step.idle_us,
                )
            ),
        )
        for step in chosen.steps[:MOST]
    ]
    return Section(f"Steps of {_name_judged(chosen)}", tables=(DataTable(columns, rows),))


def list_kernels(reports: Sequence[DeviceReport]) -> Section | None:
    """The kernels and copies of the first device that took the longest."""
    chosen = next((report for report in reports if report.top_kernels), None)
    if chosen is None:
        return None
    columns = (
        TableColumn("kernel or copy"),
        TableColumn("kind"),
        TableColumn("count", "number"),
        TableColumn("total (ms)", "number"),
        TableColumn("of all", "percent"),
        TableColumn("tensor cores"),
        TableColumn("of peak", "percent"),
        TableColumn("nearer limit"),
    )
    rows: list[tuple[Cell, ...]] = [
        (
            kernel.name[:_NAME],
            kernel.kind,
            kernel.count,
            kernel.total_us / US_PER_MS,
            kernel.share,
            kernel.tensor_cores,
            kernel.peak_share,
            kernel.bound,
        )
        for kernel in chosen.top_kernels
    ]
    note = "tensor cores by the kernel's name; of peak: FLOP/s of matrix products ÷ the dense peak in 16 bits, a lower bound"
    return Section(f"Kernels of {_name_judged(chosen)}", tables=(DataTable(columns, rows, note=note),))


def list_ranks(skew: Skew) -> Section:
    """Who waited in collectives, and for whom."""
    columns = (
        TableColumn("rank"),
        TableColumn("waited (ms)", "number"),
        TableColumn("came last", "number"),
        TableColumn("others waited for it (ms)", "number"),
        TableColumn("of all waiting", "percent"),
    )
    rows = [
        (str(rank.rank), rank.wait_us / US_PER_MS, rank.times_last, rank.caused_us / US_PER_MS, rank.caused_share)
        for rank in skew.ranks
    ]
    clocks = "agree" if skew.clocks_agree else "do not agree: durations alone are compared"
    note = (
        f"{skew.collectives:,} collectives that all ranks have in common, counted from the end; the transfers take"
        f" {skew.transfer_us / US_PER_MS:,.3g} ms; clocks {clocks} ({skew.end_spread_us:,.3g} µs)"
    )
    return Section("Ranks in collectives", tables=(DataTable(columns, rows, note=note),))


NOT_ADDED: Final = "causes are bounds one by one: they do not add up"
SECONDS: Final = (
    "traces are some seconds of the job, the books all of it: where they differ, ask for a trace of another time"
)


def list_costs(books: TraceInBooks) -> Section:
    """Each cause in the money of the job that the traces are of."""
    columns = (
        TableColumn("cause"),
        TableColumn("GPU-seconds in the traces", "number"),
        TableColumn("their cost", "money", books.currency),
        TableColumn("saved, if all work of the job ran so"),
    )
    rows: list[tuple[Cell, ...]] = []
    for cost in books.costs:
        rows.append((cost.cause, cost.gpu_s, cost.cost, _say_saved(cost, books.currency)))
    price = books.price_per_gpu_hour
    rate = "without a known price" if price is None else f"at {money(price, books.currency)} per GPU-hour"
    hours = f"{number(books.busy_gpu_hours)} of {number(books.held_gpu_hours)} GPU-hours"
    lead = f"Job {books.job} worked {hours} that it held, {rate}."
    return Section(f"In the books of job {books.job}", lead, tables=(DataTable(columns, rows, note=NOT_ADDED),))


def compare_with_books(diagnosis: JobDiagnosis, traced: TraceDiagnosis) -> Section:
    """What the books say of the job beside what its traces say, class by class, in the order of the books."""
    assert traced.in_books is not None
    currency, costs = traced.in_books.currency, {cost.cause: cost for cost in traced.in_books.costs}
    columns = (
        TableColumn("class"),
        TableColumn("by the books: at stake"),
        TableColumn("by the traces: saved, if all work ran so"),
    )
    classes: dict[Cause, None] = dict.fromkeys(
        (*(f.class_ for f in diagnosis.findings), *(f.class_ for f in traced.findings))
    )
    rows: list[tuple[Cell, ...]] = []
    for of in classes:
        known = [f for f in diagnosis.findings if f.class_ == of]
        seen = [f.cause for f in traced.findings if f.class_ == of]
        for finding, cause in zip_longest(known, seen):
            stake = say_stake(finding.gpu_hours, finding.cost, currency) if finding else ""
            by_books = f"{finding.title}: {stake}" if finding else None
            rows.append((of, by_books, f"{cause}: {_say_saved(costs[cause], currency)}" if cause else None))
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
    return Section("Beside the books", lead, tables=(DataTable(columns, rows, note=SECONDS),) if rows else ())


def _say_saved(cost: TraceCost, currency: str) -> str:
    """What would be saved of all work of the job; GPU-hours where no price is known."""
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
        sections.append(_list_findings(found.findings))
    if found.findings and found.in_books is not None:
        sections.append(list_costs(found.in_books))
    if found.in_books is not None and found.in_books.diagnosis is not None:
        sections.append(compare_with_books(found.in_books.diagnosis, found))
    sections += [_explain(finding) for finding in found.findings]
    sections += [section for section in (list_owners(judged), list_steps(judged), list_kernels(judged)) if section]
    if found.skew is not None:
        sections.append(list_ranks(found.skew))
    return Document(
        say_verdict(found),
        tuple(sections),
        tiles=_list_tiles(judged),
        assumptions=(
            Assumption("share", "part ÷ span of the device, first start to last end", "docs/diagnose-traces.md"),
            Assumption(
                "busy",
                "anything ran, copies too; counters such as GPU_UTIL know kernels alone",
                "docs/diagnose-traces.md",
            ),
            Assumption(
                "saved", "bounds for one cause alone: what is no longer lost here may be lost elsewhere", "findings"
            ),
        ),
        notes=_list_notes(found.traces),
        data=found,
    )


def read_traces(
    paths: Sequence[Path], rate: JobRate | None = None, diagnosis: JobDiagnosis | None = None
) -> TraceDiagnosis:
    """What the traces at these paths say, in money where they are of a job. Raises SourceError where none can be read."""
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
    """The largest cause, or why nothing can be said."""
    if found.findings:
        first = found.findings[0]
        others = f", then {', '.join(item.cause for item in found.findings[1:3])}" if found.findings[1:] else ""
        of = (
            "span" if any(report.busy_us is not None for report in found.traces) else "steps of the loop, without a GPU"
        )
        return f"{first.cause} first: {percent(first.share)} of the {of}, {first.sureness} sureness{others}."
    if any(report.can_judge for report in found.traces):
        return "No part of the span that is no computing reaches 5 %."
    reason = next((because for report in found.traces for because in report.because), "there is no trace in it")
    return f"Cannot be judged: {reason[:1].lower()}{reason[1:]}"


def _list_tiles(reports: Sequence[DeviceReport]) -> tuple[Tile, ...]:
    span = sum(report.gpu_span_us or 0 for report in reports)
    if not span:
        return ()
    told = (
        ("busy", "busy_us"),
        ("computing", "compute_us"),
        ("exposed communication", "comm_exposed_us"),
        ("idle", "idle_us"),
    )
    return tuple(
        Tile(title, percent(sum(getattr(report, name) or 0 for report in reports) / span), "of the spans")
        for title, name in told
    )


def name_device(report: DeviceReport) -> str:
    """A device of a trace in few words: its rank where there is one, else its file."""
    who = f"rank {report.rank}" if report.rank is not None else report.trace[:24]
    return who if report.device is None else f"{who}, {str(report.device).removeprefix('/device:')}"


def _list_traces(reports: Sequence[DeviceReport]) -> Section:
    columns = (
        TableColumn("device"),
        TableColumn("judged"),
        TableColumn("span (ms)", "number"),
        TableColumn("busy", "percent"),
        TableColumn("kernels busy", "percent"),
        TableColumn("computing", "percent"),
        TableColumn("comm. exposed", "percent"),
        TableColumn("copies exposed", "percent"),
        TableColumn("idle", "percent"),
    )
    rows: list[tuple[Cell, ...]] = []
    for report in reports[:MOST_ROWS]:
        judged = (
            {True: "yes", False: "no"}.get(report.can_judge, "partly")
            if isinstance(report.can_judge, bool)
            else "partly"
        )
        span = report.gpu_span_us
        parts = (
            report.busy_us,
            report.kernel_busy_us,
            report.compute_us,
            report.comm_exposed_us,
            report.memcpy_exposed_us,
        )
        shares = [part / span if span and part is not None else None for part in (*parts, report.idle_us)]
        rows.append((name_device(report), judged, span / US_PER_MS if span is not None else None, *shares))
    return Section("Devices", tables=(DataTable(columns, rows),))


def _draw_parts(reports: Sequence[DeviceReport]) -> Section:
    shown = reports[:MOST_ROWS]
    series = tuple(
        Series(title, tuple((getattr(report, name) or 0) / US_PER_MS for report in shown))
        for title, name in PARTS
        if any(getattr(report, name) for report in shown)
    )
    chart = Chart(
        title="What each device's span was",
        kind="stacked bar",
        x=tuple(name_device(report) for report in shown),
        series=series,
        y_label="ms",
    )
    return Section("Parts of the span", charts=(chart,))


def _list_findings(findings: Sequence[TraceFinding]) -> Section:
    columns = (
        TableColumn("cause"),
        TableColumn("class"),
        TableColumn("share", "percent"),
        TableColumn("sureness"),
        TableColumn("saved at most", "percent"),
        TableColumn("devices", "number"),
    )
    rows = [
        (
            finding.cause,
            finding.class_,
            finding.share,
            finding.sureness,
            finding.saved_share_high,
            len(finding.found_at),
        )
        for finding in findings
    ]
    return Section("Causes", tables=(DataTable(columns, rows),))


def _explain(finding: TraceFinding) -> Section:
    """One cause: its evidence, what to do, and what else looks like it."""
    return Section(
        finding.cause,
        lead=f"{' '.join(finding.evidence)} What to do: {finding.action} What else looks like it: {finding.misleads}",
    )


def _list_notes(reports: Sequence[DeviceReport]) -> tuple[str, ...]:
    notes = [f"{name_device(report)}: {text}" for report in reports for text in (*report.because, *report.notes)]
    return tuple(dict.fromkeys(notes))[:MOST_ROWS]
