"""The page of `loadfactor savings`: the total, a table of levers, and each lever with its evidence and what to do."""

from typing import Final

from loadfactor.insight.savings import TITLES, FleetSavings, LeverHolder, LeverSaving
from loadfactor.interfaces.document import Assumption, Cell, DataTable, Document, Section, Tile
from loadfactor.interfaces.formats import money, number, percent
from loadfactor.interfaces.tables import col, cols, table
from loadfactor.metrics.fullness import DROPS

MOST_ROWS: Final = 25
NOBODY: Final = "(none)"


def build_savings(found: FleetSavings) -> Document:
    """The largest saving first; the order in which levers were applied is in a note."""
    ordered = rank_levers(found)
    sections = [
        Section("Levers", tables=(list_levers(found, ordered),)),
        *(_describe(lever, found) for lever in ordered),
    ]
    if found.rows:
        sections.insert(1, _list_groups(found))
    if found.price_levers:
        sections.append(_list_prices(found))
    if found.followed:
        sections.append(_list_followed(found))
    hours = [f"{number(of)} GPU-hours" for of in (found.lost_gpu_hours, found.saved_gpu_hours)]
    lost, saved = (
        _amount(found, found.lost, found.lost_gpu_hours),
        _amount(found, found.saved_at_most, found.saved_gpu_hours),
    )
    losses = [drop.title for drop in DROPS if not drop.is_unknown]
    return Document(
        say_total(found),
        tuple(sections),
        tiles=(
            Tile("Lost", lost, f"{hours[0]} that were paid for and brought nothing"),
            Tile("Could have been saved", saved, f"{hours[1]} at most, by all levers together"),
        ),
        assumptions=(
            Assumption("lost", ", ".join(losses), "`loadfactor waterfall`"),
            Assumption("price of a saved hour", "the mean price of that loss of that job or node", "the books"),
            Assumption("per month", "the window's rate over 730 hours", "as if the next month were like it"),
        ),
        notes=_list_notes(found),
        data=found,
    )


def say_total(found: FleetSavings) -> str:
    """How much of what was lost would have been saved, and by what first."""
    if not found.lost_gpu_hours:
        return "Nothing was known to be lost in that time."
    whole = _amount(found, found.lost, found.lost_gpu_hours)
    if not found.levers:
        return f"Of {whole} that brought nothing no lever would have saved anything."
    saved = _amount(found, found.saved_at_most, found.saved_gpu_hours)
    first = max(found.levers, key=lambda lever: (lever.saved or 0.0, lever.gpu_hours))
    largest = _amount(found, first.saved, first.gpu_hours)
    then = f"Of {whole} that brought nothing, {saved} could have been saved."
    then += f" Most by one change: {uncapitalize(first.title)}, {largest}."
    if found.lost is None:
        return then
    return f"{then} In GPU-hours: {number(found.saved_gpu_hours)} of {number(found.lost_gpu_hours)}."


def uncapitalize(title: str) -> str:
    """A title inside a sentence.

    >>> uncapitalize("Release GPUs when the work has ended")
    'release GPUs when the work has ended'
    """
    return title[:1].lower() + title[1:]


def _amount(found: FleetSavings, cost: float | None, hours: float) -> str:
    return f"{number(hours)} GPU-hours" if cost is None else money(cost, found.currency)


def rank_levers(found: FleetSavings) -> list[LeverSaving]:
    """Levers, the one that saves most first."""
    return sorted(found.levers, key=lambda lever: (-(lever.saved or 0.0), -lever.gpu_hours))


def list_levers(found: FleetSavings, ordered: list[LeverSaving]) -> DataTable:
    """These levers as a table."""
    return table(
        ordered,
        col("lever", "title"),
        col("saved", "saved", "money", hint="At most, in this window, of what the levers before it left."),
        col("per month", "saved_per_month", "money", hint="The rate of this window over 730 hours."),
        col("GPU-hours", "gpu_hours", "number"),
        col(
            "how sure",
            "confidence_word",
            hint="High: read off the books; medium: rests on one assumption; low: on several.",
        ),
        col("ask", lambda lever: _name(lever.ask[0]) if lever.ask else NOBODY),
        currency=found.currency,
        note="saved: at most, in this window; ask: who holds most of it",
    )


