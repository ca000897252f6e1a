"""The page of `loadfactor users`: who held GPUs, how full and at what cost; with --wasteful those that the rule names, and why."""

from dataclasses import replace
from functools import partial
from shlex import quote

from loadfactor.insight.wasteful import UserUses, find_users
from loadfactor.interfaces.document import Assumption, Document, Section, Suggestion
from loadfactor.interfaces.formats import counted, instant, money, number, percent
from loadfactor.interfaces.functions import make_function
from loadfactor.interfaces.requests import UsersRequest, read_filters
from loadfactor.interfaces.tables import col, table
from loadfactor.metrics.query.reading import rank
from loadfactor.settings.config import settings

MOST_ROWS = 40
WEEK = "7d"
"""The window where none is given."""


def build_page(request: UsersRequest) -> Document:
    """The users of the window, by default of the last seven days that the books know."""
    if (request.last, request.start, request.end) == (None, None, None):
        request = replace(request, last=WEEK)
    chosen = settings()
    with request.books.snapshot() as snapshot:
        start, end = request.window(snapshot)
        where = read_filters(request.where, "--where")
        ask = partial(snapshot.show, start=start, end=end, timezone=request.zone, basis=request.basis, where=where)
        reported = snapshot.sum_reported("user", start, end, where)
        found = find_users(ask, chosen.wasteful, chosen.notices, request.wasteful, reported)
    store = f" --store {quote(str(request.store))}" if request.store else ""
    return build_users(found, store)


def build_users(found: UserUses, words: str) -> Document:
    """A row a user, the costliest idle time first."""
    shown = found.users[:MOST_ROWS]
    left = len(found.users) - len(shown)
    columns = [
        col("user", "user"),
        col("team", lambda of: ", ".join(of.teams)),
        col("jobs", lambda of: float(of.jobs), "number"),
        col("GPU-hours", "gpu_hours", "number"),
        col("utilization", "utilization", "percent"),
        col("observed", "coverage", "percent"),
        col("idle GPU-hours", "idle_gpu_hours", "number"),
        col("idle cost", "idle_cost", "money"),
        col("cost", "cost", "money"),
    ]
    if any(of.reported for of in shown):
        columns.insert(6, col("reported (jobstats)", lambda of: of.reported and of.reported.utilization, "percent"))
    if found.is_wasteful:
        columns.append(col("because", lambda of: "; ".join(of.because)))
    rows = table(shown, *columns, currency=found.currency, note=f"and {left:,} more; --json lists them" if left else "")
    commands = (
        (
            Suggestion(
                f"loadfactor show idle_cost utilization --by job --where user={quote(shown[0].user)}{words}",
                "their jobs",
            ),
        )
        if shown
        else ()
    )
    return Document(
        _say(found),
        (Section(tables=(rows,) if shown else (), suggestions=commands),),
        f"{instant(found.start)} to {instant(found.end)}.",
        assumptions=_list_rule(found) if found.is_wasteful else (),
        notes=(f"{counted(float(found.opted_out), 'user')} opted out and not named ([notices] opt_out)",)
        if found.opted_out
        else (),
        data=found,
    )


def _say(found: UserUses) -> str:
    idle = sum(rank(of.idle_gpu_hours) for of in found.users if of.idle_gpu_hours)
    cost = sum(of.idle_cost for of in found.users if of.idle_cost)
    what = f"{number(idle)} idle GPU-hours" + (f", {money(cost, found.currency)}" if cost else "")
    if not found.is_wasteful:
        return f"{counted(float(len(found.users)), 'user')} held GPUs: {what}."
    if not found.users:
        return "The rule names no user."
    verb = "are" if len(found.users) > 1 else "is"
    return f"{counted(float(len(found.users)), 'user')} {verb} named by the rule: {what}."


def _list_rule(found: UserUses) -> tuple[Assumption, ...]:
    rule = found.rule
    low = f"under {percent(rule['utilization_below'])} over at least {number(rule['least_gpu_hours'])} GPU-hours"
    return (
        Assumption("low utilization", low, "[wasteful]"),
        Assumption("or idle", f"at least {number(rule['idle_gpu_hours'])} GPU-hours", "[wasteful]"),
        Assumption("judged where", f"at least {percent(rule['least_coverage'])} was observed", "[wasteful]"),
    )


users = make_function("users", UsersRequest, build_page, "The answer of `loadfactor users` as a page.")
