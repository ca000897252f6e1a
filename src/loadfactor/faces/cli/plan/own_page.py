"""What does the answer to `plan own` say?"""

from typing import Any

from loadfactor.faces.answer import Answer, Assumption, Cell, Column, Table
from loadfactor.faces.charts import Chart, Reference, Series
from loadfactor.faces.formats import duration, money, number, percent
from loadfactor.planner.economics.load_duration import LoadDuration
from loadfactor.planner.economics.own_plan import OWNED, OwnPlan, OwnQuestion
from loadfactor.planner.economics.ownership import OwnedServer
from loadfactor.units import W_PER_KW


def answer_about_owning(question: OwnQuestion, plan: OwnPlan, prices: tuple[Assumption, ...]) -> Answer:
    """The whole page."""
    tables = [_parts(plan), _tiers(plan)]
    charts = [_screening(plan)]
    if question.demand is not None:
        tables = [tables[0], _mix(plan, question.demand), tables[1], _risk(plan)]
        charts = [_curve(plan, question.demand), *charts]
    return Answer(
        sentence=_sentence(question, plan),
        tables=(*tables, _accounts(plan)),
        charts=charts,
        assumptions=(*prices, *_server(question.server)),
        would_change=_would_change(question, plan),
        data=_data(question, plan),
    )


def _sentence(question: OwnQuestion, plan: OwnPlan) -> str:
    hour = money(plan.cost.cost_per_available_gpu_hour)
    rent = min(t.used_cost_per_hour for t in plan.tiers if t.used_cost_per_hour)
    if plan.break_even_share > 1:
        return f"Do not own: an owned GPU-hour costs {hour} even when always used, renting one costs {money(rent)}."
    if question.demand is None or plan.mix is None or plan.owned_gpus is None:
        return (
            f"An owned GPU-hour costs {hour}, used or not: own only GPUs that work more than {percent(plan.break_even_share)} of "
            f"the time, rent the others at {money(rent)}. Give --demand to learn how many."
        )
    rest = " ".join(f"{use.gpus} {use.tier.name}," for use in plan.mix.uses).rstrip(",")
    if plan.owned_gpus == 0:
        needed = percent(plan.break_even_share)
        return f"Rent all of it: no GPU of this demand works the {needed} of the time that owning at {hour} needs."
    return (
        f"Own {plan.owned_gpus} GPUs and rent above that: {rest}, {money(plan.mix.cost_per_hour)} an hour; the GPU after the last "
        f"owned one works less than the {percent(plan.break_even_share)} of the time that owning needs."
    )


def _parts(plan: OwnPlan) -> Table:
    cost = plan.cost
    rows = [
        ("capital", cost.capital_cost, cost.straight_line_capital_cost),
        ("network, storage, CPU hosts", cost.network_cost, cost.straight_line_network_cost),
        ("energy", cost.energy_cost, cost.energy_cost),
        ("colocation", cost.colocation_cost, cost.colocation_cost),
        ("support and repair", cost.support_cost, cost.support_cost),
        ("staff", cost.staff_cost, cost.staff_cost),
        ("total", cost.total_cost, cost.straight_line_total_cost),
        ("per GPU-hour up", cost.cost_per_available_gpu_hour, cost.straight_line_cost_per_available_gpu_hour),
    ]
    return Table(
        "A year of one owned server",
        (Column("part"), Column("annuity", "money"), Column("straight line", "money")),
        [row for row in rows if row[1]],
        note="Decisions use the annuity; the straight line leaves out what the money costs.",
    )


def _accounts(plan: OwnPlan) -> Table:
    schedules = plan.yearly_charges_cost
    years = range(len(next(iter(schedules.values()))))
    return Table(
        "What the accounts charge for one server",
        (Column("year"), *(Column(name, "money") for name in schedules)),
        [(str(year + 1), *(charges[year] for charges in schedules.values())) for year in years],
        note="Declining balance at twice the straight rate. None of these is what the server could be sold for.",
    )


def _tiers(plan: OwnPlan) -> Table:
    ends = [crossing.from_share for crossing in plan.screening[1:]] + [1.0]
    spans = {c.tier.name: f"{c.from_share:.0%} to {end:.0%}" for c, end in zip(plan.screening, ends, strict=True)}
    uses = (1.0, 0.8, 0.6, 0.4, 0.2)
    rows: list[tuple[Cell, ...]] = []
    for tier in plan.tiers:
        cheapest = spans.get(tier.name, "never")
        rows.append((tier.name, *(tier.cost_per_hour(u) / u for u in uses), cheapest))
    note = ""
    if plan.spot is not None:
        way = "saved within the notice" if plan.spot.saved_within_notice else "saved by periodic checkpoints"
        kept, every = percent(plan.spot.efficiency_share), duration(plan.spot.mtbf_s)
        note = f"Spot keeps {kept} of its time as work (a gang is interrupted every {every}, {way})."
        if plan.spot.checkpoints is not None:
            note += f" Best interval between checkpoints: {duration(plan.spot.checkpoints.interval_s)} (Daly)."
    return Table(
        "$ per used GPU-hour, by how much of the time the GPU works",
        (Column("tier"), *(Column(f"{u:.0%}", "money") for u in uses), Column("cheapest at")),
        rows,
        note=note,
    )


