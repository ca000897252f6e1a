"""The tables of the page of a job: invoice, what it made, leaks, and jobs like it."""

from collections.abc import Sequence
from typing import Final

from loadfactor.base.units import ONES_PER_MILLION
from loadfactor.books.job_account import FEWEST_ALIKE, KEPT, MADE, UNIT_COSTS, AlikeValue, Leak
from loadfactor.interfaces.document import Cell, DataTable, TableColumn
from loadfactor.interfaces.formats import money, percent
from loadfactor.interfaces.pages.readings import is_per_million
from loadfactor.interfaces.pages.waterfall import CAUSE_TITLES, TITLES
from loadfactor.interfaces.reports.inquiry import Group
from loadfactor.metrics import metric
from loadfactor.metrics.metric import CURRENCY

MEANINGS: Final = {
    "effective": "held hours × activity",
    "underused": "busy, less its activity",
    "idle": "activity under the idle threshold",
    "unobserved": "without a valid sample",
}
REMEDIES: Final = {
    "unobserved": "no samples: find the exporter that is silent",
    "idle": "held and not used: find what it waited for, or give the GPUs back",
    "underused": "larger batches, more data workers, fewer small kernels",
    "uncounted": "name its network in [[network]]",
    "not_math": "memory-bound kernels, communication, recomputed work",
    "lost_work": "checkpoint more often, fail less often",
    "failed_work": "find out why its last run failed",
}
"""What to look at first, by where it went."""


def title_of(leak: Leak) -> str:
    """A leak as people read it.

    >>> title_of(Leak("idle", None, False, 1.0, 2.0, 0.1)), title_of(Leak("lost_work", "restart", False, 1.0, 2.0, 0.1))
    ('idle', 'lost: restart since the last checkpoint')
    """
    return TITLES[leak.name] if leak.cause is None else f"lost: {CAUSE_TITLES[leak.cause]}"


def list_invoice(one: Group) -> DataTable:
    """What the job cost, by what its GPUs did; the last row is the sum."""
    cost = one.value("cost")
    rows: list[Sequence[Cell]] = []
    for name, meaning in MEANINGS.items():
        spent = one.value(f"{name}_cost")
        share = spent / cost if spent is not None and cost else None
        rows.append((name.capitalize(), one.value(f"{name}_gpu_hours"), spent, share, meaning))
    rows.append(("Total", one.value("allocated_gpu_hours"), cost, 1.0 if cost else None, "held by the job"))
    columns = (
        TableColumn("part"),
        TableColumn("GPU-hours", "number"),
        TableColumn("cost", "money", one.currency),
        TableColumn("of cost", "percent"),
        TableColumn("meaning"),
    )
    return DataTable(columns, rows)


def list_made(one: Group) -> DataTable:
    """A row for each unit of work that the job made any of."""
    rows: list[Sequence[Cell]] = []
    for unit, made in MADE.items():
        amount, kept = one.value(made.name), one.value(KEPT[unit].name)
        if amount is not None and kept is not None:
            rows.append(
                (
                    _spell(unit),
                    amount,
                    kept,
                    amount - kept,
                    _price(UNIT_COSTS[unit], one.value(UNIT_COSTS[unit]), one.currency),
                )
            )
    columns = (
        TableColumn("unit"),
        TableColumn("made", "number"),
        TableColumn("kept", "number"),
        TableColumn("lost", "number"),
        TableColumn("cost per kept unit"),
    )
    return DataTable(columns, rows, note="the whole cost of the job stands in each")


def tabulate_leaks(leaks: Sequence[Leak], currency: str) -> DataTable:
    """Where the money went instead of into useful work, and what to look at."""
    columns = (
        TableColumn("leak"),
        TableColumn("cost", "money", currency),
        TableColumn("GPU-hours", "number"),
        TableColumn("of cost", "percent"),
        TableColumn("look at"),
    )
    rows = [
        (
            f"{'? ' * leak.is_unknown}{title_of(leak)}",
            leak.cost,
            leak.gpu_hours,
            leak.share_of_cost,
            REMEDIES[leak.name],
        )
        for leak in leaks
    ]
    unknown = "? nobody knows whether it was useful" if any(leak.is_unknown for leak in leaks) else ""
    return DataTable(columns, rows, note=unknown)


def tabulate_comparison(compared: Sequence[AlikeValue], currency: str) -> DataTable:
    """The job, and the median of those like it."""
    rows = [
        (
            _title(of.metric),
            *(_show(of.metric, value, currency) for value in (of.value, of.median)),
            float(of.jobs),
        )
        for of in compared
    ]
    columns = (TableColumn("metric"), TableColumn("this job"), TableColumn("median"), TableColumn("of jobs", "number"))
    few = any(of.jobs < FEWEST_ALIKE for of in compared)
    note = f"the median of fewer than {FEWEST_ALIKE} jobs is not known" if few else ""
    return DataTable(columns, rows, note=note)


def _title(name: str) -> str:
    return metric(name).title


def _show(name: str, value: float | None, currency: str) -> str | None:
    if metric(name).unit.startswith(CURRENCY):
        return _price(name, value, currency)
    return None if value is None else percent(value)


def _price(name: str, value: float | None, currency: str) -> str | None:
    """The cost of a unit, or of a million where one is too small to read."""
    if value is None:
        return None
    if is_per_million(metric(name).unit, [value]):
        return f"{money(value * ONES_PER_MILLION, currency)} per million"
    return money(value, currency)


def _spell(unit: str) -> str:
    return unit.replace("_", " ")
