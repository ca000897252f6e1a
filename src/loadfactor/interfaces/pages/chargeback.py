"""The pages of `loadfactor chargeback`: statements that explain themselves, and what changed since a month was closed."""

import csv
import io
import json
from collections.abc import Iterator, Mapping
from datetime import UTC
from decimal import Decimal
from typing import Any, Final

from loadfactor.base.errors import InputError
from loadfactor.books.charging.closings import ChargebackChanges
from loadfactor.books.charging.fleet_chargeback import FleetChargeback
from loadfactor.books.charging.statements import OwnerStatement
from loadfactor.interfaces.document import Assumption, Cell, DataTable, Document, Section, Suggestion, TableColumn
from loadfactor.interfaces.formats import instant, percent
from loadfactor.interfaces.pages.bridge import link_bridge
from loadfactor.interfaces.requests import ChargebackRequest
from loadfactor.interfaces.tables import FilledColumn, col, cols, table
from loadfactor.money.lines import SHARE_OF, Statement, StatementPart

FOCUS_COLUMNS: Final = (
    "AvailabilityZone", "BilledCost", "BillingAccountId", "BillingAccountName", "BillingAccountType",
    "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart", "CapacityReservationId",
    "CapacityReservationStatus", "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargeFrequency",
    "ChargePeriodEnd", "ChargePeriodStart", "CommitmentDiscountCategory", "CommitmentDiscountId",
    "CommitmentDiscountName", "CommitmentDiscountQuantity", "CommitmentDiscountStatus", "CommitmentDiscountType",
    "CommitmentDiscountUnit", "ConsumedQuantity", "ConsumedUnit", "ContractedCost", "ContractedUnitPrice",
    "EffectiveCost", "InvoiceId", "InvoiceIssuerName", "ListCost", "ListUnitPrice", "PricingCategory",
    "PricingCurrency", "PricingQuantity", "PricingUnit", "ProviderName", "PublisherName", "RegionId", "RegionName",
    "ResourceId", "ResourceName", "ResourceType", "ServiceCategory", "ServiceName", "ServiceSubcategory", "SkuId",
    "SkuMeter", "SkuPriceDetails", "SkuPriceId", "SubAccountId", "SubAccountName", "SubAccountType", "Tags",
    "AllocatedMethodId", "AllocatedMethodDetails", "AllocatedResourceId", "AllocatedResourceName", "AllocatedTags",
    "HostProviderName", "ServiceProviderName", "x_ChargeType",
)  # fmt: skip
"""Columns of Cost and Usage: those of FOCUS 1.2, those that 1.3 adds, and what tells pools."""
_ISSUER: Final = "loadfactor"
_SERVICES: Final = {
    "storage": ("Storage", "Other (Storage)", "Storage"),
    "network": ("Networking", "Other (Networking)", "Network"),
    "egress": ("Networking", "Other (Networking)", "Egress"),
    "other": ("Other", "Other (Other)", "Other"),
}
_COMPUTE: Final = ("Compute", "Other (Compute)", "GPU-hours")