def _mix(plan: OwnPlan, demand: LoadDuration) -> Table:
    assert plan.mix is not None
    rows: list[tuple[str, float | None, float | None, float]] = [
        (use.tier.name, float(use.gpus), use.used_gpu_hours_per_hour / use.gpus, use.cost_per_hour)
        for use in plan.mix.uses
    ]
    rows.append(("together", float(len(demand.marginal_share)), demand.load_factor, plan.mix.cost_per_hour))
    rows += [
        (f"everything {name}", float(len(demand.marginal_share)), None, cost_)
        for name, cost_ in plan.mix.single_tier_cost_per_hour.items()
    ]
    return Table(
        "The cheapest mix",
        (Column("tier"), Column("GPUs", "number"), Column("mean use", "percent"), Column("$ per hour", "money")),
        rows,
        note=f"Demand: {number(demand.mean_gpus)} GPUs on average, {number(demand.peak_gpus)} at the peak.",
    )


def _risk(plan: OwnPlan) -> Table:
    return Table(
        "If renting gets cheaper or dearer after you bought",
        (
            Column("rent"),
            Column("$ per GPU-hour", "money"),
            Column("best to own", "number"),
            Column("plan $/h", "money"),
            Column("regret $/h", "money"),
        ),
        [
            (
                f"{s.change_share:+.0%}".replace("%", " %") if s.change_share else "as now",
                s.rent_price_per_hour,
                s.best_owned_gpus,
                s.planned_cost_per_hour,
                max(s.regret_per_hour, 0.0),
            )
            for s in plan.scenarios
        ],
        note=_fall(plan),
    )


def _fall(plan: OwnPlan) -> str:
    change = plan.break_even_yearly_change
    if change is None or plan.break_even_share > 1:
        return ""
    return f"The last owned GPU comes out even when the rental price changes by {percent(change)} a year; a faster fall loses."


def _screening(plan: OwnPlan) -> Chart:
    shares = [i / 20 for i in range(21)]
    return Chart(
        "Screening curve: the cheapest way to hold a GPU",
        "line",
        shares,
        [Series(t.name, [t.cost_per_hour(u) for u in shares], dashed=t.name != OWNED) for t in plan.tiers],
        "share of the time the GPU works",
        "$ per hour",
        references=[Reference(plan.break_even_share, f"own above {percent(plan.break_even_share)}", "x")]
        if plan.break_even_share <= 1
        else (),
    )


def _curve(plan: OwnPlan, demand: LoadDuration) -> Chart:
    step = max(1, len(demand.demand_gpus) // 500)
    reached, at = 0.0, []
    for share in demand.time_share:
        at.append(reached)
        reached += float(share)
    values = [float(d) for d in demand.demand_gpus]
    return Chart(
        "Load-duration curve: GPUs wanted for at least this share of the time",
        "step",
        [*at[::step], 1.0],
        (Series("GPUs wanted", [*values[::step], values[-1]]),),
        "share of time",
        "GPUs",
        references=(Reference(float(plan.owned_gpus or 0), f"own {plan.owned_gpus}"),),
    )


def _server(server: OwnedServer) -> tuple[Assumption, ...]:
    power = (
        f"{number(server.power_w / W_PER_KW)} kW a server at {percent(server.load_share)}, PUE {server.pue:g}, "
        f"{money(server.price_per_kwh)} per kWh"
        if server.colocation_price_per_kw_month is None
        else f"{money(server.colocation_price_per_kw_month)} per kW-month, all-in"
    )
    source = "default of this command; an 8-GPU H100 system sold for $200,000 to $400,000"
    return (
        Assumption("server", f"{money(server.server_price)} for {server.gpus} GPUs", source, "introl.com, 2025-12"),
        Assumption(
            "life",
            f"{server.life_years:g} years, {percent(server.residual_share)} residual",
            "--life-years; 3 to 6 are in use",
        ),
        Assumption("cost of capital", f"{percent(server.cost_of_capital_share)} a year", "--capital-percent"),
        Assumption("power", power, "--server-kw, --pue, --price-per-kwh"),
        Assumption(
            "around it",
            f"network {percent(server.network_share)} of the price, support {percent(server.support_share)} a year, "
            f"staff {money(server.staff_cost_per_year)} a year, up {percent(server.availability_share)} of the time",
            "defaults; typical shares, not measured here",
        ),
    )


def _would_change(question: OwnQuestion, plan: OwnPlan) -> tuple[str, ...]:
    lines = []
    if plan.next_gpu is not None:
        lines.append(plan.next_gpu.sentence)
    cost = plan.cost.cost_per_available_gpu_hour
    lines.append(f"A rented GPU-hour at or below {money(cost)}: then own nothing.")
    if question.demand is not None and _fall(plan):
        lines.append(_fall(plan))
    if question.spot is None:
        lines.append("Work that survives interruptions: give --spot-price and --spot-hours.")
    if question.yearly_growth_share == 0:
        lines.append("Growing demand: give --growth-percent; the next GPU is judged over its whole life.")
    return tuple(lines)


def _data(question: OwnQuestion, plan: OwnPlan) -> dict[str, Any]:
    cost = plan.cost
    return {
        "server": question.server,
        "year_cost": vars(cost),
        "total_cost_per_year": cost.total_cost,
        "straight_line_total_cost_per_year": cost.straight_line_total_cost,
        "price_per_gpu_hour": cost.price_per_gpu_hour,
        "cost_per_available_gpu_hour": cost.cost_per_available_gpu_hour,
        "break_even_share": plan.break_even_share,
        "tiers": plan.tiers,
        "screening": plan.screening,
        "spot": plan.spot,
        "owned_gpus": plan.owned_gpus,
        "mix": plan.mix,
        "next_gpu": None if plan.next_gpu is None else {**vars(plan.next_gpu), "sentence": plan.next_gpu.sentence},
        "price_scenarios": plan.scenarios,
        "yearly_charges_cost": plan.yearly_charges_cost,
        "break_even_yearly_change_share": plan.break_even_yearly_change,
    }
