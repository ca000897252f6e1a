"""The page of `loadfactor why-changed`: a metric before and after, and the parts of the difference with the holders behind each."""

from datetime import timedelta
from typing import Final

from loadfactor.base.errors import InputError
from loadfactor.base.request import make_request
from loadfactor.books.snapshot import Snapshot
from loadfactor.insight.changes import Change, ChangedHolder, ChangePart, Span, explain_change
from loadfactor.insight.closed_change import explain_closed
from loadfactor.interfaces.document import Assumption, Document, Section
from loadfactor.interfaces.formats import instant, percent
from loadfactor.interfaces.functions import Page
from loadfactor.interfaces.pages.readings import write_row
from loadfactor.interfaces.requests import WhyChangedRequest, read_moment
from loadfactor.interfaces.tables import FilledColumn, col, cols, table
from loadfactor.metrics.query.reading import Reading

CLOSED: Final = "closed"
MOST_HOLDERS: Final = 5
NOBODY: Final = "(nobody)"
SHARE: Final = "share"
POINTS: Final = "points"
"""Differences of shares, which are no shares."""


def build_page(request: WhyChangedRequest) -> Document:
    """The page of a request."""
    with request.books.snapshot() as snapshot:
        return build_change(explain_request(request, snapshot))


def why_changed(metric: str, **given: object) -> Page:
    """The answer of `loadfactor why-changed` as a page.

    Arguments:
        metric: the name of a metric.
        start, end, last, month: this window, by default the last week of the books.
        against: the other one, FROM/TO, by default the one before; "closed" for a month as it was closed.
        by, where, basis, timezone, store: of whom, in which kind of money, and which books.
    """
    return Page(build_page(make_request(WhyChangedRequest, {"metric": metric, **given})))


def explain_request(request: WhyChangedRequest, snapshot: Snapshot) -> Change:
    """The change that a request asks for. Raises InputError where its windows contradict each other."""
    window, zone = request.window(snapshot), request.zone
    against: Span | None = None
    if request.month is not None:
        if any(window):
            raise InputError("--month and --from, --to or --last both say which window; give one of them")
        start = read_moment(request.month, zone)
        if start is None or len(request.month) != len("2026-10"):
            raise InputError(f"{request.month!r} is no month; write it as 2026-10")
        after, before = ((start + timedelta(days=days)).replace(day=1) for days in (31, -1))
        window, against = (start, after), (before, start)
    if request.against == CLOSED:
        if request.month is None or request.metric != "cost":
            example = "why-changed cost --month 2026-10 --against closed"
            raise InputError(f"--against closed is of the cost of a month; write `{example}`")
        return explain_closed(snapshot, request.month, request.by, zone, request.filters)
    if request.against is not None:
        ends = [read_moment(text, zone) for text in request.against.split("/")]
        if len(ends) != 2 or ends[0] is None or ends[1] is None or ends[0] >= ends[1]:
            raise InputError(
                f"--against {request.against!r} is no window; write FROM/TO: --against 2026-09-28/2026-10-05"
            )
        against = (ends[0], ends[1])
    return explain_change(snapshot, request.metric, window, against, request.by, zone, request.basis, request.filters)


def build_change(found: Change) -> Document:
    """The sentence, the parts, and who is behind each."""
    title, (before, after, *_) = _write(found, [found.before, found.after])
    name, unit = title.partition(" (")[0], title.partition(" (")[2].removesuffix(")")
    heading = f"change{f', {unit}' if unit else ''}" if found.unit != SHARE else f"change, {POINTS}"
    parts = table(
        found.parts,
        col("part", "name"),
        col(heading, lambda part: _sign(found, part.amount)),
        col("of before", lambda part: part.amount / found.before if found.before else None, "percent"),
        col("what it means", "meaning"),
    )
    sections = [Section("Parts", tables=(parts,))] if found.parts else []
    behind = [(part, holder) for part in found.parts for holder in part.holders[:MOST_HOLDERS]]
    if behind:
        rest = any(len(part.holders) > MOST_HOLDERS for part in found.parts)
        note = f"the {MOST_HOLDERS} largest of each part; --json lists all" if rest else ""
        shown: list[FilledColumn] = [col("part", lambda of: of[0].name)]
        names = tuple(dict.fromkeys(name for _, holder in behind for name in holder.by))
        shown += cols(names, _name_holder)
        holders = table(behind, *shown, col(heading, lambda of: _sign(found, of[1].amount)), note=note)
        sections.append(Section("Who is behind it", tables=(holders,)))
    spans = [(found.before_from, found.before_to), (found.after_from, found.after_to)]
    words = [f"{instant(start)} to {instant(end)}" for start, end in spans]
    subtitle = f"{words[1]}, against {words[0]}." if words[0] != words[1] else f"{words[0]}, as closed and now."
    return Document(
        _say_change(found, name, before, after, unit),
        tuple(sections),
        subtitle,
        assumptions=(Assumption("method", "parts add up to the change exactly", found.method),),
        notes=found.remarks,
        data=found,
    )


def _name_holder(of: tuple[ChangePart, ChangedHolder], dimension: str) -> str:
    """Who it is; a pool of a closed month has no team, and a team's statement is in no pool."""
    by = of[1].by
    if dimension not in by:
        return ""
    return by[dimension] or ("" if by.get("pool") else NOBODY)


def _say_change(found: Change, name: str, before: str, after: str, unit: str) -> str:
    unit = f" {unit}" if unit and not found.currency else ""
    if not found.parts or not found.change:
        others = ": parts cancel each other out" if found.parts else ""
        return f"{name} did not change: {after}{unit}{others}."
    share = f" ({percent(abs(found.change / found.before))})" if found.before and found.unit != SHARE else ""
    way = "rose" if found.change > 0 else "fell"
    listed = ", ".join(_say_part(found, part) for part in found.parts[:3])
    return f"{name} {way} from {before} to {after}{unit}{share}: {listed}."


def _say_part(found: Change, part: ChangePart) -> str:
    first = next((of for of in part.holders if of.amount * part.amount > 0), None)
    named = " / ".join(value for value in first.by.values() if value) if first else ""
    who = f" (most of it {named})" if first and named and 2 * abs(first.amount) > abs(part.amount) else ""
    return f"{part.name} {_sign(found, part.amount)}{who}"


def _sign(found: Change, amount: float) -> str:
    _, (text, *_) = _write(found, [abs(amount), found.before, found.after])
    if found.unit == SHARE:
        text = f"{text.removesuffix(' %')} {POINTS}"
    return f"{'−' if amount < 0 else '+'}{text}"


def _write(found: Change, values: list[float]) -> tuple[str, list[str]]:
    """Values of the metric as `show` writes them, all in one unit."""
    spans = found.after_from, found.after_to
    return write_row(
        [Reading(found.metric, found.unit, value, {}, found.currency, *spans, None, None, None) for value in values]
    )
