"""The page of `loadfactor bill commitments`: what commitments and spot capacity saved, and what of them was not used."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from loadfactor.base.errors import InputError
from loadfactor.base.units import MS_PER_S
from loadfactor.books.billed_costs import BilledCommitments
from loadfactor.books.commitment_demand import CommitmentChoice, CommitmentOption
from loadfactor.books.owned_prices import OwnedUse
from loadfactor.interfaces.document import Assumption, Cell, DataTable, Document, Section
from loadfactor.interfaces.formats import counted, instant, money, number, percent
from loadfactor.interfaces.pages.bridge import link_bridge
from loadfactor.interfaces.requests import BillRequest, CommitmentsRequest, StoreRequest
from loadfactor.interfaces.tables import col, table
from loadfactor.money.commitments import CommitmentUse
from loadfactor.settings.config import FILE

TERMS = {
    "capital_cost": "capital",
    "energy_cost": "energy",
    "colocation_cost": "colocation",
    "network_cost": "network, storage, CPU",
    "support_cost": "support",
    "staff_cost": "staff",
    "total_cost": "all",
    "price_per_gpu_hour": "per installed GPU-hour",
    "cost_per_available_gpu_hour": "per available GPU-hour",
}
"""Terms of the year of an owned server, as people read them."""
MONEY_SHOWN = 0.005
"""Less of it is nothing."""
PRICES = ("price_per_gpu_hour", "cost_per_available_gpu_hour")
"""Those that are shown also where they are nothing."""


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
    return table(
        uses,
        col("GPUs", "label"),
        col("installed GPU-h", "installed_gpu_hours", "number"),
        col("cost", lambda use: money(use.cost, use.currency), "money"),
        col("load assumed", "server.load_share", "percent"),
        col("measured", "measured_load_share", "percent"),
        col("energy differs by", lambda use: money(use.energy_difference_cost, use.currency), "money"),
        col("up", "up_share", "percent"),
        note="energy differs by: by measured load less by assumed, over the installed hours",
    )


def _describe(use: OwnedUse) -> Section:
    year = table(
        [(name, title) for name, title in TERMS.items() if name in PRICES or getattr(use.assumed, name)],
        col("a year of one server", lambda term: term[1]),
        col("assumed load", lambda term: getattr(use.assumed, term[0]), "money"),
        col("measured load", lambda term: getattr(use.measured, term[0], None), "money"),
        currency=use.currency,
    )
    return Section(use.label, tables=(year,))


def build_comparison_page(request: BillRequest) -> Document:
    """Differences of bills and books by node or resource, the largest amount first."""
    found = request.books.compare_bills(request.month, request.zone)
    currency = found.currency
    billed = f"{money(found.billed_cost, currency)} billed for {number(found.billed_gpu_hours)} GPU-hours"
    both = f"{billed}; the books saw {number(found.seen_gpu_hours)}"
    if found.differences:
        net = f"{money(abs(found.net_amount), currency)} {'more' if found.net_amount >= 0 else 'less'} billed than the books know"
        many = counted(len(found.differences), "difference")
        headline = f"{both}. {many}: net {net}, gross {money(found.amount, currency)}."
    else:
        headline = f"{both}. They agree."
    differences = table(
        found.differences,
        col("difference", "kind"),
        col("of", "of"),
        col("billed GPU-hours", "billed_gpu_hours", "number"),
        col("seen GPU-hours", "seen_gpu_hours", "number"),
        col("billed price", "billed_price", "money"),
        col("agreed price", "agreed_price", "money"),
        col("amount", "amount", "money"),
        col("direction", "direction"),
        currency=currency,
        note="net: billed more, less billed less; gross: all amounts, whichever way they go",
    )
    what = {d.kind: d.do for d in found.differences}
    start, end = (instant(datetime.fromtimestamp(at / MS_PER_S, request.zone)) for at in (found.from_ms, found.to_ms))
    month = f" --month {request.month}" if request.month else ""
    links = (Section(suggestions=(link_bridge(f"{month}{request.words}"),)),)
    return Document(
        headline,
        (*((Section(tables=(differences,)),) if found.differences else ()), *links),
        f"Between {start} and {end}: time that both speak of.",
        assumptions=(Assumption("GPU share", found.gpu_share, "[billing] gpu_share"),),
        notes=tuple(f"{kind}: {do}" for kind, do in what.items()),
        data=found,
    )


@dataclass(frozen=True)
class CommitmentsPage:
    """What the commitments of the bills saved, None without a bill, and what to commit to by the hours that were held."""

    billed: BilledCommitments | None
    choice: CommitmentChoice


def build_commitments_page(request: CommitmentsRequest) -> Document:
    """Every commitment of the bills, use that none covered, spot, and all together; with a price, what to commit to."""
    with request.books.snapshot() as snapshot:
        if request.commit_price is None:
            given = [flag for flag in ("rent_price", "start", "end", "last") if getattr(request, flag) is not None]
            if given:
                raise InputError(
                    "a window and --rent-price go with --commit-price: what a committed GPU-hour would cost"
                )
            return build_commitments(snapshot.commitments())
        window = request.window(snapshot)
        choice = snapshot.choose_commitment(request.commit_price, request.rent_price, *window, request.zone)
        billed = snapshot.commitments() if snapshot.has_bill else None
    sections = build_commitments(billed).sections if billed else ()
    return Document(
        _say_choice(choice),
        (*_list_choice(choice), *sections),
        assumptions=(
            Assumption(
                "rented", f"{money(choice.rent_price, choice.currency)} per GPU-hour", "--rent-price, else the books"
            ),
            Assumption("rule", "commit to GPU k while it is needed commit ÷ rent price of the time", "newsvendor"),
            Assumption("regret", "cost less that of the best choice, known afterwards", "the same hours"),
        ),
        notes=billed.remarks if billed else (),
        data=CommitmentsPage(billed, choice),
    )


def _say_choice(found: CommitmentChoice) -> str:
    price = f"at {money(found.commit_price, found.currency)} instead of {money(found.rent_price, found.currency)} a GPU-hour"
    if not found.gpus:
        return f"Commit to nothing {price}: no GPU was held often enough."
    best = next(of for of in found.options if of.is_best)
    worst = ""
    if best.worst_month_regret > MONEY_SHOWN:
        less = money(best.worst_month_regret, found.currency)
        worst = f"; its worst month ({best.worst_month}) would have cost {less} less with a choice of its own"
    return (
        f"Commit to {counted(found.gpus, 'GPU')} {price}: {percent(found.covered_share)} of what was held, used"
        f" {percent(found.used_share)} of the time, {money(found.saved, found.currency)} less than renting it all{worst}."
    )


def _list_choice(found: CommitmentChoice) -> tuple[Section, ...]:
    def name(of: CommitmentOption) -> str:
        words = [word for word, holds in (("best", of.is_best), ("safest", of.is_safest)) if holds]
        return f"{of.gpus:,} {' and '.join(words)}".rstrip()

    options = table(
        found.options,
        col("GPUs committed", name),
        col("cost", "cost", "money"),
        col("regret", "regret", "money"),
        col("of the worst month", "worst_month_regret", "money"),
        col("which", "worst_month"),
        currency=found.currency,
        note="safest: the least regret in its worst month",
    )
    months = table(
        found.months,
        col("month", "month"),
        col("GPUs held", "mean_gpus", "number"),
        col("best", "best_gpus", "number"),
        col("chosen by the months before", lambda of: "" if of.chosen_gpus is None else of.chosen_gpus, "number"),
        col("regret", lambda of: "" if of.regret is None else of.regret, "money"),
        currency=found.currency,
    )
    return Section("What to commit to", tables=(options,)), Section(
        "Had you chosen by the months before", tables=(months,)
    )


def build_commitments(found: BilledCommitments) -> Document:
    """The commitments of the bills."""
    currency = found.currency
    uses = [(item.label, item.use) for item in found.commitments]
    uses += [("use that none covers", found.uncovered), ("all of these", found.together)]
    uses += [("spot", found.spot)] if found.spot.uncovered_on_demand_cost else []
    used = table(
        [(label, *_add_up(use)) for label, use in uses],
        col("commitment"),
        col("used", style="money"),
        col("unused", style="money"),
        col("utilization", style="percent"),
        col("on demand", style="money"),
        col("saved", style="percent"),
        currency=currency,
        note="on demand: what the same use costs without a commitment; saved: effective savings rate",
    )
    bought = table(
        found.commitments,
        col("commitment", "label"),
        col("purchased", lambda item: float(item.purchased_cost), "money"),
        col("used and unused", lambda item: float(item.use.used_cost + item.use.unused_cost), "money"),
        col("not in these bills", lambda item: float(item.difference_cost), "money"),
        currency=currency,
        note="over the whole life of a commitment the two are equal",
    )
    sections = [Section("Commitments", tables=(used,))]
    if found.commitments:
        sections.append(Section("Purchased and amortized", tables=(bought,)))
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


def _add_up(use: CommitmentUse) -> tuple[Cell, ...]:
    on_demand = float(use.covered_on_demand_cost + use.uncovered_on_demand_cost)
    shares = (use.utilization_share, use.effective_savings_share)
    utilization, saved = (None if share is None else float(share) for share in shares)
    return float(use.used_cost + use.uncovered_cost), float(use.unused_cost), utilization, on_demand, saved
