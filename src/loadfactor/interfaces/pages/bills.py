"""The page of `loadfactor bill commitments`: what commitments and spot capacity saved, and what of them was not used."""

from collections.abc import Sequence
from datetime import UTC, datetime

from loadfactor.base.errors import InputError
from loadfactor.base.units import MS_PER_S
from loadfactor.books.charging.bill_comparison import BillComparison
from loadfactor.books.commitment_uses import BilledCommitments
from loadfactor.books.owned_fleet import OwnedUse
from loadfactor.interfaces.document import Assumption, Cell, DataTable, Document, Section, TableColumn
from loadfactor.interfaces.formats import counted, instant, money, number, percent
from loadfactor.interfaces.requests import CompareRequest, StoreRequest
from loadfactor.money.commitments import CommitmentUse
from loadfactor.settings.file import FILE


def build_owned_page(request: StoreRequest) -> Document:
    """All owned GPUs of the settings. Raises InputError where there are none."""
    uses = request.books.owned()
    if not uses:
        raise InputError(
            f'no owned GPUs in {FILE}; write: [[owned]] with accelerator = "h100-sxm" and server_price = 300000'
        )
    return build_owned(uses)


def build_owned(uses: Sequence[OwnedUse]) -> Document:
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


def _list_prices(uses: Sequence[OwnedUse]) -> DataTable:
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


def _describe(use: OwnedUse) -> Section:
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


def _pair(use: OwnedUse, name: str) -> tuple[float, float | None]:
    """A term of the year by the assumed and by the measured load."""
    return getattr(use.assumed, name), None if use.measured is None else getattr(use.measured, name)


def build_comparison_page(request: CompareRequest) -> Document:
    """Bills beside the books."""
    return build_comparison(request.books.compare_bills(request.month))


def build_comparison(found: BillComparison) -> Document:
    """Differences by node or resource, with the largest amount first."""
    currency = found.currency
    billed = f"{money(found.billed_cost, currency)} billed for {number(found.billed_gpu_hours)} GPU-hours"
    both = f"{billed}; the books saw {number(found.seen_gpu_hours)}"
    if found.differences:
        headline = f"{both}. {counted(len(found.differences), 'difference')}, {money(found.amount, currency)} in all."
    else:
        headline = f"{both}. They agree."
    columns = (
        TableColumn("difference"),
        TableColumn("of"),
        TableColumn("billed GPU-hours", "number"),
        TableColumn("seen GPU-hours", "number"),
        TableColumn("billed price", "money", currency),
        TableColumn("agreed price", "money", currency),
        TableColumn("amount", "money", currency),
    )
    rows = [
        (d.kind, d.of, d.billed_gpu_hours, d.seen_gpu_hours, d.billed_price, d.agreed_price, d.amount)
        for d in found.differences
    ]
    what = {d.kind: d.do for d in found.differences}
    start, end = (instant(datetime.fromtimestamp(at / MS_PER_S, UTC)) for at in (found.from_ms, found.to_ms))
    return Document(
        headline,
        (Section(tables=(DataTable(columns, rows),)),) if rows else (),
        f"Between {start} and {end}: time that both speak of.",
        assumptions=(Assumption("GPU share", found.gpu_share, "[billing] gpu_share"),),
        notes=tuple(f"{kind}: {do}" for kind, do in what.items()),
        data=found,
    )


def build_commitments_page(request: StoreRequest) -> Document:
    """All commitments of the bills."""
    return build_commitments(request.books.commitments())


def build_commitments(found: BilledCommitments) -> Document:
    """Every commitment of the bills, use that none covered, spot, and all together."""
    currency = found.currency
    columns = (
        TableColumn("commitment"),
        TableColumn("used", "money", currency),
        TableColumn("unused", "money", currency),
        TableColumn("utilization", "percent"),
        TableColumn("on demand", "money", currency),
        TableColumn("saved", "percent"),
    )
    rows = [_row(item.label, item.use) for item in found.commitments]
    rows.append(_row("use that none covers", found.uncovered))
    rows.append(_row("all of these", found.together))
    if found.spot.uncovered_on_demand_cost:
        rows.append(_row("spot", found.spot))
    note = "on demand: what the same use costs without a commitment; saved: effective savings rate"
    bought = (
        TableColumn("commitment"),
        TableColumn("purchased", "money", currency),
        TableColumn("used and unused", "money", currency),
        TableColumn("not in these bills", "money", currency),
    )
    purchases = [
        (
            item.label,
            float(item.purchased_cost),
            float(item.use.used_cost + item.use.unused_cost),
            float(item.difference_cost),
        )
        for item in found.commitments
    ]
    sections = [Section("Commitments", tables=(DataTable(columns, rows, note=note),))]
    if purchases:
        over = "over the whole life of a commitment the two are equal"
        sections.append(Section("Purchased and amortized", tables=(DataTable(bought, purchases, note=over),)))
    return Document(_write_headline(found), tuple(sections), notes=found.remarks, data=found)


def _write_headline(found: BilledCommitments) -> str:
    use = found.together
    if not found.commitments:
        return "The bills have no commitment and no capacity reservation."
    unused = f"{money(float(use.unused_cost), found.currency)} of commitments was not used"
    if use.effective_savings_share is None:
        return f"{unused}, and nothing was used on demand that they could have covered."
    did = "saved" if use.effective_savings_share >= 0 else "lost"
    share = percent(abs(float(use.effective_savings_share)))
    covered = (
        "" if use.coverage_share is None else f" They cover {percent(float(use.coverage_share))} of what they could."
    )
    return f"Commitments {did} {share} of the on-demand cost; {unused}.{covered}"


def _row(name: str, use: CommitmentUse) -> tuple[Cell, ...]:
    on_demand = float(use.covered_on_demand_cost + use.uncovered_on_demand_cost)
    shares = (use.utilization_share, use.effective_savings_share)
    utilization, saved = (None if share is None else float(share) for share in shares)
    return name, float(use.used_cost + use.uncovered_cost), float(use.unused_cost), utilization, on_demand, saved
