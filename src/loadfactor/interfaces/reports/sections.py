"""Sections of the report: from paid to useful, over time, by group, who paid, waits, unit costs, data quality, what to try next."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from shlex import quote

from loadfactor.base.errors import InputError
from loadfactor.base.units import ONES_PER_MILLION, S_PER_HOUR
from loadfactor.books.charging.fleet_chargeback import OWNERS
from loadfactor.interfaces.charts import Chart, Series
from loadfactor.interfaces.document import Cell, Section, Suggestion
from loadfactor.interfaces.formats import duration, instant, money, number, percent
from loadfactor.interfaces.pages.books import say_finding
from loadfactor.interfaces.pages.bridge import link_bridge, list_chain, say_window
from loadfactor.interfaces.pages.budgets import describe_source, list_budgets, write_headline
from loadfactor.interfaces.pages.chargeback import build_chargeback as build_statements
from loadfactor.interfaces.pages.energy import ENERGY, say_energy, say_terms
from loadfactor.interfaces.pages.readings import is_per_million
from loadfactor.interfaces.pages.targets import list_targets
from loadfactor.interfaces.pages.waterfall import draw_steps, list_unknown, say_useful
from loadfactor.interfaces.reports.facts import (
    BridgeFacts,
    BudgetFacts,
    ChargebackFacts,
    DataQualityFacts,
    NextStepsFacts,
    SectionFacts,
    TargetFacts,
    UsefulFacts,
)
from loadfactor.interfaces.reports.inquiry import NOBODY, Group, Inquiry, Key, group_name
from loadfactor.interfaces.tables import col, table
from loadfactor.metrics import metric
from loadfactor.metrics.money import UNITS
from loadfactor.metrics.query.question import OF_A_WAIT
from loadfactor.metrics.query.reading import rank
from loadfactor.money.amounts import COST
from loadfactor.settings.config import settings

WAY = ("paid", "unallocated", "down", "unobserved", "idle", "underused", "effective")
"""Metrics of the way, in JSON beside the steps: `<name>_gpu_hours`, and their costs."""


def build_waterfall(inquiry: Inquiry) -> SectionFacts:
    """The way from paid to useful, and the readings of its metrics."""
    names = [f"{name}_gpu_hours" for name in WAY]
    names += ["cost", *(f"{name}_cost" for name in WAY[1:])]
    totals = inquiry.totals
    readings = totals.some(*names, "unattributed_gpu_hours", "unattributed_cost", "load_factor")
    return SectionFacts("waterfall", _draw_way(inquiry), readings)


def build_useful(inquiry: Inquiry) -> UsefulFacts | None:
    """The same section for programs, with every step; None where nothing was paid for."""
    found = inquiry.waterfall
    return UsefulFacts("useful", _draw_way(inquiry), (), waterfall=found) if found.all.gpu_hours.paid else None


def _draw_way(inquiry: Inquiry) -> Section:
    found, totals = inquiry.waterfall, inquiry.totals
    section = draw_steps(found)
    lead = [say_useful(found), *list_unknown(found)]
    unattributed = totals.value("unattributed_gpu_hours")
    if unattributed:
        lead.append(
            f"{number(unattributed)} GPU-hours of what was held have no known holder; they are part of the steps after held."
        )
    return replace(section, lead=" ".join(lead))


BY_THE_HOUR = timedelta(days=21)
"""Longer windows are drawn by the day."""
MOST_DAYS = 35
PARTS = ("effective", "underused", "idle", "unobserved", "unallocated", "down")
LINES = ("allocation", "utilization", "load_factor")


def build_over_time(inquiry: Inquiry) -> SectionFacts | None:
    """Allocation, utilization and load factor over time; None where fewer than two moments are known."""
    start, end = inquiry.window
    by = "hour" if end - start <= BY_THE_HOUR else "day"
    moments = inquiry.groups(*LINES, by=(by,))
    at = [inquiry.local(group.all[0].start) for _, group in moments]
    lines = {name: [group.value(name) for _, group in moments] for name in LINES}
    series = [
        Series(metric(name).title, values) for name, values in lines.items() if any(v is not None for v in values)
    ]
    if len(moments) < 2 or not series:
        return None
    chart = Chart("Allocation, utilization and load factor", "line", at, series, str(inquiry.timezone), "share")
    full = [(share, moment) for share, moment in zip(lines["load_factor"], at, strict=True) if share is not None]
    lead = ""
    if full:
        (high, when), (low, then) = max(full, key=_by_share), min(full, key=_by_share)
        lead = (
            f"Highest load factor of {'an' if by == 'hour' else 'a'} {by}: {percent(high)} at {instant(when)}. "
            f"Lowest: {percent(low)} at {instant(then)}."
        )
    days = inquiry.groups(*(f"{name}_{unit}" for unit in ("cost", "gpu_hours") for name in PARTS), by=("day",))
    charts = (chart, _days_chart(days)) if 2 <= len(days) <= MOST_DAYS else (chart,)
    readings = [r for _, group in (*moments, *days) for r in group.all]
    return SectionFacts("over_time", Section("Over time", lead, charts), readings)


def _by_share(moment: tuple[float, datetime]) -> tuple[float, datetime]:
    return rank(moment[0]), moment[1]


def _days_chart(days: list[tuple[Key, Group]]) -> Chart:
    """Parts of each day: its cost where there are prices, GPU-hours where not."""
    priced = any(group.value(f"{name}_cost") for _, group in days for name in PARTS)
    kind, unit = ("cost", days[0][1].currency) if priced else ("gpu_hours", "GPU-hours")
    names = [date.fromisoformat(key[0] or "").strftime("%a %d %b") for key, _ in days]
    series = [Series(name.capitalize(), [group.value(f"{name}_{kind}") for _, group in days]) for name in PARTS]
    title = "What the cost of each day consists of" if priced else "What the GPU-hours of each day consist of"
    return Chart(title, "stacked bar", names, series, y_label=unit)


BARS = ("effective_cost", "underused_cost", "idle_cost", "unobserved_cost", "unallocated_cost", "down_cost")
CELLS = ("cost", "paid_gpu_hours", "utilization", "idle_cost", "underused_cost", "cost_per_effective_gpu_hour")
MOST_BARS, MOST_ROWS = 12, 25
Groups = Sequence[tuple[Key, Group]]


def build_groups(inquiry: Inquiry) -> SectionFacts | None:
    """Parts of the cost of each group, and the table behind it, the highest cost first."""
    by = tuple(inquiry.dimensions)
    groups = inquiry.groups(*CELLS, *BARS, "allocated_gpu_hours", "unallocated_gpu_hours", by=by)
    if not groups:
        return None
    groups.sort(key=lambda g: (-rank(g[1].value("cost")), -rank(g[1].value("paid_gpu_hours")), str(g[0])))
    name = " and ".join(by)
    rest = len(groups) - MOST_ROWS
    note = f"and {rest} more; see `loadfactor show cost --by {','.join(by)} {inquiry.options}`" if rest > 0 else ""
    currency = inquiry.totals.currency
    costs = table(
        [_cells(key, group) for key, group in groups[:MOST_ROWS]],
        col(name),
        col("cost", style="money"),
        col("paid GPU-hours", style="number"),
        col("utilization", style="percent"),
        col("idle cost", style="money"),
        col("underused cost", style="money"),
        col("cost per effective GPU-hour", style="money"),
        currency=currency,
        note=note,
    )
    chart = _chart_groups(groups[:MOST_BARS], name, currency)
    named = f"Cost is the {COST.name}, {COST.formula}." if inquiry.books.has_bill else ""
    links = (link_bridge(f" --store {quote(inquiry.store)}"),) if named and not inquiry.where else ()
    lead = f"{_say_groups(groups)} {named}".strip()
    section = Section(f"Cost by {name}", lead, (chart,), (costs,), suggestions=links)
    return SectionFacts("groups", section, [reading for _, group in groups for reading in group.all])


def _cells(key: Key, group: Group) -> Sequence[Cell]:
    name = group_name(key, group)
    if name == NOBODY:  # holds nothing, so it has no utilization and leaves nothing idle
        return (name, *(group.value(m) for m in CELLS[:2]), *("",) * (len(CELLS) - 2))
    return (name, *(group.value(m) for m in CELLS))


def _chart_groups(groups: Groups, name: str, currency: str) -> Chart:
    """Parts of the cost of each group; GPU-hours where there are no prices."""
    names = [group_name(key, group) for key, group in groups]
    if any(group.value("cost") for _, group in groups):
        series = [Series(metric(m).title, [group.value(m) for _, group in groups]) for m in BARS]
        return Chart(f"What the cost of each {name} consists of", "stacked bar", names, series, y_label=currency)
    paid = Series("paid", [group.value("paid_gpu_hours") for _, group in groups])
    return Chart(f"Paid GPU-hours by {name}", "bar", names, (paid,), y_label="GPU-hours")


def _say_groups(groups: Groups) -> str:
    holders = [(key, group) for key, group in groups if group.value("allocated_gpu_hours")]
    sentences = []
    if len(holders) > 1 and holders[0][1].value("cost"):
        key, top = holders[0]
        sentences.append(f"{group_name(key, top)} has the highest cost, {top.money('cost')}.")
    measured = [(key, group) for key, group in holders if group.value("utilization") is not None]
    if len(measured) > 1:
        key, low = min(measured, key=lambda g: (rank(g[1].value("utilization")), str(g[0])))
        sentences.append(f"{group_name(key, low)} has the lowest utilization, {percent(low.value('utilization'))}.")
    return " ".join(sentences)


def build_budget(inquiry: Inquiry) -> BudgetFacts | None:
    """All budgets; None where there are none, and where the report is of a part of the fleet."""
    if not settings().budget or inquiry.where:
        return None
    month = None if inquiry.end is None else inquiry.last_month
    review = inquiry.books.budgets(month, inquiry.basis, timezone=inquiry.timezone)
    lead = f"{write_headline(review)} {describe_source(review)}"
    return BudgetFacts("budget", Section("Budgets", lead, tables=(list_budgets(review),)), (), review)


def build_targets(inquiry: Inquiry) -> TargetFacts | None:
    """Targets of the part of the fleet that it is about, of everybody's in the fleet's; None where there are none."""
    if not settings().target or inquiry.books.has_only_bills:
        return None
    found = [
        of
        for of in inquiry.books.targets(inquiry.timezone)
        if not inquiry.where or dict(of.where) == dict(inquiry.where)
    ]
    return TargetFacts("targets", list_targets(found), (), found) if found else None


def build_energy(inquiry: Inquiry) -> SectionFacts | None:
    """Energy and carbon by group, measured or estimated; None where settings do not say what it is worked out of."""
    if not settings().energy.is_given or inquiry.books.has_only_bills:
        return None
    by = tuple(inquiry.dimensions)
    groups = inquiry.groups(*ENERGY, by=by)
    groups.sort(key=lambda g: (-rank(g[1].value(ENERGY[2])), str(g[0])))
    shown = table(
        [
            (group_name(key, group), *(group.value(name) for name in ENERGY), group.readings[ENERGY[-1]].coverage)
            for key, group in groups[:MOST_ROWS]
        ],
        col(" and ".join(by)),
        *(col(f"{metric(name).title}, {metric(name).unit}", style="number") for name in ENERGY),
        col("coverage", style="percent"),
    )
    totals = inquiry.read_whole(*ENERGY)
    known = totals.readings[ENERGY[1]].coverage
    lead = f"{say_energy(totals.value(ENERGY[0]), totals.value(ENERGY[1]), known)} {say_terms(settings().energy)}"
    readings = [reading for _, group in groups for reading in group.all]
    return SectionFacts("energy", Section("Energy and carbon", lead, tables=(shown,)), readings)


WHO_PAID = "Who paid"


def build_chargeback(inquiry: Inquiry) -> ChargebackFacts | None:
    """Statements of the whole bill, or where the report is of a window, of the month that it ends in.

    None where there is no bill, and where the report is of a part of the fleet; then it says what is missing for statements.
    """
    if inquiry.where or not inquiry.books.has_bill:
        return None
    by = tuple(name for name in inquiry.dimensions if name in OWNERS) or ("team",)
    month = None if inquiry.start is None and inquiry.end is None else inquiry.last_month
    try:
        found = inquiry.books.chargeback(month, by, timezone=inquiry.timezone)
    except InputError as error:
        return ChargebackFacts("chargeback", Section(WHO_PAID, f"No statements: {error}."), (), None)
    page = build_statements(found, f" --store {quote(inquiry.store)}")
    closed = f" {found.remarks[-1]}." if found.remarks and " was closed on " in found.remarks[-1] else ""
    section = Section(WHO_PAID, f"{page.headline} {page.subtitle}{closed}", tables=page.sections[0].tables)
    return ChargebackFacts("chargeback", section, (), found)


def build_bridge(inquiry: Inquiry) -> BridgeFacts | None:
    """The amounts from bill to statement of every team, which differ, and why; None where there is no bill."""
    if inquiry.where or not inquiry.books.has_bill:
        return None
    months = () if inquiry.start is None and inquiry.end is None else (inquiry.last_month,)
    try:
        chain = inquiry.books.read_chain(months, inquiry.timezone)
    except InputError:
        return None  # the statements above say what is missing
    lead = f"{say_window(chain)}. Each amount follows from the one before it; the bridge says how, and what each is."
    month = f" --month {months[0]}" if months else ""
    zone = "" if str(inquiry.timezone) == "UTC" else f" --timezone {quote(str(inquiry.timezone))}"
    link = link_bridge(f"{month} --store {quote(inquiry.store)}{zone}")
    section = Section("From the bill to statements", lead, tables=(list_chain(chain),), suggestions=(link,))
    return BridgeFacts("bridge", section, (), chain)


WAITS = ("queue_wait_s_p50", "queue_wait_s_p90", "queue_wait_s_p99", "queue_waiting")
MOST_WAITS = 20
ALL = "all"


def build_waits(inquiry: Inquiry) -> SectionFacts | None:
    """Quantiles of the waits that ended in a start, the others counted; None where nobody is known to have waited."""
    totals = inquiry.read_whole(*WAITS)
    if totals.value("queue_wait_s_p50") is None:
        return None
    split = [d for d in inquiry.dimensions if d in OF_A_WAIT] or ["team"]
    groups = inquiry.groups(*WAITS, "allocated_gpu_hours", by=split)
    groups = [(key, group) for key, group in groups if group.value("queue_wait_s_p50") is not None]
    groups.sort(key=lambda g: (-rank(g[1].value("queue_wait_s_p90")), str(g[0])))
    days = inquiry.groups(*WAITS, by=("day",))
    named = [(ALL, totals), *((group_name(key, group), group) for key, group in groups[:MOST_WAITS])]
    waits = table(
        [(name, *(group.value(m) for m in WAITS)) for name, group in named],
        col(" and ".join(split)),
        col("median", style="duration"),
        col("90 % within", style="duration"),
        col("99 % within", style="duration"),
        col("cancelled or pending", style="number"),
    )
    p50, p90 = (duration(totals.value(m)) for m in WAITS[:2])
    lead = f"Half of the jobs that started waited at most {p50}, one in ten longer than {p90}."
    if totals.value("queue_waiting"):
        lead += f" {number(totals.value('queue_waiting'))} were cancelled or are pending: their waits are not counted."
    section = Section("Queue waits", lead, (_chart_waits(inquiry, days),) if len(days) > 2 else (), (waits,))
    readings = [*totals.some(*WAITS), *(r for _, group in (*groups, *days) for r in group.all)]
    return SectionFacts("waits", section, readings)


def _chart_waits(inquiry: Inquiry, days: list[tuple[Key, Group]]) -> Chart:
    starts = [inquiry.local(group.all[0].start) for _, group in days]
    series = [
        Series(name, [_hours(group.value(metric)) for _, group in days])
        for metric, name in (("queue_wait_s_p50", "median"), ("queue_wait_s_p90", "90 %"))
    ]
    return Chart("Queue wait of the jobs that started that day", "line", starts, series, "day", "hours")


def _hours(seconds: float | None) -> float | None:
    return None if seconds is None else seconds / S_PER_HOUR


def build_unit_costs(inquiry: Inquiry) -> SectionFacts | None:
    """A table of unit costs; None where the books have no progress or no prices."""
    totals = inquiry.totals
    metrics = [f"cost_per_{name}" for name, _ in UNITS]
    rows = []
    for name, (_, unit) in zip(metrics, UNITS, strict=True):
        value = totals.value(name)
        if value is not None:
            spelled = unit.replace("_", " ")
            if is_per_million(unit, [value]):
                rows.append((f"1 million {spelled}s", value * ONES_PER_MILLION))
            else:
                rows.append((f"1 {spelled}", value))
    if not rows:
        return None
    lead = (
        "Cost of the jobs that worked on it, idle and unobserved time included, ÷ what they made and kept. "
        "A job that makes several units has its whole cost in each."
    )
    costs = table(rows, col("unit"), col("cost", style="money"), currency=totals.currency)
    section = Section("Cost per unit of work", lead, tables=(costs,))
    return SectionFacts("unit_costs", section, totals.some(*metrics))


def build_data_quality(inquiry: Inquiry) -> DataQualityFacts:
    """Coverage of the window, the balance of the whole books with its residual, and what `doctor` finds."""
    checked = inquiry.books.check()
    totals, sides, found = inquiry.totals, checked.balance, list(checked.findings)
    observed, priced = (totals.readings[name].coverage for name in ("observed_gpu_hours", "cost"))
    unobserved = number(totals.value("unobserved_gpu_hours"))
    lead = (
        f"The books {'balance' if sides.holds else 'DO NOT BALANCE'}. The {unobserved} unobserved GPU-hours are unknown: "
        "they count neither as idle nor as busy."
    )
    residual = "none"
    if not sides.holds:
        residual = f"{sides.residual_gpu_hours:+.3g} GPU-hours"
        residual += "" if sides.residual_cost is None else f", {sides.residual_cost:+.3g} {totals.currency}"
    rows: list[tuple[Cell, ...]] = [
        ("held time that was observed (coverage)", percent(observed)),
        ("paid time that has a price", percent(priced)),
        ("unobserved GPU-hours", unobserved),
        ("cost of unobserved GPU-hours", totals.money("unobserved_cost")),
        ("GPU-hours installed", number(sides.installed_gpu_hours)),
        ("GPU-hours in the ledger", number(sides.booked_gpu_hours)),
        ("cost of what was installed", money(sides.installed_cost, totals.currency)),
        ("cost in the ledger", money(sides.booked_cost, totals.currency)),
        ("residual (ledger less installed)", residual),
    ]
    tables = [table(rows, col("check"), col("value", style="number"))]
    if found:
        say = col("found", lambda finding: say_finding(finding, totals.currency))
        tables.append(table(found, say, col("what to do", "do")))
    return DataQualityFacts(
        "trust",  # the name that programs know this section by
        Section("Data quality", lead, tables=tables),
        totals.some("observed_gpu_hours", "unobserved_gpu_hours", "unobserved_cost", "cost"),
        sides.holds,
        sides.residual_gpu_hours,
        sides.residual_cost,
        found,
    )


COMMANDS = (
    ("unattributed", "show unattributed_gpu_hours --by node,day", "which GPUs have no known holder"),
    ("unallocated", "show unallocated_gpu_hours --by pool,hour", "when and where GPUs were unallocated"),
    ("down", "show down_gpu_hours --by node", "which nodes fail or are drained most"),
    ("unobserved", "show unobserved_gpu_hours --by node,day", "which exporters fell silent"),
    ("idle", "show idle_cost idle_gpu_hours --by user,purpose", "who holds GPUs and leaves them idle"),
    (
        "underused",
        "show underused_cost sm_activity tensor_activity --by purpose,accelerator",
        "which work leaves GPUs underused",
    ),
)
MOST = 3


def build_next_steps(inquiry: Inquiry) -> NextStepsFacts:
    """The largest losses as commands; by cost where there are prices, else by GPU-hours."""
    totals = inquiry.totals
    hours, costs = [f"{name}_gpu_hours" for name, _, _ in COMMANDS], [f"{name}_cost" for name, _, _ in COMMANDS]
    unit = "cost" if any(totals.value(metric) for metric in costs) else "gpu_hours"
    ranked = sorted(COMMANDS, key=lambda c: (-rank(totals.value(f"{c[0]}_{unit}")), c[0]))
    suggestions = []
    for name, command, why in ranked[:MOST]:
        size = totals.value(f"{name}_{unit}")
        if size:
            amount = totals.money(f"{name}_cost") if unit == "cost" else f"{number(size)} GPU-hours"
            suggestions.append(Suggestion(f"loadfactor {command} {inquiry.options}", f"{why} ({name}: {amount})"))
    there = quote(inquiry.store)
    if inquiry.why is None and list(inquiry.where) in ([], ["team"]):
        whose = f"--team {quote(inquiry.where['team'])} " if inquiry.where else ""
        split = "--by team " if inquiry.where else ""
        suggestions += (
            Suggestion(
                f"loadfactor diagnose {whose}{inquiry.span_options}", "why GPUs were not fuller: causes, how sure"
            ),
            Suggestion(
                f"loadfactor savings {split}{inquiry.span_options}", "what to change, and what that would have saved"
            ),
        )
    suggestions += (
        Suggestion(
            f"loadfactor report --job JOB {inquiry.options}", "what one job cost and made, and where its money leaked"
        ),
        Suggestion(f"loadfactor doctor --store {there}", "what is missing in these books, and what to do about it"),
    )
    section = Section("What to try next", "The largest losses first.", suggestions=suggestions)
    return NextStepsFacts("next", section, totals.some(*hours, *costs))
