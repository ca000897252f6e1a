"""Sections of a serving plan. Headings say which numbers are simulated and which follow from equations."""

from dataclasses import dataclass
from typing import Any

from loadfactor.base.units import H_PER_DAY, MS_PER_S
from loadfactor.interfaces.charts import Chart, Mark, Reference, Series
from loadfactor.interfaces.document import Cell, DataTable, Section, Style, TableColumn
from loadfactor.interfaces.formats import money, number, percent
from loadfactor.interfaces.plans.serving_gains import draw_batch_gains
from loadfactor.interfaces.plans.serving_notes import round_off
from loadfactor.planner.serving.levers import EFFICIENT, CostPoint
from loadfactor.planner.serving.serving_plan import ServingPlan

PER_MTOK = "per million tokens"
MOST_HOURS_DRAWN = 7 * H_PER_DAY


@dataclass(frozen=True)
class DemandAxis:
    """How demand is counted on the page: in users where they were given, else in requests a day."""

    name: str = "requests a day"
    requests_per_day: float = 1.0  # of one of them

    def of(self, requests_per_day: float) -> float:
        """A demand on this axis."""
        return requests_per_day / self.requests_per_day

    def write(self, requests_per_day: float) -> str:
        """A demand on this axis in whole numbers, as exact as an estimate is."""
        return round_off(round(self.of(requests_per_day)))


def draw_sections(p: ServingPlan, axis: DemandAxis, day: str) -> tuple[Section, ...]:
    """Every section, the simulated day first. `day` says what was simulated."""
    return (
        _simulated(p, day),
        _hours(p),
        _causes(p),
        _layouts(p),
        _cost_by_demand(p, axis),
        _levers(p),
        draw_batch_gains(p),
        _traffic(p),
        _load_test(p),
    )


def _simulated(p: ServingPlan, day: str) -> Section:
    t = p.total

    def cost(value: float | None) -> str:
        return money(value, p.currency)

    rows: list[tuple[str, str]] = [
        ("cost an hour, every replica up", cost(p.cost_per_hour)),
        ("cost a day, as simulated", cost(t.cost / p.simulated_share)),
        (f"cost {PER_MTOK}", cost(t.cost_per_mtok)),
        (f"cost {PER_MTOK}: prompt · output", f"{cost(t.cost_per_prompt_mtok)} · {cost(t.cost_per_output_mtok)}"),
        ("cost of a token, times the benchmark price", number(p.multiplier.multiplier)),
        ("requests · rejected", f"{t.requests:,} · {t.rejected:,}"),
        ("requests within the objective", percent(t.slo_share)),
        ("time to first token p50 · p90 · p99 (s)", _join(t.ttft_p50_s, t.ttft_p90_s, t.ttft_p99_s)),
        ("time per token p50 · p90 · p99 (ms)", _join(*(_ms(x) for x in (t.tpot_p50_s, t.tpot_p90_s, t.tpot_p99_s)))),
        ("queue p90 · end to end p90 (s)", _join(t.queue_p90_s, t.end_to_end_p90_s)),
        ("duty: a step is running", percent(t.duty_share)),
        ("mean batch", number(t.mean_batch)),
        ("mean batch, of the most the benchmark takes", percent(t.batch_fill_share)),
        ("batch at the mean rate, by equation", number(p.mean_batch_by_equation)),
        ("cache blocks in use", percent(t.cache_fill_share)),
        ("compute, of peak FLOP/s while busy", percent(t.compute_share)),
        ("bandwidth, of peak bytes/s while busy", percent(t.bandwidth_share)),
    ]
    scaled = f", {percent(p.simulated_share)} of the demand on {p.simulated_replicas} replicas"
    lead = f"{day}, request by request{scaled if p.simulated_share < 1 else ''}."
    return Section("The fleet, simulated", lead, tables=(DataTable((TableColumn("what"), TableColumn("value")), rows),))


