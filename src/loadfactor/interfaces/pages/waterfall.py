"""The page of `loadfactor waterfall`: where what was paid went, on the way to what was useful."""

from typing import Final

from loadfactor.books.waterfall import FleetWaterfall, WaterfallGroup
from loadfactor.interfaces.charts import Chart, Series
from loadfactor.interfaces.document import Assumption, Cell, Document, Section, Tile
from loadfactor.interfaces.formats import money, number, percent
from loadfactor.interfaces.requests import BooksRequest
from loadfactor.interfaces.tables import col, cols, table
from loadfactor.metrics.fullness import DROPS, LEVELS, WITHOUT_MATH

NOTHING: Final = "(none)"
MOST_ROWS: Final = 25
STALLS: Final = "parts of idle, not active and active time above, by what jobs said they did instead of advancing"
ROUNDING: Final = 1e-9
"""A share of priced hours as near to 1 as this is 1."""
LEVEL_TITLES: Final = {
    "paid": "paid",
    "held": "held",
    "observed": "observed",
    "not_idle": "not idle",
    "active": "active",
    "math": "math (MFU)",
    "kept": "kept",
    "useful": "useful",
}
TITLES: Final = {drop.name: drop.title for drop in DROPS}
UNKNOWN_CAUSE: Final = "cause unknown"
CAUSE_TITLES: Final = {
    None: UNKNOWN_CAUSE,
    "restart": "restart since the last checkpoint",
    "failed_attempt": "failed attempts",
    "preemption": "preemption",
    "loss_scale": "steps skipped by loss scaling",
    "other": "other causes",
    "checkpoint": "checkpoint stalls",
    "evaluation": "evaluation",
    "compile": "compiling",
    "data_wait": "data wait",
    "start_up": "start-up",
}
"""Causes of `LossCause`, as people read them."""


def build_page(request: BooksRequest) -> Document:
    """The waterfall of the window."""
    books = request.books
    start, end = request.window(books)
    return build_waterfall(books.waterfall(request.by, start, end, request.zone, request.basis, request.filters))


def build_waterfall(found: FleetWaterfall) -> Document:
    """Every step in GPU-hours and money, and by group what is left at each level."""
    sections = [draw_steps(found)]
    if found.rows:
        sections.append(_list_groups(found))
    hours = found.all.gpu_hours
    left = {level: hours.after(level) for level in LEVELS}
    tiles = [
        Tile(LEVEL_TITLES[name], f"{number(of)} GPU-h", percent(of / (hours.paid or 1))) for name, of in left.items()
    ]
    return Document(
        say_useful(found),
        tuple(sections),
        tiles=tiles if hours.paid else (),
        assumptions=(
            Assumption("order", " → ".join(LEVEL_TITLES.values()), "each step takes from what the one before left"),
            Assumption("math", "model FLOPs ÷ dense peak of the job's datatype", "[[network]] in loadfactor.toml"),
            Assumption("FLOPs of unobserved time", "in proportion to held time", "they are held against no activity"),
        ),
        notes=list_unknown(found),
        data=found,
    )


def say_useful(found: FleetWaterfall) -> str:
    """How much of what was paid was useful, as far as anybody knows, and the largest loss."""
    hours, cost = found.all.gpu_hours, found.all.cost
    paid = f"{number(hours.paid)} GPU-hours" if cost is None else money(cost.paid, found.currency)
    of = hours if cost is None else cost
    if not of.paid:
        return "Nothing was paid for in that time."
    useful, unknown = of.useful / of.paid, of.unknown / of.paid
    sentence = f"Of {paid} paid, {percent(useful)} are known to have been useful"
    if unknown > 0:
        sentence += (
            f"; of {percent(unknown)} nobody knows, so it is between {percent(useful)} and {percent(useful + unknown)}"
        )
    losses = [(getattr(of, drop.name), drop.title) for drop in DROPS if not drop.is_unknown]
    largest, title = max(losses)
    return f"{sentence}. The largest loss: {title}, {percent(largest / of.paid)}." if largest > 0 else f"{sentence}."


