"""The numbers to see first, each with its change against the period before: what pages and digests begin with."""

from collections.abc import Sequence
from typing import Final

from loadfactor.base.units import PERCENT
from loadfactor.interfaces.document import Tile
from loadfactor.interfaces.formats import draw_line, number, percent
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

    `over` is a dimension of time: the note begins with a line of its values.
    """
    now = inquiry.ask(*metrics)
    then: dict[str, Reading] = {r.metric: r for r in before.ask(*metrics)} if before else {}
    course = inquiry.ask(*metrics, by=(over,)) if over else ()
    tiles = []
    for reading in now:
        if reading.value is None:
            continue
        values = [r.value for r in course if r.metric == reading.metric]
        drawn = draw_line([value if isinstance(value, float) else None for value in values])
        change = say_change(reading, then.get(reading.metric))
        covered = coverage_text(reading)
        notes = (drawn, f"{change} against {words}" if change else "", f"{covered} known" if covered else "")
        of = metric(reading.metric)
        unit = f" {reading.unit}" if reading.unit == "GPU-hours" else ""
        tiles.append(Tile(of.title, f"{value_text(reading)}{unit}", "; ".join(filter(None, notes)), of.meaning))
    return tiles, list(now)


def say_change(now: Reading | None, then: Reading | None) -> str:
    """The change against the period before; nothing where that is not known."""
    if now is None or then is None or not isinstance(now.value, float) or not isinstance(then.value, float):
        return ""
    change = now.value - then.value
    sign = "+" if change > 0 else "−" if change < 0 else "±"
    if now.unit == "share":
        return f"{sign}{number(abs(change) * PERCENT, 2)} points"
    return f"{sign}{percent(abs(change) / then.value)}" if then.value else ""
