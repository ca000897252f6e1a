"""The page of `loadfactor bill credits`: the statement to a provider of what it owes for outages, with the evidence."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import ROUND_FLOOR, Decimal

from loadfactor.base.errors import no_such
from loadfactor.books.credits import HELD, CreditClaim, CreditsOwed
from loadfactor.interfaces.document import Assumption, Cell, Document, Section, Suggestion
from loadfactor.interfaces.formats import counted, instant, number, percent
from loadfactor.interfaces.requests import CreditsRequest
from loadfactor.interfaces.tables import col, table
from loadfactor.money.currency import add_exactly

MOST_LINES = 40
"""Nodes to which nothing is owed are listed up to here."""
AT = "%Y-%m-%d %H:%M:%S"
IN_ALL = "in all"
NO_NODE = "node not known"


def build_page(request: CreditsRequest) -> Document:
    """What is owed of a month, by all contracts or by one. Raises InputError for one that is none."""
    found = request.books.credits(request.month, request.zone, request.basis)
    if request.sla is not None:
        claims = tuple(claim for claim in found.claims if request.sla in (claim.sla, claim.provider))
        if not claims:
            raise no_such("contract", request.sla, [claim.sla for claim in found.claims])
        found = replace(found, claims=claims, credit=add_exactly(claim.credit for claim in claims))
    return build_credits(found)


def build_credits(found: CreditsOwed) -> Document:
    """A section a contract: what is owed by which line, and every outage, those that do not count behind the others."""
    notes = []
    if not found.is_complete:
        known = f"{instant(found.known_from)} to {instant(found.known_until)}"
        notes.append(f"the books know {known} of it alone: the rest counts as available, and is not in its price")
    unpriced = [line for claim in found.claims for line in claim.lines if line.credit_share and line.credit is None]
    if unpriced:
        notes.append(
            f"of {counted(float(len(unpriced)), 'line')} no price is known, and no amount; import `prices` or the bill"
        )
    return Document(
        say_owed(found),
        tuple(section for claim in found.claims for section in _list_claim(claim, found.currency)),
        f"{instant(found.start)} to {instant(found.end)}.",
        assumptions=(
            Assumption("availability", "1 − GPU-hours of outages that count ÷ GPU-hours of the month", "the ledger"),
            Assumption("price", f"what the GPUs cost in the month, {found.basis}", "--basis, else the best there is"),
            *(Assumption(claim.sla, "; ".join(claim.rules), "[[sla]]") for claim in found.claims),
        ),
        notes=notes,
        data=found,
    )


def say_owed(found: CreditsOwed) -> str:
    """What is owed, in one sentence."""
    owing = [claim for claim in found.claims if claim.credit]
    if not owing:
        return f"Nothing is owed of {found.month}: availability was as promised, or what it cost is not known."
    by = ", ".join(f"{claim.provider} {_exact(claim.credit, found.currency)}" for claim in owing)
    if len(owing) == 1:
        (claim,) = owing
        lines = sum(1 for line in claim.lines if line.credit)
        of = f"{counted(float(lines), 'node')} of {len(claim.lines):,}" if claim.per == "node" else "all GPUs"
        return f"{claim.provider} owes {_exact(claim.credit, found.currency)} of {found.month}, for {of}."
    return f"{_exact(found.credit, found.currency)} is owed of {found.month}: {by}."


def show_owed(found: CreditsOwed) -> Section:
    """The same on another page: a row a contract, and the command that writes the statement."""
    listed = table(
        found.claims,
        col("contract", "sla"),
        col("provider", "provider"),
        col("promised", lambda claim: say_availability(claim.promised)),
        col("lowest", lambda claim: say_availability(min((line.availability for line in claim.lines), default=None))),
        col("price of the month", "cost", "money"),
        col(f"owed, {found.currency}", "credit", "money"),
        currency=found.currency,
    )
    command = Suggestion(f"loadfactor bill credits --month {found.month} --output credits.pdf", "the statement")
    return Section("Credits owed", say_owed(found), tables=(listed,), suggestions=(command,))


def say_availability(share: Decimal | None) -> str:
    """An availability as contracts write it: four digits behind the point, never rounded up.

    >>> say_availability(Decimal("0.995")), say_availability(Decimal("0.998763441")), say_availability(Decimal(1))
    ('99.5 %', '99.8763 %', '100 %')
    """
    if share is None:
        return "–"
    text = f"{(share * 100).quantize(Decimal('0.0001'), ROUND_FLOOR):f}"
    return f"{text.rstrip('0').rstrip('.')} %"


def _exact(amount: Decimal, currency: str) -> str:
    return f"{amount:,f} {currency}"


def _list_claim(claim: CreditClaim, currency: str) -> Sequence[Section]:
    steps = ", ".join(
        f"{percent(float(share))} below {say_availability(below)}" for below, share in sorted(claim.steps, reverse=True)
    )
    names = [
        *([claim.provider] if claim.provider != claim.sla else []),
        *([f"contract {claim.contract}"] if claim.contract else []),
    ]
    parties = f"{', '.join(names)[:1].upper()}{', '.join(names)[1:]}. " if names else ""
    whole = "of each node" if claim.per == "node" else "of all GPUs together"
    lead = f"{parties}Promised: {say_availability(claim.promised)} of a month {whole}. Owed of its price: {steps}."
    if not claim.lines:
        return (Section(claim.sla, f"{lead} No GPU of the month is of this contract."),)
    owed = [line for line in claim.lines if line.credit_share or line.down_gpu_hours]
    shown = [*owed, *[line for line in claim.lines if line not in owed]][: max(len(owed), MOST_LINES)]
    left = len(claim.lines) - len(shown)
    rows: list[tuple[Cell, ...]] = [
        (
            line.node or NO_NODE,
            line.gpu_hours,
            line.down_gpu_hours,
            line.counted_gpu_hours,
            line.unknown_gpu_hours,
            say_availability(line.availability),
            line.cost,
            float(line.credit_share) or "",
            line.credit,
        )
        for line in shown
    ]
    rows.append((IN_ALL, "", "", "", "", "", claim.cost, "", claim.credit))
    lines = table(
        rows,
        col("node" if claim.per == "node" else "", lambda row: row[0]),
        col("GPU-hours", style="number", digits=6),
        col("down", style="number", digits=6),
        col("counted", style="number", digits=6, hint="of what was down, what the contract does not leave out"),
        col("not known", style="number", digits=6, hint="neither down nor measured: counts as available"),
        col("availability"),
        col("price", style="money"),
        col("share owed", style="percent"),
        col(f"owed, {currency}", style="money"),
        currency=currency,
        note=f"and {left:,} more that had no outage; --json lists them" if left else "",
    )
    zone = f", {claim.outages[0].start:%Z}" if claim.outages else ""
    evidence = table(
        sorted(claim.outages, key=lambda of: (bool(of.left_out), of.left_out == HELD)),
        col("node", lambda of: of.node or NO_NODE),
        col(f"from{zone}", lambda of: f"{of.start:{AT}}"),
        col(f"to{zone}", lambda of: f"{of.end:{AT}}"),
        col("GPUs", lambda of: of.devices[0] if len(of.devices) == 1 else of.gpus, "number"),
        col("GPU-hours", "gpu_hours", "number", 6),
        col("reason", lambda of: "; ".join(reason or "not known" for reason in of.reasons)),
        col("source", lambda of: "; ".join(of.sources)),
        col("counts", lambda of: f"no: {of.left_out}" if of.left_out else "yes"),
    )
    counts = sum(1 for of in claim.outages if not of.left_out)
    lead_of_outages = f"{counted(float(counts), 'outage')} counted, {number(len(claim.outages) - counts)} did not."
    sections = [Section(claim.sla, lead, tables=(lines,))]
    if claim.outages:
        sections.append(Section(f"Outages of {claim.sla}", lead_of_outages, tables=(evidence,)))
    return sections
