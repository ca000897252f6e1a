"""The page of `loadfactor waterfall`: where what was paid went, on the way to what was useful."""

from dataclasses import replace
from typing import Final

from loadfactor.books.waterfall import FleetWaterfall, WaterfallGroup
from loadfactor.interfaces.charts import Chart, Series
from loadfactor.interfaces.document import Assumption, Cell, Document, Section, Tile
from loadfactor.interfaces.formats import money, number, percent
from loadfactor.interfaces.requests import BooksRequest
from loadfactor.interfaces.tables import col, cols, table
from loadfactor.metrics.fullness import DROPS, LEVELS, STEPS, WITHOUT_MATH

TITLE: Final = "From paid to useful"
NOTHING: Final = "(none)"
MOST_ROWS: Final = 25
STALLS: Final = "parts of idle, underused and effective time above, by what jobs said they did instead of advancing"
ROUNDING: Final = 1e-9
"""A share of priced hours as near to 1 as this is 1."""
TITLES: Final = {step.name: step.title for step in (*STEPS, *DROPS)}
"""Titles of levels and of what goes between them."""
MEANINGS: Final = {step.title: step.meaning for step in (*STEPS, *DROPS)}
"""Their meanings, by title."""
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
    "generation": "generation (RLHF)",
    "start_up": "start-up",
}
"""Causes of `LossCause`, as people read them."""


def build_page(request: BooksRequest) -> Document:
    """The waterfall of the window."""
    books = request.books
    start, end = request.window(books)
    page = build_waterfall(books.waterfall(request.by, start, end, request.zone, request.basis, request.filters))
    with books.snapshot() as snapshot:
        return replace(page, notes=(*page.notes, *snapshot.list_remarks(start, end)))


def build_waterfall(found: FleetWaterfall) -> Document:
    """Every step in GPU-hours and money, and by group what is left at each level."""
    sections = [draw_steps(found)]
    if found.rows:
        sections.append(_list_groups(found))
    tiles = [
        Tile(step.title, f"{number(step.gpu_hours)} GPU-h", percent(step.share_of_paid))
        for step in found.all.steps
        if step.kind == "level" and step.gpu_hours is not None
    ]
    return Document(
        say_useful(found),
        tuple(sections),
        tiles=tiles if found.all.gpu_hours.paid else (),
        assumptions=(
            Assumption(
                "order", " → ".join(level.title for level in STEPS), "each step takes from what the one before left"
            ),
            Assumption("math", "model FLOPs ÷ dense peak of the job's datatype", "[[network]] in loadfactor.toml"),
            Assumption("FLOPs of unobserved time", "in proportion to held time", "they are held against no activity"),
        ),
        notes=list_unknown(found),
        data=found,
    )


def say_useful(found: FleetWaterfall) -> str:
    """How far down anybody knows what was paid for, in GPU-hours, then in money; the largest loss; what would tell more."""
    group = found.all
    hours, cost = group.gpu_hours, group.cost
    if not hours.paid:
        return "Nothing was paid for in that time."
    last = next(level for level in STEPS if level.name == group.known_to)
    left = hours.after(last.name)
    sentences = []
    if group.goes_on is None:
        sentence = f"Of {number(hours.paid)} paid GPU-hours {number(left)} were useful, {percent(left / hours.paid)}"
        if hours.unknown > 0:
            sentence += (
                f"; of {number(hours.unknown)} nobody knows, so it is {_say_range(left, hours.unknown, hours.paid)}"
            )
        sentences.append(f"{sentence}.")
    else:
        sentences.append(
            f"Of {number(hours.paid)} paid GPU-hours {number(left)} {last.were}, {percent(left / hours.paid)}."
        )
    if cost is not None and cost.paid:
        spent = cost.after(last.name)
        sentences.append(
            f"These cost {money(spent, found.currency)} of {money(cost.paid, found.currency)}, {percent(spent / cost.paid)}."
        )
    losses = [step for step in group.steps if step.kind == "loss"]
    largest = max(losses, key=lambda step: (step.cost or 0.0, step.gpu_hours or 0.0))
    if largest.gpu_hours:
        amount = f"{number(largest.gpu_hours)} GPU-hours"
        amount = amount if largest.cost is None else f"{money(largest.cost, found.currency)} for {amount}"
        sentences.append(f"The largest loss: {largest.title}, {amount}.")
    if group.goes_on is not None:
        sentences.append(f"Beyond {last.title} nobody knows: {group.goes_on}.")
    return " ".join(sentences)


