"""How does a serving plan read? One sentence, three pictures, tables of hours, layouts, levers and claims."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from loadfactor.faces.answer import Answer, Assumption, Column, Table
from loadfactor.faces.charts import Chart, Mark, Reference, Series
from loadfactor.faces.formats import money, number, percent
from loadfactor.planner.serving.cost_by_demand import EFFICIENT
from loadfactor.planner.serving.cost_multiplier import duty_multiplier
from loadfactor.planner.serving.serving_plan import CONCURRENCIES, ServingInputs, ServingPlan
from loadfactor.units import BITS_PER_BYTE, MS_PER_S


def answer(
    q: ServingInputs, p: ServingPlan, assumptions: Sequence[Assumption], users: float | None, requests_per_user: float
) -> Answer:
    """The whole answer of `loadfactor plan serve`."""
    r = p.chosen.replica
    cache_tokens = p.fleet_run.fleet.batching.cache_tokens
    return Answer(
        sentence=_sentence(q, p),
        tables=(
            _total(p),
            _hours(p),
            _causes(p),
            _layouts(p),
            _levers(p),
            _crowd(p, users, requests_per_user),
            _claims(p),
            _traffic(p),
            _sweep(p),
        ),
        charts=tuple(c for c in (_crowd_chart(p, users, requests_per_user), _day_chart(p), _lever_chart(p)) if c),
        assumptions=(
            *assumptions,
            Assumption(
                "engine",
                f"{r.engine.engine}; {r.engine.fitted_on}",
                "catalog/engines/constants.toml",
                "estimate" if r.engine.is_estimate else "fitted",
            ),
            Assumption(
                "cache",
                f"{BITS_PER_BYTE * r.precision.kv_bytes_per_value:.0f} bits a number, {cache_tokens:,} tokens a replica",
                "weights and 10 % kept off the memory",
            ),
            Assumption(
                "headroom",
                f"{percent(q.headroom_share)} of capacity in the equations",
                "kept for unevenness; the simulation has the last word",
            ),
            *_scaled(p),
        ),
        would_change=_would_change(q, p),
        data=_data(q, p),
        is_no=not p.keeps_slo,
    )


def _sentence(q: ServingInputs, p: ServingPlan) -> str:
    r, t = p.chosen.replica, p.total
    fleet = f"{p.replicas} replica{'s' if p.replicas > 1 else ''} of {r.layout} ({p.gpus} × {r.accelerator.id})"
    met = f"{percent(t.slo_share)} of requests within {q.slo.ttft_s:g} s and {q.slo.tpot_s * MS_PER_S:g} ms a token"
    cost = f"{money(p.cost_per_hour)} an hour, {money(t.cost_per_mtok)} per million tokens"
    multiple = number(p.fleet_run.multiplier.multiplier, 2)
    if not p.keeps_slo:
        return f"No: {fleet} serving {r.network.name} in {r.precision.name} keep the objective for only {met}."
    return (
        f"Serve {r.network.name} in {r.precision.name} on {fleet}: {cost}, {multiple} × the benchmark price; {met}; "
        f"busy {percent(t.duty_share)} of the time with a batch of {number(t.mean_batch, 2)}."
    )


def _total(p: ServingPlan) -> Table:
    t = p.total
    rows: list[tuple[str, str]] = [
        ("requests · rejected", f"{t.requests:,} · {t.rejected:,}"),
        ("time to first token p50 · p90 · p99 (s)", _three(t.ttft_p50_s, t.ttft_p90_s, t.ttft_p99_s)),
        ("time per token p50 · p90 · p99 (ms)", _three(*(_ms(x) for x in (t.tpot_p50_s, t.tpot_p90_s, t.tpot_p99_s)))),
        ("queue p90 · end to end p90 (s)", f"{number(t.queue_p90_s)} · {number(t.end_to_end_p90_s)}"),
        ("duty: a step is running", percent(t.duty_share)),
        ("batch, of the most the benchmark takes", f"{number(t.mean_batch)} ({percent(t.batch_fill_share)})"),
        ("cache blocks in use", percent(t.cache_fill_share)),
        ("compute, of peak FLOP/s while busy", percent(t.compute_share)),
        ("bandwidth, of peak bytes/s while busy", percent(t.bandwidth_share)),
        ("$ per million prompt · output tokens", f"{money(t.cost_per_prompt_mtok)} · {money(t.cost_per_output_mtok)}"),
        ("$ a day, fully loaded", money(t.cost / p.simulated_share)),
    ]
    return Table("How the fleet flies", (Column("what"), Column("value")), rows)


def _hours(p: ServingPlan) -> Table:
    columns = (
        Column("hour", "number"),
        Column("requests", "number"),
        Column("replicas", "number"),
        Column("duty", "percent"),
        Column("batch", "number"),
        Column("TTFT s", "number"),
        Column("TPOT ms", "number"),
        Column("SLO", "percent"),
        Column("$/M tok", "money"),
    )
    hours = [(i, h) for i, h in enumerate(p.hours) if h.requests]
    shown = hours[:24]
    rows = [
        (
            float(i),
            float(h.requests),
            h.replicas,
            h.duty_share,
            h.mean_batch,
            h.ttft_p90_s,
            _ms(h.tpot_p90_s),
            h.slo_share,
            h.cost_per_mtok,
        )
        for i, h in shown
    ]
    note = (
        f"Requests of {percent(p.simulated_share)} of the demand on {p.simulated_replicas} replicas."
        if p.simulated_share < 1
        else ""
    )
    if len(hours) > 24:
        note += f" The first 24 of {len(hours)} hours; --format json has all."
    return Table("Hour by hour, latencies at p90", columns, rows, note.strip())


def _causes(p: ServingPlan) -> Table:
    c = p.fleet_run.multiplier
    rows = [
        ("hours without a request (duty)", c.duty_factor),
        ("replicas for peaks", c.peaks_factor),
        ("batch fill, objective, whole replicas", c.fill_factor),
        ("together: times the benchmark price", c.multiplier),
    ]
    return Table("Why a token costs more than the benchmark says", (Column("cause"), Column("×", "number")), rows)


def _layouts(p: ServingPlan) -> Table:
    columns = (
        Column("layout"),
        Column("req/s within SLO", "number"),
        Column("per GPU", "number"),
        Column("batch", "number"),
        Column("benchmark req/s per GPU", "number"),
    )
    rows = []
    for o in p.considered:
        c = o.capacity
        mark = " ←" if o is p.chosen else ""
        numbers = (c.requests_per_s, c.requests_per_gpu_s, c.batch) if c else (None, None, None)
        rows.append((f"{o.replica.layout}{mark}", *numbers, o.benchmark.requests_per_gpu_s))
    return Table("Layouts", columns, rows, "– keeps the objective at no batch.")


def _levers(p: ServingPlan) -> Table:
    columns = (
        Column("lever"),
        Column("$/M tok at scale", "money"),
        Column("cost ×", "number"),
        Column("crowd ×", "number"),
        Column("assumes"),
    )
    rows = [("today", p.cost_per_mtok_at_unlimited_demand, 1.0, 1.0, "")]
    rows += [(e.name, e.cost_per_mtok, e.cost_factor, e.demand_factor, e.assumes) for e in p.levers]  # type: ignore[misc]
    return Table(
        "What each engineering lever does alone",
        columns,
        rows,
        f"Crowd: the demand from which a token costs at most {EFFICIENT:g} × its cost at unlimited demand.",
    )


def _crowd(p: ServingPlan, users: float | None, per_user: float) -> Table:
    columns = (
        Column(_crowd_name(users), "number"),
        Column("replicas", "number"),
        Column("load factor", "percent"),
        Column("$/M tok", "money"),
    )
    rows = [
        (_crowd_x(c.requests_per_day, users, per_user), float(c.replicas), c.load_factor, c.cost_per_mtok)
        for c in p.cost_by_demand[::4]
    ]
    need = _crowd_x(p.efficient_requests_per_day, users, per_user)
    return Table("The crowd", columns, rows, f"Efficient from {number(need)} {_crowd_name(users)} on.")


def _claims(p: ServingPlan) -> Table:
    c, r = p.batch_gains, p.chosen.replica
    where = (
        f"{r.network.name}, {r.precision.name}, {number(c.context)} tokens of context, {r.layout} of {r.accelerator.id}"
    )
    half = f"batch {number(c.batch_for_half)}" if c.batch_for_half else "at no batch"
    rows = [
        (
            "batch 1 → 64: throughput",
            f"{number(c.roofline_speedup_at_64)} ×",
            f"memory-bound, κ = {number(c.kappa)}, limit {number(c.speedup_limit)} ×; 27 × needs κ = 0.0222",
        ),
        ("the same by the step equation", f"{number(c.predicted_speedup_at_64)} ×", "with kernels, links and launches"),
        (
            "share of the chip at batch 1 → 64",
            f"{percent(c.compute_share_at_1)} → {percent(c.compute_share_at_64)}",
            "of peak FLOP/s, decoding alone",
        ),
        (
            "half of the chip",
            half,
            f"needs κ below {number(c.largest_kappa_for_half)}; {number(c.most_sequences)} sequences fit; "
            f"at most {percent(min(c.compute_share_limit, 1.0))}",
        ),
        (
            "27 × and 1 → 50 % together",
            "yes" if c.both_hold and c.kappa > 0.02 else "no",
            "27 × needs a larger κ than half of the chip allows",
        ),
        (
            "40 % duty",
            f"{number(duty_multiplier(0.4).multiplier)} ×",
            "1 ÷ 0.4, when batches are full while it is open",
        ),
    ]
    return Table(f"What a batch buys: {where}", (Column("claim"), Column("here"), Column("condition")), rows)


def _traffic(p: ServingPlan) -> Table:
    columns = (
        Column("traffic"),
        Column("replicas", "number"),
        Column("duty ×", "number"),
        Column("peaks ×", "number"),
        Column("fill ×", "number"),
        Column("price ×", "number"),
        Column("condition"),
    )
    rows = [
        (
            t.name,
            float(t.replicas),
            t.causes.duty_factor,
            t.causes.peaks_factor,
            t.causes.fill_factor,
            t.multiplier,
            t.condition,
        )
        for t in p.traffic_costs
    ]
    return Table("What traffic does to the benchmark price (simulated, eight replicas' worth of load)", columns, rows)


def _sweep(p: ServingPlan) -> Table:
    s = p.load_test
    columns = (
        Column("concurrency", "number"),
        Column("TTFT s", "number"),
        Column("TPOT ms", "number"),
        Column("output tok/s", "number"),
    )
    rows = [
        (float(c), float(t), float(x) * MS_PER_S, float(o))
        for c, t, x, o in zip(CONCURRENCIES, s.ttft_s, s.tpot_s, s.output_tokens_per_s, strict=True)  # type: ignore[arg-type]
    ]
    return Table("One replica in a load test", columns, rows)


def _crowd_name(users: float | None) -> str:
    return "users" if users else "requests a day"


def _crowd_x(requests_per_day: float, users: float | None, per_user: float) -> float:
    return requests_per_day / per_user if users else requests_per_day


def _crowd_chart(p: ServingPlan, users: float | None, per_user: float) -> Chart:
    x = tuple(_crowd_x(c.requests_per_day, users, per_user) for c in p.cost_by_demand)
    middle = p.cost_by_demand[len(p.cost_by_demand) // 2]
    now = _crowd_x(middle.requests_per_day, users, per_user)
    return Chart(
        f"The crowd: cost of a token against {_crowd_name(users)}",
        "line",
        x,
        (Series("fleet for the peak", tuple(c.cost_per_mtok for c in p.cost_by_demand)),),
        x_label=_crowd_name(users),
        y_label="$ per million tokens",
        x_log=True,
        y_log=True,
        marks=(Mark(now, middle.cost_per_mtok, "today"),),
        references=(
            Reference(p.cost_per_mtok_at_unlimited_demand, f"at scale {money(p.cost_per_mtok_at_unlimited_demand)}"),
        ),
    )


def _day_chart(p: ServingPlan) -> Chart | None:
    hours = [h for h in p.hours if h.requests][:168]
    if len(hours) < 3:
        return None
    x = tuple(float(i) for i in range(len(hours)))
    series = [
        Series("duty", tuple(h.duty_share for h in hours)),
        Series("batch fill", tuple(h.batch_fill_share for h in hours)),
        Series("within SLO", tuple(h.slo_share for h in hours), dashed=True),
    ]
    return Chart("How full it flies, hour by hour", "step", x, series, x_label="hour", y_label="share")


def _lever_chart(p: ServingPlan) -> Chart:
    known = [e for e in p.levers if e.cost_factor is not None]
    names = tuple(e.name for e in known) or ("none",)
    series = (
        Series("cost ×", tuple(e.cost_factor for e in known) or (None,)),
        Series("crowd ×", tuple(e.demand_factor for e in known) or (None,)),
    )
    return Chart(
        "Levers: cost at scale, and the crowd they need (today = 1)", "bar", names, series, x_label="times today"
    )


def _would_change(q: ServingInputs, p: ServingPlan) -> tuple[str, ...]:
    found = []
    best = min((e for e in p.levers if e.cost_factor is not None), key=lambda e: e.cost_factor or 1.0, default=None)
    if best is not None and best.cost_factor is not None and best.cost_factor < 1:
        found.append(
            f"{best.name.capitalize()} ({best.assumes}) would make tokens {percent(1 - best.cost_factor)} cheaper at scale."
        )
    c = p.fleet_run.multiplier
    worst = max(
        (
            ("idle hours", c.duty_factor),
            ("replicas kept for peaks", c.peaks_factor),
            ("batches short of the benchmark", c.fill_factor),
        ),
        key=lambda x: x[1],
    )
    found.append(f"The largest cause of the price is {worst[0]} (× {number(worst[1])}).")
    if p.efficient_requests_per_day > q.demand.requests_per_day:
        found.append(
            f"Demand is below the {number(p.efficient_requests_per_day)} requests a day from which this is efficient: "
            "a smaller model, an API or sharing replicas may be cheaper."
        )
    if q.slo.tpot_s <= p.chosen.capacity.tpot_s * 1.02 if p.chosen.capacity else False:
        found.append("The time per token binds: allowing more of it would fill batches further (--tpot).")
    return tuple(found)


def _scaled(p: ServingPlan) -> tuple[Assumption, ...]:
    if p.simulated_share == 1:
        return ()
    return (
        Assumption(
            "simulated",
            f"{percent(p.simulated_share)} of the requests on {p.simulated_replicas} replicas",
            "a small fleet is less even than a large one: on the safe side",
        ),
    )


def _three(*values: float | None) -> str:
    return " · ".join(number(v) for v in values)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * MS_PER_S


def _data(q: ServingInputs, p: ServingPlan) -> dict[str, Any]:
    r = p.chosen.replica
    return {
        "model": r.network.name,
        "accelerator": r.accelerator.id,
        "engine": r.engine.engine,
        "precision": r.precision.name,
        "layout": {
            "gpus": r.layout.gpus,
            "attention_dp": r.layout.attention_dp,
            "expert_parallel": r.layout.expert_parallel,
        },
        "replicas": p.replicas,
        "gpus": p.gpus,
        "price_per_gpu_hour": q.price_per_gpu_hour,
        "cost_per_hour": p.cost_per_hour,
        "slo": {"ttft_s": q.slo.ttft_s, "tpot_s": q.slo.tpot_s, "wanted_share": q.wanted_share, "kept": p.keeps_slo},
        "total": p.total.as_numbers(),
        "rejected": p.fleet_run.run.total.rejected_by_reason(),
        "hours": [h.as_numbers() for h in p.hours],
        "simulated_share": p.simulated_share,
        "balance": p.total.balance(),
        "multiplier": {
            **asdict(p.fleet_run.multiplier),
            "multiplier": p.fleet_run.multiplier.multiplier,
            "duty_share": p.fleet_run.duty_share,
        },
        "layouts": [
            {"layout": str(o.replica.layout), "capacity": o.capacity, "benchmark": o.benchmark} for o in p.considered
        ],
        "crowd": [asdict(c) for c in p.cost_by_demand],
        "cost_per_mtok_at_unlimited_demand": p.cost_per_mtok_at_unlimited_demand,
        "efficient_requests_per_day": p.efficient_requests_per_day,
        "levers": [asdict(e) for e in p.levers],
        "claims": {**asdict(p.batch_gains), "both_hold": p.batch_gains.both_hold},
        "traffic": [{**asdict(t), "multiplier": t.multiplier} for t in p.traffic_costs],
        "load_test": {
            "concurrency": CONCURRENCIES,
            "ttft_s": p.load_test.ttft_s,
            "tpot_s": p.load_test.tpot_s,
            "output_tokens_per_s": p.load_test.output_tokens_per_s,
        },
    }