def write_focus(document: Document) -> str:
    """The statements of a page as CSV. Raises InputError where the page has none."""
    found: Any = document.data
    if not hasattr(found, "cost_source"):
        raise InputError("--format focus writes statements; leave --diff out")
    out = io.StringIO()
    writer = csv.DictWriter(out, FOCUS_COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(_list_rows(found))
    return out.getvalue()


def _list_rows(found: FleetChargeback) -> Iterator[Mapping[str, str]]:
    for statement in found.statements:
        for part in statement.parts:
            yield _write_row(found, statement, part)


def _write_row(found: FleetChargeback, statement: Statement, part: StatementPart) -> Mapping[str, str]:
    start, end = (at.astimezone(UTC).isoformat().replace("+00:00", "Z") for at in (found.start, found.end))
    kind = statement.pool if statement.pool in _SERVICES else part.name.removeprefix(SHARE_OF)
    category, subcategory, service = _SERVICES.get(str(kind), _COMPUTE)
    owner = " / ".join(str(name) for name in statement.by.values() if name)
    tags = json.dumps(
        {name: value for name, value in statement.by.items() if value}, ensure_ascii=False, sort_keys=True
    )
    described = f"{statement.pool or owner}: {part.name}, {part.method}"
    return {
        "BillingAccountId": "chargeback",
        "BillingAccountName": "Chargeback",
        "BillingAccountType": "Internal",
        "BillingCurrency": found.currency,
        "BillingPeriodStart": start,
        "BillingPeriodEnd": end,
        "ChargePeriodStart": start,
        "ChargePeriodEnd": end,
        "ChargeCategory": "Usage",
        "ChargeDescription": described,
        "ChargeFrequency": "Usage-Based",
        **{column: f"{amount:f}" for column, amount in part.amounts.items()},
        "InvoiceId": found.closing or "",
        **dict.fromkeys(
            ("InvoiceIssuerName", "ProviderName", "PublisherName", "HostProviderName", "ServiceProviderName"), _ISSUER
        ),
        "PricingCategory": "Other",
        "PricingCurrency": found.currency,
        "ServiceCategory": category,
        "ServiceSubcategory": subcategory,
        "ServiceName": service,
        "SubAccountId": owner,
        "SubAccountName": owner,
        "SubAccountType": "/".join(found.by) if owner else "",
        "Tags": tags if owner else "",
        "AllocatedMethodId": part.method,
        "AllocatedMethodDetails": _describe_method(found, statement, part),
        "AllocatedTags": tags if owner else "",
        "x_ChargeType": f"pool: {statement.pool}" if statement.pool else part.name,
    }


def _describe_method(found: FleetChargeback, statement: Statement, part: StatementPart) -> str:
    """How a part came to its owner, in the form of FOCUS 1.3: its share of the column's total, and the hours behind it."""
    column = next(iter(found.totals))
    whole = found.totals[column].charged
    element: dict[str, Any] = {"AllocatedRatio": float(part.amounts[column] / whole) if whole else 0.0}
    idle, unobserved, total = statement.hours.idle or Decimal(0), statement.hours.unobserved, statement.hours.total
    hours = {"idle": idle, "unobserved": unobserved, "gpu": total, "busy": total - idle - unobserved}
    if hours.get(part.name):
        element |= {"UsageUnit": "GPU-hours", "UsageQuantity": float(hours[part.name])}
    return json.dumps({"Elements": [element]})


MOST_ROWS = 40
NOTHING = "(none)"
SHOWN = ("BilledCost", "EffectiveCost")
"""Columns of cost on a page; the others are in JSON."""
COLUMN_TITLES = {"BilledCost": "billed", "EffectiveCost": "effective cost"}
_HOURS = Decimal("0.1")


def build_page(request: ChargebackRequest) -> Document:
    """The statements of a month, or the changes in them since it was closed."""
    chosen = [name for name in ("close", "diff", "as_closed") if getattr(request, name)]
    flags = [f"--{name.replace('_', '-')}" for name in chosen]
    if len(chosen) > 1:
        raise InputError(f"{' and '.join(flags)} are different things to do with kept statements; use one of them")
    if chosen and request.month is None:
        raise InputError(f"{flags[0]} is of one month; name it: --month 2026-10")
    books = request.books
    words, zone = request.words, request.zone
    if request.diff:
        changes = books.compare_closed(request.month or "", request.by or None, request.currency, zone)
        return build_changes(changes, words)
    if request.as_closed:
        return build_chargeback(books.show_closed(request.month or ""), words)
    by = request.by or ("team",)
    if request.close:
        remark = request.remark or ""
        closed = books.close_month(request.month or "", by, request.currency, zone, request.yes, remark)
        return build_chargeback(closed, words)
    return build_chargeback(books.chargeback(request.month, by, request.currency, zone), words)


def build_chargeback(found: FleetChargeback, store_words: str) -> Document:
    """Statements of owners and pools, what they are made of, and the totals."""
    columns = [column for column in SHOWN if column in found.totals]
    tagged = (
        ""
        if found.tag_coverage_share is None
        else f"; {percent(float(found.tag_coverage_share))} of the cost has its {' and '.join(found.by)}"
    )
    seen = "" if found.coverage_share is None else f"; {percent(float(found.coverage_share))} of held hours observed"
    return Document(
        _say_who(found, columns[0]),
        (
            Section("Statements", tables=(_list_statements(found, columns),)),
            Section("What they are made of", tables=(_list_parts(found, columns),)),
            Section("Totals", tables=(_list_totals(found),)),
            *_list_spreads(found, columns),
            *_suggest(found, store_words),
        ),
        subtitle=(
            f"{instant(found.start)} to {instant(found.end)}. From {say_source(found)}; {found.policy['mode']}{tagged}{seen}."
        ),
        assumptions=tuple(
            Assumption(name.replace("_", " "), value, "[chargeback]") for name, value in found.policy.items()
        ),
        notes=found.remarks,
        data=found,
    )


def say_source(found: FleetChargeback | OwnerStatement) -> str:
    """What amounts stand on: the bill, or prices of some kind."""
    return "the bill" if found.cost_source == "bill" else f"{found.cost_source}, {found.basis} prices (no bill)"


def _say_who(found: FleetChargeback, column: str) -> str:
    owners = sum(1 for statement in found.statements if statement.pool is None)
    pools = len(found.statements) - owners
    whole = f"{found.totals[column].charged:,f} {found.currency}"
    who = f"{owners:,} owner{'s' * (owners != 1)} and {pools:,} pool{'s' * (pools != 1)}"
    kept = (
        f" Closed: kept as {found.closing}{f', which replaces {found.replaces}' if found.replaces else ''}."
        if found.closing
        else ""
    )
    left = found.totals[column].difference
    return f"{found.month or 'All the books know'}: {whole} {COLUMN_TITLES[column]}, charged to {who}; difference {left}.{kept}"


def _list_statements(found: FleetChargeback, columns: list[str]) -> DataTable:
    """A row a statement: amounts, hours held, idle and effective, the rate, and how much was observed."""
    shown = cols(found.by, lambda of, name: of.by[name] or ("" if of.pool else NOTHING))
    if any(statement.pool for statement in found.statements):
        shown.append(col("pool", lambda of: of.pool or ""))
    titles = {column: f"{COLUMN_TITLES[column]}, {found.currency}" for column in columns}
    shown += cols(titles, lambda of, column: of.amounts[column], "money")
    if any(statement.hours.total for statement in found.statements):
        shown += _list_hours(columns[-1])
    return table(found.statements[:MOST_ROWS], *shown, note=_say_more(len(found.statements)))


def _list_hours(rated: str) -> list[FilledColumn]:
    """Columns of GPU-hours; a statement without any has none, and what was not observed is neither idle nor effective."""

    def known(statement: Statement, amount: Decimal | None, digits: Decimal = _HOURS) -> Cell:
        return None if not statement.hours.total or amount is None else amount.quantize(digits)

    def observed(statement: Statement) -> Cell:
        share = statement.hours.coverage_share
        return None if share is None else float(share)

    return [
        col("GPU-hours held", lambda of: known(of, of.hours.total), "number"),
        col("idle", lambda of: known(of, of.hours.idle), "number"),
        col("effective", lambda of: known(of, of.hours.effective), "number"),
        col(
            f"{COLUMN_TITLES[rated]} per billed GPU-hour",
            lambda of: known(of, of.rates[rated], Decimal("0.0001")),
            "number",
        ),
        col("observed", observed, "percent"),
    ]


def _list_parts(found: FleetChargeback, columns: list[str]) -> DataTable:
    """A row a part of a statement, with the rule by which it came there."""
    heads = [TableColumn("statement"), TableColumn("part"), TableColumn("by which rule")]
    heads += [TableColumn(f"{COLUMN_TITLES[column]}, {found.currency}", "money") for column in columns]
    rows: list[tuple[Cell, ...]] = []
    for statement in found.statements:
        of = (
            " / ".join([*filter(None, statement.by.values()), *([statement.pool] if statement.pool else [])]) or NOTHING
        )
        rows += [(of, part.name, part.method, *(part.amounts[c] for c in columns)) for part in statement.parts]
    return DataTable(heads, rows[:MOST_ROWS], note=_say_more(len(rows)))


def _list_totals(found: FleetChargeback) -> DataTable:
    return table(
        found.totals.items(),
        col("column"),
        *cols(("bill", "rounding", "charged", "difference"), lambda of, name: getattr(of[1], name), "money"),
        note=f"{found.currency}; bill − rounding = charged",
    )


def _list_spreads(found: FleetChargeback, columns: list[str]) -> Iterator[Section]:
    if found.spreads:
        spreads = table(
            found.spreads,
            col("pool", "pool"),
            col("borne by", lambda s: f"{s.way}{f'; kept apart: {s.kept_because}' if s.kept_because else ''}"),
            *cols({column: COLUMN_TITLES[column] for column in columns}, lambda s, column: s.amounts[column], "money"),
        )
        yield Section("Pools that owners bear", tables=(spreads,))


def _suggest(found: FleetChargeback, store_words: str) -> Iterator[Section]:
    untagged = any(statement.pool == "untagged" for statement in found.statements)
    commands = [link_bridge(f"{f' --month {found.month}' if found.month else ''}{store_words}")]
    if untagged and found.coverage_share is not None:  # without held time there is nothing to list
        commands.append(
            Suggestion(
                f"loadfactor untagged{store_words}",
                "says whose held time has no owner, and the rule that would give it one",
            )
        )
    if found.month and not found.closing:
        close = f"loadfactor chargeback --month {found.month} --by {','.join(found.by)} --close{store_words}"
        commands.append(Suggestion(close, "keeps these statements"))
    yield Section(suggestions=tuple(commands))


def _say_more(count: int) -> str:
    return f"and {count - MOST_ROWS:,} more; --json lists them all" if count > MOST_ROWS else ""


def build_changes(found: ChargebackChanges, store_words: str) -> Document:
    """Statements whose amounts differ from those kept, and by how much."""
    day = found.closed.strftime("%Y-%m-%d %H:%M UTC")
    if not found.statements:
        return Document(f"Nothing changed since {found.month} was closed as {found.closing} ({day}).", data=found)
    columns = [column for column in SHOWN if column in found.change]
    moved = " and ".join(f"{COLUMN_TITLES[c]} {_sign(found.change[c])} {found.currency}" for c in columns)
    by = tuple(found.statements[0].by)
    heads = [*map(TableColumn, by), TableColumn("pool")]
    for column in columns:
        heads += [TableColumn(f"{COLUMN_TITLES[column]}: {what}", "money") for what in ("closed", "now", "change")]
    rows: list[tuple[Cell, ...]] = []
    for of in found.statements[:MOST_ROWS]:
        amounts = [(_of(of.closed, c), _of(of.now, c), of.change[c]) for c in columns]
        rows.append(
            (*(of.by[name] or "" for name in by), of.pool or "", *(cell for cells in amounts for cell in cells))
        )
    close = Suggestion(
        f"loadfactor chargeback --month {found.month} --by {','.join(by)} --close{store_words}",
        "keeps the statements of now, which name the ones they replace",
    )
    changed = DataTable(heads, rows, note=_say_more(len(found.statements)))
    why = table(
        found.reasons[:MOST_ROWS],
        col("what", "kind"),
        col("which", "what"),
        col(f"change, {found.currency}", lambda reason: reason.amount, "money"),
        note=_say_more(len(found.reasons)),
    )
    reasons = Section("Why", tables=(why,)) if found.reasons else Section("Why", "Nothing is kept of what it stood on.")
    return Document(
        f"{len(found.statements):,} statements of {found.month} changed since it was closed as {found.closing} ({day}): {moved}.",
        (Section("Changed", tables=(changed,), suggestions=(close,)), reasons),
        data=found,
    )


def _of(amounts: Mapping[str, Decimal], column: str) -> Decimal:
    return amounts.get(column, Decimal("0.00"))


def _sign(amount: Decimal) -> str:
    return f"{amount:+,f}".replace("-", "−")
