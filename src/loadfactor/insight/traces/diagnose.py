"""The diagnosis of traces: every device of every capture measured and judged, causes ranked, ranks compared."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from loadfactor.base.units import NS_PER_US
from loadfactor.insight.traces.collectives import compare_ranks
from loadfactor.insight.traces.intervals import keep_one_clock
from loadfactor.insight.traces.judge import ObservedDevice, is_host_alone, judge, refuse
from loadfactor.insight.traces.kernels import find_roof, list_kernels
from loadfactor.insight.traces.partition import rows_of_device
from loadfactor.insight.traces.report import DeviceReport, FoundAt, TraceDiagnosis, TraceFinding
from loadfactor.insight.traces.rules import RULES, find_rank_waits, find_starved_loop, is_explained
from loadfactor.tables.trace_events import GpuKind, TraceCapture

_SHORT_US = 10.0


def diagnose_captures(captures: Iterable[TraceCapture]) -> TraceDiagnosis:
    """Measures, judges and explains captures: of several ranks of a job, or of anything.

    Only the GPU work of collectives and the reports are kept of a capture, so that many of them fit.
    """
    reports: list[DeviceReport] = []
    findings: list[TraceFinding] = []
    judged: list[ObservedDevice] = []
    for capture in captures:
        own, devices = report_capture(capture)
        reports += own
        if is_host_alone(capture) and (starved := find_starved_loop(capture)) is not None:
            findings.append(replace(starved, found_at=(FoundAt(capture.trace, capture.rank, None, starved.share),)))
        judged += devices
    skew = compare_ranks(_one_a_rank(judged))
    doubtful = {(report.path, report.device) for report in reports if report.can_judge is not True}
    for device in judged:
        is_doubtful = (device.capture.path, device.device.label) in doubtful
        for rule in RULES:
            finding = rule(device)
            if finding is not None and not (finding.cause == "comm_exposed" and is_explained(skew)):
                findings.append(
                    (finding if finding.cause == "start_up" else replace(finding, sureness="low", saved_share_low=0.0))
                    if is_doubtful
                    else finding
                )
                findings[-1] = replace(findings[-1], found_at=(_place(device, finding.share),))
    if (waits := find_rank_waits(skew, judged)) is not None:
        findings.append(
            replace(
                waits,
                found_at=tuple(_place(device, device.share(device.partition.comm_exposed_ns)) for device in judged),
            )
        )
    return TraceDiagnosis(tuple(reports), rank_findings(findings), skew)


def report_capture(capture: TraceCapture) -> tuple[list[DeviceReport], list[ObservedDevice]]:
    """A report for each device of a capture, one without times where it has none; and the devices that can be judged."""
    why_not = refuse(capture)
    if not len(capture.gpu) or not (capture.gpu.end_ns > capture.gpu.start_ns).any():
        return [_report_nothing(capture, why_not)], []
    reports, judged = [], []
    for place in range(len(capture.devices)):
        gpu = capture.gpu.take(rows_of_device(capture.gpu, place))
        if not (gpu.end_ns > gpu.start_ns).any():
            continue
        gpu, note = keep_one_clock(gpu)
        device = ObservedDevice(capture, place, gpu)
        verdict, because = (False, why_not) if why_not else judge(device)
        if note and verdict is True:
            verdict, because = "partly", (note,)
        report = _report(device)
        notes = (*capture.notes, note) if note else capture.notes
        reports.append(replace(report, can_judge=verdict, because=because, notes=tuple(notes)))
        if verdict is not False:
            judged.append(device)
    return reports, judged


def rank_findings(findings: Sequence[TraceFinding]) -> tuple[TraceFinding, ...]:
    """Findings of one cause as one, with the mean of their shares and the evidence of the largest; the largest first."""
    by_cause: dict[str, list[TraceFinding]] = {}
    for finding in findings:
        by_cause.setdefault(finding.cause, []).append(finding)
    merged = []
    for same in by_cause.values():
        largest = max(same, key=lambda finding: finding.share)
        count = len(same)
        merged.append(
            replace(
                largest,
                share=sum(finding.share for finding in same) / count,
                saved_share_low=sum(finding.saved_share_low for finding in same) / count,
                saved_share_high=sum(finding.saved_share_high for finding in same) / count,
                found_at=tuple(place for finding in same for place in finding.found_at),
            )
        )
    return tuple(sorted(merged, key=lambda finding: (-finding.share * len(finding.found_at), finding.cause)))


def _place(device: ObservedDevice, share: float) -> FoundAt:
    return FoundAt(device.capture.trace, device.capture.rank, device.device.label, share)


def _one_a_rank(judged: Sequence[ObservedDevice]) -> list[TraceCapture]:
    """The captures that have a rank, each once."""
    found = {id(device.capture): device.capture for device in judged if device.capture.rank is not None}
    return list(found.values())


def _report_nothing(capture: TraceCapture, why_not: tuple[str, ...]) -> DeviceReport:
    return DeviceReport(
        trace=capture.trace,
        rank=capture.rank,
        device=None,
        gpu_span_us=None,
        busy_us=None,
        idle_us=None,
        compute_us=None,
        comm_us=None,
        comm_exposed_us=None,
        comm_hidden_us=None,
        memcpy_us=None,
        memcpy_exposed_us=None,
        memset_us=None,
        memset_exposed_us=None,
        idle_host_us=None,
        idle_launch_us=None,
        idle_device_us=None,
        idle_unknown_us=None,
        kernels=0,
        can_judge=False,
        because=why_not,
        format=capture.format,
        path=capture.path,
        world_size=capture.world_size,
        memory=tuple(capture.memory),
        notes=tuple(capture.notes),
    )


def _report(device: ObservedDevice) -> DeviceReport:
    parts, capture, kinds = device.partition, device.capture, device.gpu.kind
    roof = find_roof(device.device.accelerator)
    lengths, precision = device.kernel_us, device.precision
    comm_ns = parts.comm.length_ns
    return DeviceReport(
        trace=capture.trace,
        rank=capture.rank,
        device=device.device.label,
        gpu_span_us=parts.span_ns / NS_PER_US,
        busy_us=parts.busy_ns / NS_PER_US,
        idle_us=parts.idle_ns / NS_PER_US,
        compute_us=parts.compute.length_ns / NS_PER_US,
        comm_us=comm_ns / NS_PER_US,
        comm_exposed_us=parts.comm_exposed_ns / NS_PER_US,
        comm_hidden_us=(comm_ns - parts.comm_exposed_ns) / NS_PER_US,
        memcpy_us=parts.memcpy_ns / NS_PER_US,
        memcpy_exposed_us=parts.memcpy_exposed_ns / NS_PER_US,
        memset_us=parts.memset_ns / NS_PER_US,
        memset_exposed_us=parts.memset_exposed_ns / NS_PER_US,
        idle_host_us=parts.idle_host_ns / NS_PER_US,
        idle_launch_us=parts.idle_launch_ns / NS_PER_US,
        idle_device_us=parts.idle_device_ns / NS_PER_US,
        idle_unknown_us=parts.idle_unknown_ns / NS_PER_US,
        kernels=int((kinds <= GpuKind.COMM).sum()),
        can_judge=True,
        because=(),
        format=capture.format,
        path=capture.path,
        accelerator=device.device.accelerator,
        world_size=capture.world_size,
        comm_kernels=int((kinds == GpuKind.COMM).sum()),
        copies=int((kinds == GpuKind.MEMCPY).sum()),
        memsets=int((kinds == GpuKind.MEMSET).sum()),
        kernel_busy_us=parts.kernel_ns / NS_PER_US,
        comm_overlap_share=1 - parts.comm_exposed_ns / comm_ns if comm_ns else None,
        longest_gap_us=int(parts.gaps.length_ns.max(initial=0)) / NS_PER_US,
        median_kernel_us=float(np.median(lengths)) if len(lengths) else None,
        short_kernels_share=float((lengths < _SHORT_US).mean()) if len(lengths) else None,
        tensor_core_share=precision.tensor_core_share if precision else None,
        unknown_kernels_share=precision.unknown_share if precision else None,
        idle_by_cause_us=device.idle_by_cause_us(),
        host_owners=device.owners[:10],
        top_kernels=list_kernels(device.gpu, capture.names, roof),
        steps=device.steps,
        memory=tuple(capture.memory),
    )
