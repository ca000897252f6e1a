"""The page of `loadfactor bill commitments`: what commitments and spot capacity saved, and what of them was not used."""

from typing import TYPE_CHECKING

from loadfactor.interfaces.document import Cell, DataTable, Document, Section, TableColumn
from loadfactor.interfaces.formats import money, percent

if TYPE_CHECKING:
    from loadfactor.books.commitment_uses import BilledCommitments
    from loadfactor.money.commitments import CommitmentUse


def build_commitments(found: "BilledCommitments") -> Document:
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


def _write_headline(found: "BilledCommitments") -> str:
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


def _row(name: str, use: "CommitmentUse") -> tuple[Cell, ...]:
    on_demand = float(use.covered_on_demand_cost + use.uncovered_on_demand_cost)
    shares = (use.utilization_share, use.effective_savings_share)
    utilization, saved = (None if share is None else float(share) for share in shares)
    return name, float(use.used_cost + use.uncovered_cost), float(use.unused_cost), utilization, on_demand, saved
