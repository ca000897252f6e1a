"""The page of `plan serve`: the simulated day first, then what the equations say about layouts, demand and levers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from loadfactor.base.errors import InputError
from loadfactor.base.quantities import write_share
from loadfactor.base.units import BITS_PER_BYTE, H_PER_DAY, MS_PER_S, S_PER_HOUR
from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.engines import read_engine_constants
from loadfactor.catalog.models import read_network
from loadfactor.interfaces.charts import Chart, Mark, Reference, Series
from loadfactor.interfaces.document import Assumption, Cell, Document, Section
from loadfactor.interfaces.formats import counted, money, number, percent
from loadfactor.interfaces.functions import make_function
from loadfactor.interfaces.plans.inputs import (
    draw_load,
    find_load,
    find_measured_price,
    list_moved,
    state_load,
    state_price,
)
from loadfactor.interfaces.plans.marginal import count_node_gpus, draw_marginal
from loadfactor.interfaces.tables import FilledColumn, col, table
from loadfactor.planner.economics.measured_load import MeasuredLoad
from loadfactor.planner.hardware.marginal import Marginal
from loadfactor.planner.serving.calibration import ServingCalibration, split_measured
from loadfactor.planner.serving.demand import observe_demand
from loadfactor.planner.serving.fleet_run import duty_multiplier, exponential_peak_multiplier
from loadfactor.planner.serving.fleet_size import ServingInputs, calibrate_inputs
from loadfactor.planner.serving.levers import EFFICIENT, KAPPA_OF_27, MANY, OPEN_SHARE
from loadfactor.planner.serving.marginal_fleet import enlarge_fleet
from loadfactor.planner.serving.request import ServingRequest
from loadfactor.planner.serving.serving_plan import RequestTrace, ServingPlan, build_inputs, plan_fleet
from loadfactor.planner.serving.simulation.simulate import Arrivals

if TYPE_CHECKING:  # imported with a trace: most plans have none
    from loadfactor.sources.public_traces.request_traces import TraceReport

PER_MTOK = "per million tokens"
MOST_HOURS_DRAWN = 7 * H_PER_DAY
PEAK_QUANTILE = 0.95
BUSIER = 1.05  # of the average day: less is chance


@dataclass(frozen=True, kw_only=True)
class MeasuredServingPlan(ServingPlan):
    """A plan for the load in a store, and that load."""

    measured: MeasuredLoad


def build_document(request: ServingRequest, progress: Callable[[str], None] = lambda _: None) -> Document:
    """Plan the fleet and lay it out as a page. Raises InputError for a name nobody knows or a fleet that cannot be."""
    chip, network = accelerator(request.accelerator), read_network(request.model)
    load = find_load(request)
    price = find_measured_price(request.accelerator, request.price_per_gpu_hour, load)
    if load is not None:
        if request.trace is not None:
            raise InputError("give the demand once: --trace FILE or --store DIR")
        request = replace(
            request,
            users=max(1.0, load.requests_per_day / request.requests_per_user),
            input_tokens=load.input_tokens,
            output_tokens=load.output_tokens_each,
        )
    trace, assumed = _demand(request)
    files, layout = split_measured(request.measured)
    engine = read_engine_constants(chip, request.engine, request.release or "")
    inputs = build_inputs(request, network, chip, engine, price, trace)
    if files:
        from loadfactor.interfaces.plans.measured_replica import read_measured  # it fetches, as few plans do

        inputs = calibrate_inputs(inputs, read_measured(files, progress), layout)
    plan = plan_fleet(inputs, progress)
    if request.marginal:
        plan = replace(plan, marginal=_plan_more(request, inputs, plan, progress))
    users = DemandAxis() if request.trace else DemandAxis("users", request.requests_per_user)
    sections = draw_sections(plan, users, "The trace" if request.trace else "A Tuesday")
    if load is not None and plan.chosen.capacity is not None:
        lengths = inputs.demand.lengths
        tokens = lengths.prompt_mean + lengths.output_mean
        sections = (*sections, draw_load(load, plan.chosen.capacity.requests_per_gpu_s * tokens))
    of_load = () if load is None else (state_load(load),)
    return Document(
        headline=write_headline(plan),
        sections=sections,
        assumptions=(state_price("GPU-hour", price), *of_load, assumed, *_assumptions(plan)),
        notes=tuple(_write_notes(plan, inputs.demand.requests_per_day)),
        data=plan if load is None else MeasuredServingPlan(**vars(plan), measured=load),
        is_no=not plan.slo.kept,
    )


plan_serving = make_function(
    "plan_serving", ServingRequest, build_document, "The answer of `loadfactor plan serve` as a page."
)


def _plan_more(
    request: ServingRequest, inputs: ServingInputs, plan: ServingPlan, progress: Callable[[str], None]
) -> tuple[Marginal, ...]:
    if request.trace is not None:
        raise InputError("--marginal looks for the most users: leave --trace out, and give --users and the lengths")
    if not plan.slo.kept:
        raise InputError("--marginal needs a fleet that keeps the objective: leave --replicas out, or give more")
    progress("looking for the most users whom more GPUs carry")
    node_gpus = count_node_gpus(plan.accelerator)
    return enlarge_fleet(inputs, plan.chosen, plan.replicas, request.requests_per_user, node_gpus)


def _demand(request: ServingRequest) -> tuple[RequestTrace | None, Assumption]:
    """The requests of the trace, where there is one, and what is assumed about demand."""
    if request.trace is None:
        words = f"{request.shape} hours, {request.arrivals} arrivals"
        return None, Assumption("shape of demand", words, "assumed; --shape, --arrivals, --trace")
    from loadfactor.sources.public_traces.request_traces import TraceReport

    report = TraceReport()
    demand = observe_demand(_read_requests(request, report))
    stream = partial(_read_requests, request, None)
    return RequestTrace(demand, stream, report.block_tokens), Assumption(
        "requests", _describe_trace(report), str(request.trace)
    )


def _read_requests(request: ServingRequest, report: "TraceReport | None") -> Iterator[Arrivals]:
    from loadfactor.sources.public_traces.request_traces import read_requests

    assert request.trace is not None
    for chunk in read_requests(request.trace, report, request.trace_scale, request.seed):
        yield Arrivals(chunk.at_ns, chunk.prompt_tokens, chunk.output_tokens, chunk.offsets, chunk.hashes)


def _describe_trace(report: "TraceReport") -> str:
    text = f"{report.requests:,} in {report.span_s / S_PER_HOUR:.2f} h"
    text += f"; longest silence {report.longest_gap_s:.0f} s (counted as idle)"
    if report.unreadable:
        text += (
            f"; {report.unreadable} rows without a number left out, the first in line {report.first_unreadable_line}"
        )
    return text


def _assumptions(p: ServingPlan) -> Iterator[Assumption]:
    r = p.chosen.replica
    status = "estimate" if p.distance in ("other stack", "never seen") else "fitted"
    release = r.engine.release and f" {r.engine.release}"
    if r.engine.is_of_new_release:
        measured = " ".join(r.engine.releases) or "no release by name"
        release += f" (never measured here, {measured} was; ranges are the widest)"
    about = f"{r.engine.engine}{release}; {r.engine.fitted_on}"
    yield Assumption("engine", about, "catalog/engines/constants.toml", status)
    bits, tokens = BITS_PER_BYTE * r.precision.kv_bytes_per_value, p.fleet_run.fleet.batching.cache_tokens
    cache = f"{bits:.0f} bits a number, {tokens:,} tokens a replica"
    yield Assumption("cache", cache, "what weights and the engine leave of the memory")
    headroom = f"{percent(p.headroom_share)} of capacity in the equations"
    yield Assumption("headroom", headroom, "kept for unevenness; the simulation has the last word")
    if p.simulated_share < 1:
        simulated = f"{percent(p.simulated_share)} of the requests on {p.simulated_replicas} of {counted(p.replicas, 'replica')}"
        yield Assumption("simulated", simulated, "a small fleet is less even than a large one: on the safe side")


def write_headline(p: ServingPlan) -> str:
    t = p.total
    fleet = f"{counted(p.replicas, 'replica')} of {p.layout} ({p.gpus} × {p.accelerator})"
    met = f"{percent(t.slo_share)} of requests within {p.slo.ttft_s:g} s and {p.slo.tpot_s * MS_PER_S:g} ms a token"
    if not p.slo.kept:
        return f"No: {fleet} serving {p.model} in {p.precision} keep the objective for only {met}."
    most = "at most " if p.fleet_run.fleet.autoscale else ""
    cost = (
        f"{most}{money(p.cost_per_hour, p.currency)} an hour, {money(t.cost_per_mtok, p.currency)} per million tokens, "
    )
    if p.cost_per_hour is None:
        cost = "no price of a GPU-hour is known (--price-per-gpu-hour); tokens cost "
    return (
        f"Serve {p.model} in {p.precision} on {fleet}: {cost}"
        f"{number(p.multiplier.multiplier)} times what they cost on a replica that is always full; "
        f"{met}; busy {percent(t.duty_share)} of the time with a batch of {number(t.mean_batch)} ({p.distance})."
    )


def _write_notes(p: ServingPlan, requests_per_day: float) -> Iterator[str]:
    helpful = [(e.cost_factor, e) for e in p.levers if e.cost_factor is not None and e.cost_factor < 1]
    if helpful:
        factor, best = min(helpful, key=lambda pair: pair[0])
        saved = percent(1 - factor)
        yield f"{best.name.capitalize()} ({best.assumes}) would make tokens {saved} cheaper at scale, by equation."
    m = p.multiplier
    name, factor = max(
        ("hours without requests", m.duty_factor),
        ("replicas kept for peaks", m.peaks_factor),
        ("batches short of the benchmark", m.fill_factor),
        key=lambda cause: cause[1],
    )
    yield f"The largest cause of the cost is {name} (× {number(factor)})."
    if p.efficient_requests_per_day > requests_per_day:
        yield (
            f"Demand is below the {round_off(p.efficient_requests_per_day)} requests a day from which this is efficient: "
            "a smaller model, an API or sharing replicas may be cheaper."
        )
    yield from _write_ranges(p)
    if p.slo.tpot_s <= p.chosen.require_capacity().tpot_s * 1.02:
        yield "The time per token binds: allowing more of it would fill batches further (--tpot)."


def _write_ranges(p: ServingPlan) -> Iterator[str]:
    """How wrong the plan may be, and which of its decisions that leaves open."""
    times = (("time per token", p.tpot_range), ("time to the first token", p.ttft_range))
    ranges = " and ".join(f"the {name} is {number(low)} to {number(high)} times" for name, (low, high) in times)
    yield f"In four of five cases {ranges} what is said here ({p.distance})."
    if p.cost_per_mtok_range is not None:
        low_cost, high_cost = (money(c, p.currency) for c in p.cost_per_mtok_range)
        at = " at the prices listed" if p.price_range != (1.0, 1.0) else ""
        yield f"The cost per million tokens lies between {low_cost} and {high_cost} in four of five cases{at}."
    low, high = p.replicas_range
    if low != high:
        yield f"The number of replicas is open: {low:,} to {high:,} ({p.gpus_range[0]:,} to {p.gpus_range[1]:,} GPUs)."
    if p.open_layouts:
        ways = counted(len(p.open_layouts), "other layout")
        yield f"{ways} {'is' if len(p.open_layouts) == 1 else 'are'} too close to call: measure them."


def round_off(value: float) -> str:
    """An estimate to three significant digits.

    >>> round_off(341471.97), round_off(0.012345)
    ('341,000', '0.0123')
    """
    return number(float(f"{value:.3g}"))


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
    """Every section, the simulated day first. `day` says what was simulated. Headings say what follows from equations alone."""
    return (
        _draw_simulated(p, day),
        *((_draw_calibration(p.calibration),) if p.calibration else ()),
        *draw_marginal(p.marginal, p.currency, " a month"),
        _draw_hours(p),
        _draw_causes(p),
        _draw_layouts(p),
        _draw_cost_by_demand(p, axis),
        _draw_levers(p),
        _draw_batch_gains(p),
        _draw_traffic(p),
        _draw_load_test(p),
    )


def _numbers(*titles: str) -> list[FilledColumn]:
    """Columns of numbers, filled from the index they stand at."""
    return [col(title, style="number") for title in titles]


COST = col("cost / M tokens", "cost_per_mtok", "money")


def _draw_simulated(p: ServingPlan, day: str) -> Section:
    t = p.total

    def cost(value: float | None) -> str:
        return money(value, p.currency)

    rows = [
        ("cost an hour, every replica up", cost(p.cost_per_hour)),
        ("cost a day, as simulated", cost(None if t.cost is None else t.cost / p.simulated_share)),
        (f"cost {PER_MTOK}", cost(t.cost_per_mtok)),
        (f"cost {PER_MTOK}: prompt · output", f"{cost(t.cost_per_prompt_mtok)} · {cost(t.cost_per_output_mtok)}"),
        ("cost of a token, times that on a replica always full", number(p.multiplier.multiplier)),
        ("requests · rejected", f"{_of_fleet(p, t.requests):,} · {_of_fleet(p, t.rejected):,}"),
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
    part = f"{p.simulated_replicas} of {counted(p.replicas, 'replica')}, with their share of the demand; counts are the fleet's"
    lead = f"{day}, request by request{f' on {part}' if p.simulated_share < 1 else ''}."
    note = "Tokens of an average day pay for the fleet of every day." if t.busy_factor > BUSIER else ""
    return Section("The fleet, simulated", lead, tables=(table(rows, "what", "value", note=note),))


def _of_fleet(p: ServingPlan, simulated: float) -> int:
    """A count of the simulated part, of the whole fleet."""
    return round(simulated / p.simulated_share)


def _draw_calibration(of: ServingCalibration) -> Section:
    """The measured runs beside what was predicted of them before and after, and the constants that they moved."""
    runs = table(
        of.runs,
        col("concurrency", "concurrency", "number"),
        col("tokens in", "prompt_tokens", "number"),
        col("out", "output_tokens", "number"),
        col("ms a token, measured", lambda run: run.measured_tpot_s * MS_PER_S, "number"),
        col("before", lambda run: run.tpot_s_before * MS_PER_S, "number"),
        col("after", lambda run: run.tpot_s_after * MS_PER_S, "number"),
        col("s to the first, measured", "measured_ttft_s", "number"),
        col("before", "ttft_s_before", "number"),
        col("after", "ttft_s_after", "number"),
        title=f"The measured replica, as {of.layout}",
    )
    constants = list_moved(
        of.constants, f"Beside them every time of the engine is {number(of.stack_factor)} times as long."
    )
    (low, high), (before_low, before_high) = of.ranges_after["tpot"], of.ranges_before["tpot"]
    lead = (
        f"The time per token lies between {number(low)} and {number(high)} times what is said here in four of five cases; without "
        f"these runs ({of.distance_before}) it would between {number(before_low)} and {number(before_high)} times."
    )
    return Section("What measurements changed", lead, tables=(runs, *((constants,) if of.constants else ())))


def _draw_hours(p: ServingPlan) -> Section:
    hours = [(i, h) for i, h in enumerate(p.hours) if h.requests]
    charts = []
    if len(hours) >= 3:
        drawn = [h for _, h in hours[:MOST_HOURS_DRAWN]]
        series = (
            Series("duty", [h.duty_share for h in drawn]),
            Series("batch fill", [h.batch_fill_share for h in drawn]),
            Series("within objective", [h.slo_share for h in drawn], dashed=True),
        )
        x = [float(i) for i in range(len(drawn))]
        charts.append(Chart("How full the fleet is, hour by hour, simulated", "step", x, series, "hour", "share"))
    more = len(hours) > H_PER_DAY
    shown = table(
        [
            (
                *(float(i), _of_fleet(p, h.requests), h.replicas / p.simulated_share, h.duty_share, h.mean_batch),
                *(h.ttft_p90_s, _ms(h.tpot_p90_s), h.slo_share, h.cost_per_mtok),
            )
            for i, h in hours[:H_PER_DAY]
        ],
        *_numbers("hour", "requests", "replicas"),
        col("duty", style="percent"),
        *_numbers("batch", "TTFT (s)", "TPOT (ms)"),
        col("within SLO", style="percent"),
        col("cost / M tokens", style="money"),
        currency=p.currency,
        note=f"The first {H_PER_DAY} of {len(hours)} hours; --format json has all." if more else "",
    )
    lead = f"90th percentiles of the time to first token (TTFT) and per output token (TPOT); cost {PER_MTOK}."
    return Section("Hour by hour, simulated", lead, charts, (shown,))


def _draw_causes(p: ServingPlan) -> Section:
    m = p.multiplier
    rows = [
        ("hours without a request (duty)", m.duty_factor),
        ("replicas for peaks", m.peaks_factor),
        ("batch fill, objective, whole replicas", m.fill_factor),
        ("together: times a token on a replica always full", m.multiplier),
    ]
    return Section(
        "Why a token costs more than the benchmark says",
        "The simulated cost over that of a replica which is always as full as in a benchmark, by equation.",
        tables=(table(rows, "cause", *_numbers("times")),),
    )


def _draw_layouts(p: ServingPlan) -> Section:
    rows = []
    for o in p.layouts:
        c, mark = o.capacity, " ←" if o is p.chosen else ""
        figures = (
            (None,) * 5 if c is None else (c.requests_per_s, c.requests_per_gpu_s, c.batch, c.ttft_s, _ms(c.tpot_s))
        )
        rows.append((f"{o.layout}{mark}", *figures, o.benchmark.requests_per_gpu_s))
    titles = ("requests/s", "per GPU", "batch", "TTFT (s)", "TPOT (ms)", "benchmark per GPU")
    return Section(
        "Layouts at capacity, by equation",
        "Requests/s one replica takes in steady state within the objective, and in a benchmark; the simulated fleet runs below it.",
        tables=(table(rows, "layout", *_numbers(*titles), note="– keeps the objective at no batch."),),
    )


def _draw_cost_by_demand(p: ServingPlan, axis: DemandAxis) -> Section:
    today = next(c for c in p.crowd if c.demand_factor == 1)
    unlimited = p.cost_per_mtok_at_unlimited_demand
    priced = unlimited is not None
    title = f"Cost per token by {axis.name}, by equation"
    chart = Chart(
        title,
        "line",
        [axis.of(c.requests_per_day) for c in p.crowd],
        (Series("fleet for the peak", [c.cost_per_mtok if priced else c.gpu_hours_per_mtok for c in p.crowd]),),
        x_label=axis.name,
        y_label=f"{p.currency if priced else 'GPU-hours'} {PER_MTOK}",
        x_log=True,
        y_log=True,
        marks=(Mark(axis.of(today.requests_per_day), today.cost_per_mtok or today.gpu_hours_per_mtok, "today"),),
        references=(Reference(unlimited, f"at scale {money(unlimited, p.currency)}"),) if unlimited is not None else (),
    )
    costs = table(
        p.crowd[::4],
        col(axis.name, lambda c: axis.write(c.requests_per_day)),
        col("replicas", lambda c: float(c.replicas), "number"),
        col("load factor", "load_factor", "percent"),
        COST if priced else col("GPU-hours / M tokens", "gpu_hours_per_mtok", "number"),
        currency=p.currency,
        note=f"Efficient from {axis.write(p.efficient_requests_per_day)} {axis.name} on.",
    )
    lead = "Average days, a fleet of fixed size for the peak of each demand with headroom."
    return Section(title, lead, charts=(chart,), tables=(costs,))


def _draw_levers(p: ServingPlan) -> Section:
    rows: list[tuple[Cell, ...]] = [("today", p.cost_per_mtok_at_unlimited_demand, 1.0, 1.0, "")]
    rows += [(e.name, e.cost_per_mtok, e.cost_factor, e.demand_factor, e.assumes) for e in p.levers]
    known = [e for e in p.levers if e.cost_factor is not None]
    chart = Chart(
        "Levers, by equation: cost at scale, and the demand they need (today = 1)",
        "bar",
        [e.name for e in known],
        (Series("cost ×", [e.cost_factor for e in known]), Series("demand ×", [e.demand_factor for e in known])),
        x_label="times today",
    )
    levers = table(
        rows,
        "lever",
        col("cost / M tokens", style="money"),
        *_numbers("cost ×", "demand ×"),
        "assumes",
        currency=p.currency,
        note=f"Demand: that from which a token costs at most {EFFICIENT:g} × its cost at unlimited demand.",
    )
    return Section(
        "What each engineering lever does alone, by equation",
        "Cost at unlimited demand, and the demand it takes to be efficient, over today's.",
        charts=(chart,) if known else (),
        tables=(levers,),
    )


def _draw_traffic(p: ServingPlan) -> Section:
    traffic = table(
        p.traffic,
        col("traffic", "name"),
        col("replicas", lambda t: float(t.replicas), "number"),
        col("duty ×", "causes.duty_factor", "number"),
        col("peaks ×", "causes.peaks_factor", "number"),
        col("fill ×", "causes.fill_factor", "number"),
        col("cost ×", "multiplier", "number"),
        col("condition", "condition"),
    )
    return Section(
        "What traffic does to the cost of a token, simulated",
        "Other services than yours: each eight replicas' worth of load while open.",
        tables=(traffic,),
    )


def _draw_load_test(p: ServingPlan) -> Section:
    columns: Any = vars(p.load_test).values()
    rows = [
        (float(c), float(ttft), float(tpot) * MS_PER_S, float(rate))
        for c, ttft, tpot, rate in zip(*columns, strict=True)
    ]
    return Section(
        "One replica in a load test, by equation",
        "Always that many requests at once, the first of them all together.",
        tables=(table(rows, *_numbers("concurrency", "TTFT (s)", "TPOT (ms)", "output tokens/s")),),
    )


def _draw_batch_gains(p: ServingPlan) -> Section:
    """Well-known figures of batching for this model, context and accelerator."""
    g = p.claims
    kappa = (
        f"memory-bound: the cache of a sequence is {percent(g.kappa)} of the weights, so at most {number(g.speedup_limit)} ×; "
        f"27 × needs {percent(KAPPA_OF_27)}"
    )
    chip = f"{percent(g.compute_share_at_1)} → {percent(g.compute_share_at_64)}"
    half = f"batch {number(g.batch_for_half)}" if g.batch_for_half else "at no batch"
    needs = (
        f"needs the cache of a sequence under {percent(g.largest_kappa_for_half)} of the weights; {number(g.most_sequences)} fit; "
        f"at most {percent(min(g.compute_share_limit, 1.0))}"
    )
    both = "yes" if g.both_hold and g.kappa > KAPPA_OF_27 else "no"
    duty, peaks = duty_multiplier(OPEN_SHARE).multiplier, exponential_peak_multiplier(PEAK_QUANTILE)
    quantile = write_share(PEAK_QUANTILE)
    rows = [
        (f"batch 1 → {MANY}: throughput", f"{number(g.roofline_speedup_at_64)} ×", kappa),
        ("the same by the step equation", f"{number(g.predicted_speedup_at_64)} ×", "with kernels, links and launches"),
        (f"share of the chip at batch 1 → {MANY}", chip, "of peak FLOP/s, decoding alone"),
        ("half of the chip", half, needs),
        ("27 × and 1 → 50 % together", both, "27 × needs more cache beside the weights than half of the chip allows"),
        (f"{percent(OPEN_SHARE)} duty", f"{number(duty)} ×", "1 ÷ duty, when batches are full while it is open"),
        (
            f"capacity for the {quantile} of an exponential load",
            f"{number(peaks)} ×",
            "−ln(1 − 0.95), over the mean load",
        ),
    ]
    where = f"{p.model}, {p.precision}, {number(g.context)} tokens of context, {p.chosen.replica.layout} of {p.accelerator}."
    return Section("What a batch gains, by equation", where, tables=(table(rows, "figure", "here", "condition"),))


def _join(*values: float | None) -> str:
    return " · ".join(number(v) for v in values)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * MS_PER_S