def draw_steps(found: FleetWaterfall) -> Section:
    """Every level, and what goes on the way to it; what took nothing is left out."""
    amounts = (col("GPU-hours", style="number"), col("cost", style="money"), col("of paid", style="percent"))
    rows: list[tuple[Cell, ...]] = []
    changes: list[tuple[str, float]] = []
    for step in found.all.steps:
        if step.kind == "level":
            rows.append((f"= {LEVEL_TITLES[step.name]}", step.gpu_hours, step.cost, step.share_of_paid))
        elif step.gpu_hours or step.cost:
            sign = "−" if step.kind == "loss" else "?"
            rows.append((f"  {sign} {TITLES[step.name]}", step.gpu_hours, step.cost, step.share_of_paid))
            changes.append((TITLES[step.name], -step.gpu_hours))
            causes = list_causes(found.all, step.name)
            rows += [(f"      {title}", *parts) for title, *parts in causes]
    steps = table(
        rows,
        col("step"),
        *amounts,
        currency=found.currency,
        note="− a loss, ? unknown, = what is left; losses, unknown and useful add up to paid",
    )
    x = ("paid", *(name for name, _ in changes))
    y = (found.all.gpu_hours.paid, *(change for _, change in changes))
    chart = Chart(
        title="From paid to useful",
        kind="waterfall",
        x=x,
        series=(Series("GPU-hours", y),),
        y_label="GPU-hours",
        total="useful",
    )
    stalls = list_causes(found.all, WITHOUT_MATH)
    stalled = table(stalls, col("held, observed, not math"), *amounts, currency=found.currency, note=STALLS)
    tables = (steps, stalled)
    return Section("From paid to useful", charts=(chart,), tables=tables if stalls else tables[:1])


def list_causes(group: WaterfallGroup, of: str) -> list[tuple[Cell, ...]]:
    """The parts of one thing by cause, with GPU-hours, cost and share of what was paid; none where nobody says any cause."""
    parts = [part for part in group.causes if part.of == of and (part.gpu_hours or part.cost)]
    return [(CAUSE_TITLES[part.cause], part.gpu_hours, part.cost, part.share_of_paid) for part in parts]


def _list_groups(found: FleetWaterfall) -> Section:
    names = tuple(found.rows[0].by)
    more = len(found.rows) - MOST_ROWS

    def share(group: WaterfallGroup, hours: float) -> float | None:
        return hours / group.gpu_hours.paid if group.gpu_hours.paid else None

    groups = table(
        sorted(found.rows, key=lambda group: -group.gpu_hours.paid)[:MOST_ROWS],
        *cols(names, lambda group, name: group.by[name] or NOTHING),
        col("paid GPU-h", "gpu_hours.paid", "number"),
        *cols(
            {level: LEVEL_TITLES[level] for level in LEVELS[1:]},
            lambda group, level: share(group, group.gpu_hours.after(level)),
            "percent",
        ),
        col("unknown", lambda group: share(group, group.gpu_hours.unknown), "percent"),
        col("cost", lambda group: group.cost and group.cost.paid, "money"),
        col("useful cost", lambda group: group.cost and group.cost.useful, "money"),
        currency=found.currency,
        note="percent of what the group paid for" + (f"; and {more:,} more, --json lists them all" if more > 0 else ""),
    )
    return Section(f"By {', '.join(names)}", tables=(groups,))


def list_unknown(found: FleetWaterfall) -> tuple[str, ...]:
    """Sentences on what is not known: prices, FLOPs, and FLOPs that cannot be."""
    notes = []
    share = found.all.priced_share
    if found.all.cost is not None and share is not None and share < 1 - ROUNDING:
        notes.append(f"Costs are those of the {percent(share)} of GPU-hours whose price is known ({found.basis}).")
    if found.all.gpu_hours.uncounted:
        notes.append(
            "FLOPs are not known of jobs that report no tokens or whose network, sequence length and datatype no [[network]]"
            " of loadfactor.toml names, and of GPUs with an unknown holder."
        )
    if found.too_many_flops:
        jobs = ", ".join(found.too_many_flops)
        notes.append(
            f"More model FLOPs than activity, which cannot be: check network, sequence and datatype of {jobs}."
        )
    return tuple(notes)
