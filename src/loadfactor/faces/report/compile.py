"""How is a report put together? The sentence on top and the tiles from one question, then section after section."""

from collections.abc import Sequence

from loadfactor.faces.formats import duration, money, number, percent
from loadfactor.faces.report import Report, Section, Tile
from loadfactor.faces.report.inquiry import Inquiry, Row
from loadfactor.faces.report.sections import SECTIONS
from loadfactor.metrics.query.reading import Reading

SPOKEN_BASES = {"sm_active": "SM active", "engine_active": "engine active", "gpu_util": "GPU_UTIL"}
KINDS_OF_MONEY = {
    "effective": "effective prices",
    "contracted": "contracted prices",
    "owned": "own costs",
    "list": "list prices",
    "estimate": "estimated prices: the catalog's dated list prices, none were imported",
}


def compile_report(inquiry: Inquiry) -> Report:
    """Ask the books everything the report shows. Raises InputError for a window, job or filter the books do not know."""
    whole = inquiry.whole
    made: list[Section] = [s for s in (section(inquiry) for section in SECTIONS) if s is not None]
    return Report(
        headline=_headline(whole, inquiry.of_whom),
        window=inquiry.window,
        stands_on=_stands_on(whole.readings["effective_gpu_hours"], whole.readings["cost"]),
        tiles=_tiles(whole),
        sections=made,
        readings=whole.all,
    )


def _headline(whole: Row, of_whom: str) -> str:
    fleet = f"This part of the fleet ({of_whom})" if of_whom else "The fleet"
    full, cost, bought = (whole.value(m) for m in ("load_factor", "cost", "effective_cost"))
    if full is None:
        paid = f"{number(whole.value('paid_gpu_hours'), 4)} GPU-hours"
        return f"{fleet}: {paid} paid for, and nobody measured what they did."
    if cost is None or bought is None:
        return f"{fleet} flew {percent(full)} full; what it cost is not known."
    return f"{fleet} flew {percent(full)} full: of {money(cost)} paid, {money(bought)} bought work."


def _tiles(whole: Row) -> Sequence[Tile]:
    observed = whole.readings["observed_gpu_hours"]
    waiting = whole.value("queue_waiting")
    still = f", {number(waiting)} gave up or wait" if waiting else ""
    tiles = [
        Tile("Load factor", percent(whole.value("load_factor")), "effective ÷ paid GPU-hours"),
        Tile("Utilization", percent(whole.value("utilization")), "effective ÷ observed GPU-hours"),
        Tile("Allocation", percent(whole.value("allocation")), "held ÷ paid GPU-hours"),
        Tile("Observed", percent(observed.coverage), "of held time has samples"),
        Tile("Paid", money(whole.value("cost")), f"{number(whole.value('paid_gpu_hours'), 4)} GPU-hours"),
        Tile("Effective GPU-hour", money(whole.value("cost_per_effective_gpu_hour")), "dollars ÷ effective GPU-hours"),
    ]
    if whole.value("queue_wait_s_p50") is not None:
        p90 = duration(whole.value("queue_wait_s_p90"))
        tiles.append(Tile("Median wait", duration(whole.value("queue_wait_s_p50")), f"one in ten over {p90}{still}"))
    if whole.value("energy_kwh") is not None:
        tiles.append(Tile("Energy", f"{number(whole.value('energy_kwh'))} kWh", "drawn by the GPUs alone"))
    return tiles


def _stands_on(activity: Reading, money: Reading) -> str:
    """What the numbers rest on, in words: the activity signals and the kind of money.

    >>> from datetime import UTC, datetime
    >>> at = datetime(2026, 1, 1, tzinfo=UTC)
    >>> a = Reading("effective_gpu_hours", "GPU-hours", 1.0, {}, at, at, 1.0, "sm_active 96%, gpu_util (optimistic) 4%")
    >>> _stands_on(a, Reading("cost", "USD", 1.0, {}, at, at, 1.0, "contracted"))
    'Activity by SM active 96%, GPU_UTIL (optimistic) 4%. Dollars at contracted prices.'
    """
    said = []
    if activity.basis:
        signals = activity.basis
        for name, spelled in SPOKEN_BASES.items():
            signals = signals.replace(name, spelled)
        said.append(f"Activity by {signals}.")
    if money.value is not None and money.basis:
        said.append(f"Dollars at {KINDS_OF_MONEY.get(money.basis, money.basis)}.")
    return " ".join(said)