def _hours(p: ServingPlan) -> Section:
    columns = _columns(
        "hour", "requests", "replicas", ("duty", "percent"), "batch", "TTFT (s)", "TPOT (ms)", ("within SLO", "percent"),
        _cost_column(p),
    )  # fmt: skip
    hours = [(i, h) for i, h in enumerate(p.hours) if h.requests]
    rows = [
        (
            float(i), float(h.requests), h.replicas, h.duty_share, h.mean_batch, h.ttft_p90_s, _ms(h.tpot_p90_s),
            h.slo_share, h.cost_per_mtok,
        )
        for i, h in hours[:H_PER_DAY]
    ]  # fmt: skip
    more = len(hours) > H_PER_DAY
    note = f"The first {H_PER_DAY} of {len(hours)} hours; --format json has all." if more else ""
    lead = f"90th percentiles of the time to first token (TTFT) and per output token (TPOT); cost {PER_MTOK}."
    return Section(
        "Hour by hour, simulated", lead, charts=_hour_charts(p), tables=(DataTable(columns, rows, note=note),)
    )


def _hour_charts(p: ServingPlan) -> tuple[Chart, ...]:
    hours = [h for h in p.hours if h.requests][:MOST_HOURS_DRAWN]
    if len(hours) < 3:
        return ()
    x = tuple(float(i) for i in range(len(hours)))
    series = (
        Series("duty", tuple(h.duty_share for h in hours)),
        Series("batch fill", tuple(h.batch_fill_share for h in hours)),
        Series("within objective", tuple(h.slo_share for h in hours), dashed=True),
    )
    return (Chart("How full the fleet is, hour by hour, simulated", "step", x, series, "hour", "share"),)


def _causes(p: ServingPlan) -> Section:
    m = p.multiplier
    rows = [
        ("hours without a request (duty)", m.duty_factor),
        ("replicas for peaks", m.peaks_factor),
        ("batch fill, objective, whole replicas", m.fill_factor),
        ("together: times the benchmark price", m.multiplier),
    ]
    return Section(
        "Why a token costs more than the benchmark says",
        "The simulated cost over that of a replica which always runs as in a benchmark, by equation.",
        tables=(DataTable(_columns(("cause", "text"), "times"), rows),),
    )


def _layouts(p: ServingPlan) -> Section:
    columns = _columns(
        ("layout", "text"), "requests/s", "per GPU", "batch", "TTFT (s)", "TPOT (ms)", "benchmark per GPU",
    )  # fmt: skip
    rows = []
    for o in p.layouts:
        c = o.capacity
        numbers: tuple[float | None, ...] = (None, None, None)
        latencies: tuple[float | None, ...] = (None, None)
        if c is not None:
            numbers, latencies = (c.requests_per_s, c.requests_per_gpu_s, c.batch), (c.ttft_s, _ms(c.tpot_s))
        mark = " ←" if o is p.chosen else ""
        rows.append((f"{o.layout}{mark}", *numbers, *latencies, o.benchmark.requests_per_gpu_s))
    return Section(
        "Layouts at capacity, by equation",
        "Requests/s one replica takes in steady state within the objective, and in a benchmark; the simulated fleet runs below it.",
        tables=(DataTable(columns, rows, note="– keeps the objective at no batch."),),
    )


def _cost_by_demand(p: ServingPlan, axis: DemandAxis) -> Section:
    columns = _columns((axis.name, "text"), "replicas", ("load factor", "percent"), _cost_column(p))
    rows = [(axis.write(c.requests_per_day), float(c.replicas), c.load_factor, c.cost_per_mtok) for c in p.crowd[::4]]
    note = f"Efficient from {axis.write(p.efficient_requests_per_day)} {axis.name} on."
    return Section(
        f"Cost per token by {axis.name}, by equation",
        "Average days, a fleet of fixed size for the peak of each demand with headroom.",
        charts=(_cost_chart(p, axis),),
        tables=(DataTable(columns, rows, note=note),),
    )


