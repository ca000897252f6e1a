"""The targets of a fleet or a team: where each stands, how it moves, and the pace that would meet it."""

from collections.abc import Sequence
from datetime import UTC, datetime

from loadfactor.books.targets import TargetStatus
from loadfactor.interfaces.document import Section
from loadfactor.interfaces.formats import UNKNOWN, counted
from loadfactor.interfaces.pages.readings import write_row
from loadfactor.interfaces.tables import col, table
from loadfactor.metrics.query.reading import Reading

NEVER = datetime(1970, 1, 1, tzinfo=UTC)


def list_targets(found: Sequence[TargetStatus]) -> Section:
    """All targets, and a sentence on how many are met or on the way."""
    rows = [(of, *_write(of)) for of in found]
    targets = table(
        rows,
        col("target", lambda row: row[1]),
        col("last week", lambda row: row[2]),
        col("to be", lambda row: f"{'≥' if row[0].is_least else '≤'} {row[3]}"),
        col("by", lambda row: f"{row[0].due:%Y-%m-%d}"),
        col("moves a week", lambda row: row[4]),
        col("needs a week", lambda row: row[5]),
        col("which is", lambda row: _judge(row[0])),
        note="moves: the last week beside that of three weeks before, a week; needs: what would meet it in time",
    )
    met = sum(of.is_met is True for of in found)
    on_way = sum(of.on_pace is True for of in found) - met
    lead = f"Of {counted(len(found), 'target')}, {met} met, {on_way} at a pace that meets them."
    return Section("Targets", lead, tables=(targets,))


def _judge(of: TargetStatus) -> str:
    if of.is_met:
        return "met"
    if of.value is None:
        return "not known"
    if of.needed_per_week is None:
        return "missed"
    return {True: "on pace", False: "too slow", None: "of unknown pace"}[of.on_pace]


def _write(of: TargetStatus) -> tuple[str, str, str, str, str]:
    """The title, the value, the goal and both paces."""

    def say(value: float | None) -> Reading:
        return Reading(of.metric, of.unit, value, {}, of.currency, NEVER, NEVER, None, None, None)

    paces = [None if pace is None else abs(pace) for pace in (of.per_week, of.needed_per_week)]
    title, (value, goal, *written) = write_row([say(of.value), say(of.goal), *(say(pace) for pace in paces)])
    owner = " / ".join(of.where.values())
    signed = [
        UNKNOWN
        if pace is None
        else f"{'−' if pace < 0 else '+'}{text.replace('%', 'points') if of.unit == 'share' else text}"
        for pace, text in zip((of.per_week, of.needed_per_week), written, strict=True)
    ]
    return f"{title}{f' of {owner}' if owner else ''}", value, goal, signed[0], signed[1]
