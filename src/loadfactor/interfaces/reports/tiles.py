"""The numbers to see first, each with its change against the period before: what pages and digests begin with."""

from collections.abc import Sequence
from typing import Final

from loadfactor.base.units import PERCENT
from loadfactor.interfaces.document import Tile
from loadfactor.interfaces.formats import number, percent
from loadfactor.interfaces.pages.readings import coverage_text, value_text
from loadfactor.interfaces.reports.inquiry import Inquiry
from loadfactor.metrics import metric
from loadfactor.metrics.query.reading import Reading

TILES: Final = ("utilization", "load_factor", "cost", "idle_cost", "queue_wait_s_p50")
BEFORE: Final = "the period before"


def build_tiles(
    inquiry: Inquiry,
    before: Inquiry | None,
    metrics: Sequence[str] = TILES,
    words: str = BEFORE,
    over: str | None = None,
) -> tuple[list[Tile], list[Reading]]:
    """A tile a metric that is known: its change against `before` (called `words`), its coverage where something is missing.

    `over` is a dimension of time: a tile has the course of its values.
    """
    now = inquiry.ask(*metrics)
    then: dict[str, Reading] = {r.metric: r for r in before.ask(*metrics)} if before else {}
    course = inquiry.ask(*metrics, by=(over,)) if over else ()
    tiles = []
    for reading in now:
        if reading.value is None:
            continue
        over_time = [r for r in course if r.metric == reading.metric]
        change = say_change(reading, then.get(reading.metric))
        covered = coverage_text(reading)
        notes = (f"{change} against {words}" if change else "", f"{covered} known" if covered else "")
        of = metric(reading.metric)
        unit = f" {reading.unit}" if reading.unit == "GPU-hours" else ""
        note = "; ".join(filter(None, notes))
        values = [r.value if isinstance(r.value, float) else None for r in over_time]
        description = _say_course(over_time, over or "")
        tiles.append(Tile(of.title, f"{value_text(reading)}{unit}", note, of.meaning, values, description))
    return tiles, list(now)


def _say_course(over_time: Sequence[Reading], over: str) -> str:
    known = [(r.value, value_text(r)) for r in over_time if isinstance(r.value, float)]
    if len(known) < 2:
        return ""
    (_, low), (_, high) = min(known), max(known)
    return f"by {over}: lowest {low}, highest {high}, last {known[-1][1]}"


def say_change(now: Reading | None, then: Reading | None) -> str:
    """The change against the period before; nothing where that is not known."""
    if now is None or then is None or not isinstance(now.value, float) or not isinstance(then.value, float):
        return ""
    change = now.value - then.value
    sign = "+" if change > 0 else "−" if change < 0 else "±"
    if now.unit == "share":
        return f"{sign}{number(abs(change) * PERCENT, 2)} points"
    return f"{sign}{percent(abs(change) / then.value)}" if then.value else ""