def _cost_chart(p: ServingPlan, axis: DemandAxis) -> Chart:
    def x_of(c: CostPoint) -> float:
        return axis.of(c.requests_per_day)

    today = next(c for c in p.crowd if c.demand_factor == 1)
    unlimited = p.cost_per_mtok_at_unlimited_demand
    return Chart(
        f"Cost per token by {axis.name}, by equation",
        "line",
        tuple(map(x_of, p.crowd)),
        (Series("fleet for the peak", tuple(c.cost_per_mtok for c in p.crowd)),),
        x_label=axis.name,
        y_label=f"{p.currency} {PER_MTOK}",
        x_log=True,
        y_log=True,
        marks=(Mark(x_of(today), today.cost_per_mtok, "today"),),
        references=(Reference(unlimited, f"at scale {money(unlimited, p.currency)}"),),
    )


def _levers(p: ServingPlan) -> Section:
    columns = _columns(("lever", "text"), _cost_column(p), "cost ×", "demand ×", ("assumes", "text"))
    rows: list[tuple[Cell, ...]] = [("today", p.cost_per_mtok_at_unlimited_demand, 1.0, 1.0, "")]
    rows += [(e.name, e.cost_per_mtok, e.cost_factor, e.demand_factor, e.assumes) for e in p.levers]
    note = f"Demand: that from which a token costs at most {EFFICIENT:g} × its cost at unlimited demand."
    known = [e for e in p.levers if e.cost_factor is not None]
    charts = (
        Chart(
            "Levers, by equation: cost at scale, and the demand they need (today = 1)",
            "bar",
            tuple(e.name for e in known),
            (
                Series("cost ×", tuple(e.cost_factor for e in known)),
                Series("demand ×", tuple(e.demand_factor for e in known)),
            ),
            x_label="times today",
        ),
    )
    return Section(
        "What each engineering lever does alone, by equation",
        "Cost at unlimited demand, and the demand it takes to be efficient, over today's.",
        charts=charts if known else (),
        tables=(DataTable(columns, rows, note=note),),
    )


def _traffic(p: ServingPlan) -> Section:
    columns = _columns(("traffic", "text"), "replicas", "duty ×", "peaks ×", "fill ×", "cost ×", ("condition", "text"))
    rows = [
        (
            t.name, float(t.replicas), t.causes.duty_factor, t.causes.peaks_factor, t.causes.fill_factor, t.multiplier,
            t.condition,
        )
        for t in p.traffic
    ]  # fmt: skip
    return Section(
        "What traffic does to the benchmark price, simulated",
        "Other services than yours: each eight replicas' worth of load while open.",
        tables=(DataTable(columns, rows),),
    )


def _load_test(p: ServingPlan) -> Section:
    columns = _columns("concurrency", "TTFT (s)", "TPOT (ms)", "output tokens/s")
    test: Any = p.load_test
    rows = [
        (float(c), float(ttft), float(tpot) * MS_PER_S, float(rate))
        for c, ttft, tpot, rate in zip(*(getattr(test, name) for name in vars(test)), strict=True)
    ]
    return Section(
        "One replica in a load test, by equation",
        "Always that many requests at once, the first of them all together.",
        tables=(DataTable(columns, rows),),
    )


def _cost_column(p: ServingPlan) -> TableColumn:
    return TableColumn("cost / M tokens", "money", p.currency)


def _columns(*named: str | tuple[str, Style] | TableColumn) -> tuple[TableColumn, ...]:
    """Columns by title; of numbers unless a style stands beside it."""
    return tuple(
        name if isinstance(name, TableColumn) else TableColumn(*((name, "number") if isinstance(name, str) else name))
        for name in named
    )


def _join(*values: float | None) -> str:
    return " · ".join(number(v) for v in values)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * MS_PER_S
