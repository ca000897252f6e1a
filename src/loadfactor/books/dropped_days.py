"""Days whose samples were dropped, in words: what of an answer lacks them, and what would be booked otherwise by now."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from loadfactor.base.units import MS_PER_S
from loadfactor.store.manifest import intersect, merge
from loadfactor.store.session import Session
from loadfactor.tables.schema import Span

_ROWS: Final = {
    "progress": ("Records of progress", "steps"),
    "job_sections": ("Sections of jobs", "steps"),
    "queue_events": ("Events of jobs that waited", "events"),
    "device_events": ("Events of GPUs", "events"),
    "served_requests": ("Requests to served models", "requests"),
}
STAYS: Final = "their ledger stays as it was booked"
MOST_SPANS: Final = 3


def say_lacking(session: Session, window: Span, what: str) -> str:
    """A sentence that says of which days of a window samples are gone, so that `what` knows nothing of them; empty where of none.

    Where the ledger itself begins later, that is stated.
    """
    dropped = session.manifest.dropped
    sentences = []
    if (begins := dropped.begins_ms) and window[0] < begins:
        sentences.append(f"The ledger of before {_day(begins)} was dropped ([retention] ledger).")
    if days := say_days(dropped.frozen, (max(window[0], begins or 0), window[1])):
        sentences.append(f"Samples of {days} were dropped ([retention] samples): {what} has nothing of them.")
    return " ".join(sentences)


def say_changed(session: Session, window: Span) -> str:
    """A sentence that says which days of a window would be booked otherwise by now; empty where none would."""
    days = say_days(session.manifest.dropped.changed, window)
    if not days:
        return ""
    return (
        f"Rows of {days} came or changed after the samples of these days were dropped ([retention] samples): {STAYS}."
    )


def say_dropped_rows(session: Session, window: Span) -> Iterator[str]:
    """Sentences that say of which small tables the rows of a part of a window were dropped."""
    dropped = session.manifest.dropped
    for name, until in dropped.rows:
        if max(window[0], dropped.begins_ms or 0) < min(until, window[1]) and name in _ROWS:
            what, setting = _ROWS[name]
            yield f"{what} that ended before {_day(until)} were dropped ([retention] {setting})."


def say_days(spans: Sequence[Span], window: Span) -> str:
    """The UTC days that spans touch inside a window; empty where they touch none.

    >>> say_days([(0, 86400000), (172800000, 259200000)], (0, 2**60))
    '1970-01-01 and 1970-01-03'
    """
    inside = intersect(merge([*spans]), (window,))
    named = [
        _day(start) if _day(start) == _day(end - 1) else f"{_day(start)} to {_day(end - 1)}" for start, end in inside
    ]
    if len(named) > MOST_SPANS:
        named = [*named[: MOST_SPANS - 1], f"{len(named) - MOST_SPANS + 1} more spans until {_day(inside[-1][1] - 1)}"]
    return " and ".join(filter(None, (", ".join(named[:-1]), *named[-1:])))


def _day(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / MS_PER_S, UTC):%Y-%m-%d}"
