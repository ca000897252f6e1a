"""The page of `loadfactor diagnose TRACE…`: the parts of each device's time, causes with their evidence, owners, kernels, ranks."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from loadfactor.base.errors import SourceError
from loadfactor.base.units import US_PER_MS
from loadfactor.insight.diagnosis.finding import JobDiagnosis
from loadfactor.insight.diagnosis.trace_money import JobRate, price_trace
from loadfactor.insight.traces.diagnose import diagnose_captures
from loadfactor.insight.traces.report import DeviceReport, TraceDiagnosis, TraceFinding
from loadfactor.interfaces.charts import Chart, Series
from loadfactor.interfaces.document import Assumption, Cell, DataTable, Document, Section, TableColumn, Tile
from loadfactor.interfaces.formats import percent
from loadfactor.interfaces.pages.trace_books import compare_with_books, list_costs
from loadfactor.interfaces.pages.trace_tables import list_kernels, list_owners, list_ranks, list_steps
from loadfactor.sources.traces.read import read_trace
from loadfactor.tables.trace_events import TraceCapture, no_gpu_events, no_host_events

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