def _name(holder: LeverHolder) -> str:
    who = " / ".join(name for name in (holder.team, holder.user) if name is not None)
    return f"{who or 'who runs the cluster'} ({percent(holder.share)})"


def _describe(lever: LeverSaving, found: FleetSavings) -> Section:
    rows: list[tuple[Cell, ...]] = [("what says so", sentence) for sentence in lever.evidence]
    rows += [
        ("what to do", lever.action),
        ("whom to ask", ", ".join(_name(holder) for holder in lever.ask) or NOBODY),
        ("how sure", f"{lever.confidence_word} ({percent(lever.confidence)})"),
        ("effort", lever.effort),
        ("risk", f"{lever.risk}: {lever.risk_of}"),
    ]
    lead = f"It would have saved {number(lever.gpu_hours)} GPU-hours"
    lead += "." if lever.saved is None else f", {money(lever.saved, found.currency)}."
    return Section(lever.title, lead, tables=(table(rows, col(""), col("")),))


def _list_groups(found: FleetSavings) -> Section:
    names = tuple(found.rows[0].by)
    more = len(found.rows) - MOST_ROWS
    groups = table(
        found.rows[:MOST_ROWS],
        *cols(names, lambda group, name: group.by[name] or NOBODY),
        col("lost", "lost", "money", hint="Paid for, and neither effective nor unknown."),
        col("saved", "saved", "money"),
        col("GPU-hours saved", "gpu_hours", "number"),
        col(
            "most by",
            lambda group: TITLES[max(group.levers, key=lambda name: group.levers[name])] if group.levers else NOBODY,
        ),
        currency=found.currency,
        note=f"{NOBODY}: nobody held it" + (f"; and {more:,} more, --json lists them all" if more > 0 else ""),
    )
    return Section(f"By {', '.join(names)}", tables=(groups,))


def _list_prices(found: FleetSavings) -> Section:
    prices = table(
        found.price_levers,
        col("lever", "title"),
        col("saved", "saved", "money"),
        col("at most", lambda of: of.saved if of.saved_range is None else of.saved_range.high, "money"),
        col("GPU-hours", "gpu_hours", "number"),
        col("how sure", "confidence_word"),
        col("what says so", lambda of: " ".join((*of.evidence, *(f"Not known: {name}." for name in of.missing)))),
        col("what to do", "action"),
        currency=found.currency,
    )
    lead = "The same hours at other prices, one after another; without what the levers above would have saved."
    return Section("Other prices", lead, tables=(prices,))


def _list_followed(found: FleetSavings) -> Section:
    followed = table(
        found.followed,
        col("lever", "title"),
        col("done", "done"),
        col("team", lambda of: of.team or "all"),
        col("promised a month", "promised_per_month", "money"),
        col("given back a month", "saved_per_month", "money"),
        col("GPU-hours given back a month", "gpu_hours_per_month", "number"),
        col("verdict", "verdict"),
        currency=found.currency,
        note="given back: what it takes from, before less after, over as many days; the verdict: work for the same money",
    )
    return Section("Levers that were pulled", tables=(followed,))


def _list_notes(found: FleetSavings) -> tuple[str, ...]:
    """Hours that were left out, and in which order levers were applied."""
    unknown = found.unknown
    notes = []
    for hours, why in (
        (unknown.unobserved, "were not observed"),
        (unknown.uncounted, "were effective and nobody knows their FLOPs"),
        (unknown.unpriced, "have no price"),
    ):
        if hours > 1e-6:
            notes.append(f"{number(hours)} GPU-hours {why}: no lever saves any money of them.")
    if found.levers:
        order = " → ".join(uncapitalize(lever.title) for lever in found.levers)
        notes.append(f"Applied one after another, each to what those before left: {order}.")
        notes.append(
            "A saved hour is one that others can use or that need not be paid: it is money where one of both happens."
        )
    return tuple(notes)
