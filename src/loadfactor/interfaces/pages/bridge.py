"""The page of `loadfactor bill bridge`: from the bill to what a budget has spent, amount by amount; and links to it from others."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from shlex import quote

from loadfactor.base.errors import InputError, no_such
from loadfactor.books.charging.bridge import Bridge, Chain
from loadfactor.interfaces.document import DataTable, Document, Section, Suggestion
from loadfactor.interfaces.formats import instant
from loadfactor.interfaces.requests import BridgeRequest
from loadfactor.interfaces.tables import col, cols, table
from loadfactor.money.amounts import BRIDGE, CHAIN, COST, SPENT, STATEMENT

MOST_TEAMS = 25
POOLS, FLEET = "pools that nobody bears", "the fleet"
"""Rows of the chain that are no team."""
_ENDS = 2


def build_page(request: BridgeRequest) -> Document:
    """The walk of a team or of the fleet, or a part of it between two amounts."""
    found = request.books.bridge(request.team, request.month, request.zone)
    if request.ends:
        found = cut(found, request.ends)
    return build_bridge(found)


def cut(found: Bridge, ends: Sequence[str]) -> Bridge:
    """The walk between two of its amounts, in either direction. Raises InputError for what is none of them."""
    names = [step.name for step in found.steps]
    if len(ends) != _ENDS:
        raise InputError(f"name two amounts to walk between, or none: {', '.join(map(quote, names))}")
    places = []
    for end in ends:
        near = [n for n, name in enumerate(names) if name.startswith(end)]
        if not near:
            raise no_such("amount of this bridge", end, names)
        places.append(near[0])
    first, last = places
    steps = found.steps[first : last + 1] if first <= last else tuple(reversed(found.steps[last : first + 1]))
    walked = [replace(steps[0], change=steps[0].amount - steps[0].amount, differs_by="")]
    for before, step in pairwise(steps):
        why = step.differs_by if first <= last else before.differs_by
        walked.append(replace(step, change=step.amount - before.amount, differs_by=why))
    return replace(found, steps=tuple(walked))


def build_bridge(found: Bridge) -> Document:
    """Each step with its amount and the change from the one before, and what each amount is."""
    first, last = found.steps[0], found.steps[-1]
    who = found.team or "The fleet"
    walk = table(
        found.steps,
        col("amount", "name"),
        col(found.currency, "amount", "money"),
        col("change", lambda step: _sign(step.change) if step.differs_by else "", "number"),
        col("differs by", lambda step: step.differs_by if step.change else ""),
    )
    what = table(
        found.steps,
        col("amount", "name"),
        col("what it is", "formula"),
        col("shown by", lambda step: f"loadfactor {step.shown_by}"),
    )
    return Document(
        f"{who}: {first.name} {_say(first.amount, found.currency)}, {last.name} {_say(last.amount, found.currency)}.",
        (Section(tables=(walk,)), Section("What each amount is", tables=(what,))),
        f"{say_window(found)}. {found.column}; GPU-hours at {found.basis} prices.",
        data=found,
    )


def say_window(found: Bridge | Chain) -> str:
    """The months or the window in words."""
    if not found.months:
        return f"All the books know, {instant(found.start)} to {instant(found.end)}"
    span = f"{instant(found.start)} to {instant(found.end)}"
    return f"{found.months[0]}{f' to {found.months[-1]}' if len(found.months) > 1 else ''}, {span}"


def list_chain(chain: Chain) -> DataTable:
    """A row a team and one of the fleet, a column an amount of the chain that is known."""
    known = [of.name for of in CHAIN if of is not SPENT and of.name in chain.fleet]
    nobody = {STATEMENT.name: chain.pools}
    rows = [*list(chain.teams.items())[:MOST_TEAMS], (POOLS, nobody), (FLEET, chain.fleet)]
    more = len(chain.teams) - MOST_TEAMS
    return table(
        rows,
        col("team", lambda row: row[0]),
        *cols(known, lambda row, name: row[1].get(name), "money"),
        note=f"{chain.currency}, {chain.column}" + (f"; and {more} teams more" if more > 0 else ""),
    )


def link_bridge(words: str, team: str | None = None) -> Suggestion:
    """The command that walks from an amount of a page to the others."""
    whose = f" --team {quote(team)}" if team else ""
    walked = f"how the {COST.name}, what is charged, statements and budgets follow from the bill"
    return Suggestion(f"{BRIDGE}{whose}{words}", f"the same of {team} alone" if team else walked)


def _say(amount: Decimal, currency: str) -> str:
    return f"{amount:,f} {currency}"


def _sign(amount: Decimal) -> str:
    return f"{amount:+,f}".replace("-", "−")