def _say_range(known: float, unknown: float, paid: float) -> str:
    return f"between {percent(known / paid)} and {percent((known + unknown) / paid)}"


def draw_steps(found: FleetWaterfall) -> Section:
    """Every level that anybody knows, and what goes on the way to it; what took nothing is left out."""
    amounts = (
        col("GPU-hours", style="number"),
        col("of paid", style="percent"),
        col("cost", style="money"),
        col("of cost", style="percent"),
        col("meaning"),
    )
    group = found.all
    rows: list[tuple[Cell, ...]] = []
    for step in group.steps:
        parts = step.gpu_hours, step.share_of_paid, step.cost, step.share_of_cost, step.meaning
        if step.gpu_hours is None:
            continue
        if step.kind == "level":
            rows.append((f"= {step.title}", *parts))
        elif step.gpu_hours or step.cost:
            rows.append((f"  {'−' if step.kind == 'loss' else '?'} {step.title}", *parts))
            rows += [(f"      {title}", *cells) for title, *cells in list_causes(group, step.name)]
    note = "− a loss, ? unknown, = what is left; "
    note += (
        "losses, unknown and useful add up to paid"
        if group.goes_on is None
        else f"beyond {TITLES[group.known_to]} nobody knows"
    )
    steps = table(rows, col("step"), *amounts, currency=found.currency, note=note)
    stalls = list_causes(group, WITHOUT_MATH)
    stalled = table(stalls, col("held, observed, not math"), *amounts, currency=found.currency, note=STALLS)
    tables = (steps, stalled)
    return Section(TITLE, charts=_draw_falls(found), tables=tables if stalls else tables[:1])


def _draw_falls(found: FleetWaterfall) -> tuple[Chart, ...]:
    """The way down in money, where prices are known, and in GPU-hours, to the last level that anybody knows."""
    group = found.all
    kept = LEVELS[: LEVELS.index(group.known_to) + 1]
    drops = [drop for drop in DROPS if drop.to in kept]
    charts = []
    for of, unit in ((group.cost, found.currency), (group.gpu_hours, "GPU-hours")):
        if of is None or not of.paid:
            continue
        falls = [(drop.title, -getattr(of, drop.name)) for drop in drops if getattr(of, drop.name)]
        charts.append(
            Chart(
                title=f"{'Cost' if unit == found.currency else unit}, from paid to {TITLES[group.known_to]}",
                kind="waterfall",
                x=(TITLES["paid"], *(title for title, _ in falls)),
                series=(Series(unit, (of.paid, *(fall for _, fall in falls))),),
                y_label=unit,
                total=TITLES[group.known_to],
            )
        )
    return tuple(charts)


def list_causes(group: WaterfallGroup, of: str) -> list[tuple[Cell, ...]]:
    """The parts of one thing by cause, as rows of the steps; none where nobody says any cause."""
    paid = None if group.cost is None else group.cost.paid
    parts = [part for part in group.causes if part.of == of and (part.gpu_hours or part.cost)]
    return [
        (
            CAUSE_TITLES[part.cause],
            part.gpu_hours,
            part.share_of_paid,
            part.cost,
            part.cost / paid if part.cost is not None and paid else None,
            None,
        )
        for part in parts
    ]


def _list_groups(found: FleetWaterfall) -> Section:
    names = tuple(found.rows[0].by)
    more = len(found.rows) - MOST_ROWS

    def share(group: WaterfallGroup, hours: float) -> float | None:
        return hours / group.gpu_hours.paid if group.gpu_hours.paid else None

    def is_known(group: WaterfallGroup, level: str) -> bool:
        return LEVELS.index(level) <= LEVELS.index(group.known_to)

    groups = table(
        sorted(found.rows, key=lambda group: -group.gpu_hours.paid)[:MOST_ROWS],
        *cols(names, lambda group, name: group.by[name] or NOTHING),
        col("paid GPU-h", "gpu_hours.paid", "number"),
        *cols(
            {level.name: level.title for level in STEPS[1:]},
            lambda group, level: share(group, group.gpu_hours.after(level)) if is_known(group, level) else None,
            "percent",
        ),
        col("unknown", lambda group: share(group, group.gpu_hours.unknown), "percent"),
        col("cost", lambda group: group.cost and group.cost.paid, "money"),
        col(
            "useful cost",
            lambda group: group.cost.useful if group.cost is not None and is_known(group, "useful") else None,
            "money",
        ),
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
    if found.all.gpu_hours.uncounted and found.all.goes_on is None:
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
