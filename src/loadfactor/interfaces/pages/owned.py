"""The page of `loadfactor owned`: what owned GPUs cost an hour, by the assumed and by the measured load."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from loadfactor.interfaces.document import Assumption, Cell, DataTable, Document, Section, TableColumn
from loadfactor.interfaces.formats import money, percent

if TYPE_CHECKING:
    from loadfactor.books.owned_fleet import OwnedUse


def build_owned(uses: "Sequence[OwnedUse]") -> Document:
    """Every table [[owned]]; the sentence on top is of the one with the most GPU-hours."""
    largest = max(uses, key=lambda use: use.installed_gpu_hours)
    price = money(largest.assumed.price_per_gpu_hour, largest.currency)
    headline = f"{largest.label}: an installed GPU-hour costs {price} with the assumed load"
    if largest.measured is not None:
        measured = money(largest.measured.price_per_gpu_hour, largest.currency)
        headline += f", {measured} with the measured one ({percent(largest.measured_load_share)})"
    used = "measured" if largest.uses_measured_load else "assumed"
    return Document(
        headline=f"{headline}; the ledger takes the {used} load.",
        sections=(Section("Owned GPUs", tables=(_list_prices(uses),)), *(_describe(use) for use in uses)),
        assumptions=(
            Assumption("price", "a year ÷ installed GPU-hours, down ones included", "equations of loadfactor plan own"),
            Assumption("power", "a server draws in proportion to its GPUs", "server_kw, gpu_w or the catalog"),
        ),
        data=tuple(uses),
    )


def _list_prices(uses: "Sequence[OwnedUse]") -> DataTable:
    currency = uses[0].currency
    columns = (
        TableColumn("GPUs"),
        TableColumn("installed GPU-h", "number"),
        TableColumn("cost", "money", currency),
        TableColumn("load assumed", "percent"),
        TableColumn("measured", "percent"),
        TableColumn("energy differs by", "money", currency),
        TableColumn("up", "percent"),
    )
    rows: list[tuple[Cell, ...]] = [
        (
            use.label,
            use.installed_gpu_hours,
            money(use.cost, use.currency),
            use.server.load_share,
            use.measured_load_share,
            money(use.energy_difference_cost, use.currency),
            use.up_share,
        )
        for use in uses
    ]
    return DataTable(
        columns, rows, note="energy differs by: by measured load less by assumed, over the installed hours"
    )


def _describe(use: "OwnedUse") -> Section:
    columns = (
        TableColumn("a year of one server"),
        TableColumn("assumed load", "money", use.currency),
        TableColumn("measured load", "money", use.currency),
    )
    names = (
        "capital_cost",
        "energy_cost",
        "colocation_cost",
        "network_cost",
        "support_cost",
        "staff_cost",
        "total_cost",
    )
    titles = ("capital", "energy", "colocation", "network, storage, CPU", "support", "staff", "all")
    rows: list[tuple[Cell, ...]] = [
        (title, *_pair(use, name)) for name, title in zip(names, titles, strict=True) if getattr(use.assumed, name)
    ]
    for title, name in (
        ("per installed GPU-hour", "price_per_gpu_hour"),
        ("per available GPU-hour", "cost_per_available_gpu_hour"),
    ):
        rows.append((title, *_pair(use, name)))
    return Section(use.label, tables=(DataTable(columns, rows),))


def _pair(use: "OwnedUse", name: str) -> tuple[float, float | None]:
    """A term of the year by the assumed and by the measured load."""
    return getattr(use.assumed, name), None if use.measured is None else getattr(use.measured, name)
