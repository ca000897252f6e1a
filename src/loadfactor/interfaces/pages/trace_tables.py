"""Sections of the page of traces: who held the host, steps, kernels, and ranks beside each other."""

from collections.abc import Sequence
from typing import Final

from loadfactor.base.units import US_PER_MS
from loadfactor.insight.traces.collectives import Skew
from loadfactor.insight.traces.report import DeviceReport
from loadfactor.interfaces.document import Cell, DataTable, Section, TableColumn

MOST: Final = 12
_NAME: Final = 60


def _name(report: DeviceReport) -> str:
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
            _name(report),
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
    return Section(f"Steps of {_name(chosen)}", tables=(DataTable(columns, rows),))


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
    return Section(f"Kernels of {_name(chosen)}", tables=(DataTable(columns, rows, note=note),))


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
