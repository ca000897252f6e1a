"""Page of `plan own`: what an owned GPU-hour costs, the mix of tiers for a demand, and what moving prices would do."""

from dataclasses import replace
from functools import partial

from loadfactor.base.errors import InputError
from loadfactor.base.limits import MOST_GPUS
from loadfactor.base.quantities import write_share
from loadfactor.base.units import H_PER_DAY, W_PER_KW
from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.prices import ChosenPrice, choose_price
from loadfactor.catalog.servers import Server, find_server
from loadfactor.interfaces.charts import Chart, Reference, Series
from loadfactor.interfaces.document import Assumption, Cell, Document, Section
from loadfactor.interfaces.formats import counted, duration, money, number, percent
from loadfactor.interfaces.functions import make_function
from loadfactor.interfaces.plans.inputs import (
    ask_hours,
    draw_load_duration,
    find_demand,
    read_jobs,
    state_hours,
    state_price,
)
from loadfactor.interfaces.plans.marginal import draw_marginal
from loadfactor.interfaces.tables import col, table
from loadfactor.planner.economics.load_duration import LoadDuration, Tier, load_duration
from loadfactor.planner.economics.marginal_gpus import keep_more
from loadfactor.planner.economics.own_plan import OWNED, OwnPlan, make_question, plan_own
from loadfactor.planner.economics.request import OwnRequest
from loadfactor.planner.hardware.marginal import Marginal
from loadfactor.planner.sizing.size_plan import count_demand
from loadfactor.sources.demand import JobTrace

USES = (1.0, 0.8, 0.6, 0.4, 0.2)


def build_document(request: OwnRequest) -> Document:
    rent = choose_price(request.accelerator, request.rent_price, "--rent-price")
    assumptions = [state_price("rented on demand", rent)]
    if request.committed_price is not None:
        committed = choose_price(request.accelerator, request.committed_price, "--committed-price")
        assumptions.append(state_price("committed", committed))
    demand, about = _read_demand(request, rent)
    plan = plan_own(make_question(request, rent.per_gpu_hour, demand))
    if request.marginal:
        plan = replace(plan, marginal=_own_more(plan, demand))
    sections = [_draw_year(plan), _draw_tiers(plan)]
    if demand is not None:
        owned = Reference(float(plan.owned_gpus or 0), f"own {plan.owned_gpus}")
        curve = Section(charts=(draw_load_duration(demand, (owned,)),))
        note = f"A rented GPU-hour costs {money(plan.rent_price_per_used_gpu_hour, plan.currency)}."
        more = draw_marginal(plan.marginal, plan.currency, " a month", note)
        sections = [_draw_mix(plan, demand), *more, sections[0], curve, sections[1], _draw_risk(plan)]
    return Document(
        headline=_write_headline(plan),
        sections=(*sections, _draw_accounts(plan)),
        assumptions=(*assumptions, *about, *_list_assumptions(request, plan)),
        notes=_list_changes(request, plan),
        data=plan,
    )


plan_ownership = make_function(
    "plan_ownership", OwnRequest, build_document, "The answer of `loadfactor plan own` as a page."
)


def _own_more(plan: OwnPlan, demand: LoadDuration | None) -> tuple[Marginal, ...]:
    if demand is None or plan.owned_gpus is None:
        raise InputError("--marginal needs a demand: give --demand, --demand-gpus, --store or --users")
    hour, rent = plan.cost_per_available_gpu_hour, plan.rent_price_per_used_gpu_hour
    return keep_more(demand, plan.owned_gpus, hour, rent, plan.server.gpus, plan.currency)


def _read_demand(request: OwnRequest, rent: ChosenPrice) -> tuple[LoadDuration | None, tuple[Assumption, ...]]:
    path, store, typed, users = request.demand, request.store, request.demand_gpus, request.users
    if sum((path is not None, store is not None, bool(typed), users is not None)) > 1:
        raise InputError("give the demand once: --demand FILE, --store DIR, --demand-gpus or --users, not both")
    if users is not None:
        served = ask_hours(request, users, rent)
        return load_duration(served.demand_gpus), (state_hours(served, rent),)
    if typed:
        gpus, hours = _parse_day(typed)
        about = Assumption("demand", f"{typed} (GPUs x hours), again and again", "your --demand-gpus")
        return load_duration(gpus, hours), (about,)
    if path is None and store is None:
        return None, ()
    trace = find_demand(path, store)
    if not isinstance(trace, JobTrace):
        about = Assumption("demand", f"{len(trace.demand_gpus):,} intervals", trace.name)
        return load_duration(trace.demand_gpus), (about,)
    words = f"{len(trace.submit_s):,} jobs as GPUs wanted each hour, if none waited"
    return load_duration(count_demand(read_jobs(trace))), (Assumption("demand", words, trace.name),)


def _parse_day(typed: str) -> tuple[list[float], list[float]]:
    """GPUs and hours of "20x6,40x6". Raises InputError where it is not that."""
    gpus, hours = [], []
    write = "write 20x6,40x6,60x4,80x8"
    for part in typed.replace("×", "x").split(","):
        try:
            amount, _, length = part.partition("x")
            gpus.append(float(amount))
            hours.append(float(length or 1))
        except ValueError as error:
            raise InputError(f"--demand-gpus {part!r} is not GPUsxhours; {write}") from error
        if not (0 <= gpus[-1] <= MOST_GPUS and 0 < hours[-1] <= H_PER_DAY):
            raise InputError(
                f"--demand-gpus {part!r}: GPUs lie between 0 and {MOST_GPUS:,}, hours between 0 and 24; {write}"
            )
    if sum(hours) > H_PER_DAY:
        raise InputError(f"--demand-gpus {typed!r} has {sum(hours):g} hours, a day has 24; {write}")
    return gpus, hours


def _write_headline(plan: OwnPlan) -> str:
    hour = money(plan.cost_per_available_gpu_hour, plan.currency)
    rent = money(plan.rent_price_per_used_gpu_hour, plan.currency)
    needed = percent(plan.break_even_share)
    if plan.break_even_share > 1:
        return f"Do not own: an owned GPU-hour costs {hour} even when always used, renting one costs {rent}."
    if plan.mix is None or plan.owned_gpus is None:
        return (
            f"An owned GPU-hour costs {hour}, used or not: own only GPUs that work more than {needed} of the time, "
            f"rent the others at {rent}. Give --demand or --users to learn how many."
        )
    if plan.owned_gpus == 0:
        return f"Rent all of it: no GPU of this demand works the {needed} of the time that owning at {hour} needs."
    uses = ", ".join(f"{use.gpus:,} {use.tier.name}" for use in plan.mix.uses)
    return (
        f"Own {counted(plan.owned_gpus, 'GPU')} and rent above that: {uses}, "
        f"{money(plan.mix.cost_per_hour, plan.currency)} an hour; "
        f"the GPU after the last owned one works less than the {needed} of the time that owning needs."
    )


def _draw_year(plan: OwnPlan) -> Section:
    cost = plan.year_cost
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
    year = table(
        [row for row in rows if row[1]],
        "part",
        col("annuity", style="money"),
        col("straight line", style="money"),
        currency=plan.currency,
        note="Decisions use the annuity; the straight line leaves out what the money costs.",
    )
    return Section("A year of one owned server", tables=(year,))


def _draw_accounts(plan: OwnPlan) -> Section:
    schedules = plan.yearly_charges_cost
    years = [(str(i), *charges) for i, charges in enumerate(zip(*schedules.values(), strict=True), 1)]
    charges = table(
        years,
        "year",
        *(col(name, style="money") for name in schedules),
        currency=plan.currency,
        note="Declining balance at twice the straight rate. None of these is what the server could be sold for.",
    )
    return Section("What the accounts charge for one server", tables=(charges,))


def _draw_tiers(plan: OwnPlan) -> Section:
    ends = [crossing.from_share for crossing in plan.screening[1:]] + [1.0]
    spans = {
        c.tier.name: f"{write_share(c.from_share)} to {write_share(end)}"
        for c, end in zip(plan.screening, ends, strict=True)
    }
    note = ""
    if plan.spot is not None:
        way = "saved within the notice" if plan.spot.saved_within_notice else "saved by periodic checkpoints"
        kept, every = percent(plan.spot.efficiency_share), duration(plan.spot.mtbf_s)
        note = f"Spot keeps {kept} of its time as work (a gang is interrupted every {every}, {way})."
        if plan.spot.checkpoints is not None:
            note += f" Best interval between checkpoints: {duration(plan.spot.checkpoints.interval_s)} (Daly)."
    costs = table(
        plan.tiers,
        col("tier", "name"),
        *(col(write_share(use), partial(_cost_of_use, use=use), "money") for use in USES),
        col("cheapest at", lambda tier: spans.get(tier.name, "never")),
        currency=plan.currency,
        note=note,
    )
    shares = [i / 20 for i in range(21)]
    owned = Reference(plan.break_even_share, f"own above {percent(plan.break_even_share)}", "x")
    screening = Chart(
        "Screening curve: the cheapest way to hold a GPU",
        "line",
        shares,
        [Series(t.name, [t.cost_per_hour(u) for u in shares], dashed=t.name != OWNED) for t in plan.tiers],
        "share of the time the GPU works",
        f"{plan.currency} per hour",
        references=[owned] if plan.break_even_share <= 1 else (),
    )
    title = "Cost of a used GPU-hour, by how much of the time the GPU works"
    return Section(title, charts=(screening,), tables=(costs,))


def _cost_of_use(tier: Tier, use: float) -> float:
    return tier.cost_per_hour(use) / use


def _draw_mix(plan: OwnPlan, demand: LoadDuration) -> Section:
    """The tiers of the cheapest mix; the note says what the commitment saves, and what a normal demand would ask for."""
    assert plan.mix is not None
    rows: list[tuple[Cell, ...]] = [
        (use.tier.name, use.gpus, use.used_gpu_hours_per_hour / use.gpus, use.cost_per_hour) for use in plan.mix.uses
    ]
    peak = len(demand.marginal_share)
    rows.append(("together", peak, demand.mean_of_peak_share, plan.mix.cost_per_hour))
    rows += [(f"everything {name}", peak, None, cost) for name, cost in plan.mix.single_tier_cost_per_hour.items()]
    note = f"Demand: {number(demand.mean_gpus)} GPUs on average, {number(demand.peak_gpus)} at the peak."
    held, normal = plan.commitment, plan.normal_demand
    if held is not None and held.effective_savings_share is not None:
        note += (
            f" The commitment is used {percent(held.utilization_share)} of the time, must be {percent(held.break_even_share)}, "
            f"and saves {percent(held.effective_savings_share)} against on demand."
        )
    if normal is not None:
        note += (
            f" The newsvendor's rule, for a normal demand of the same mean and spread ({number(normal.sd_gpus)} GPUs), owns "
            f"{number(normal.owned_gpus)}."
        )
    mix = table(
        rows,
        "tier",
        col("GPUs", style="number"),
        col("mean use", style="percent"),
        col("cost per hour", style="money"),
        currency=plan.currency,
        note=note,
    )
    return Section("The cheapest mix", tables=(mix,))


def _draw_risk(plan: OwnPlan) -> Section:
    scenarios = table(
        plan.price_scenarios,
        col("rent", lambda s: f"{s.change_share:+.0%}".replace("%", " %") if s.change_share else "as now"),
        col("per GPU-hour", "rent_price_per_hour", "money"),
        col("best to own (GPUs)", "best_owned_gpus", "number"),
        col("plan per hour", "planned_cost_per_hour", "money"),
        col("regret per hour", lambda s: max(s.regret_per_hour, 0.0), "money"),
        currency=plan.currency,
        note=_write_fall(plan),
    )
    return Section("If renting gets cheaper or more expensive after you bought", tables=(scenarios,))


def _write_fall(plan: OwnPlan) -> str:
    change = plan.break_even_yearly_change_share
    if change is None or plan.break_even_share > 1:
        return ""
    return f"The last owned GPU comes out even when the rental price changes by {percent(change)} a year; a faster fall loses."


def _list_assumptions(request: OwnRequest, plan: OwnPlan) -> tuple[Assumption, ...]:
    server = plan.server
    known = find_server(accelerator(request.accelerator).id)
    power = (
        f"{number(server.power_w / W_PER_KW)} kW a server at {percent(server.load_share)}, PUE {server.pue:g}, "
        f"{money(server.price_per_kwh, plan.currency)} per kWh"
        if server.colocation_price_per_kw_month is None
        else f"{money(server.colocation_price_per_kw_month, plan.currency)} per kW-month, all-in"
    )
    return (
        Assumption(
            "server",
            f"{money(server.server_price, plan.currency)} for {counted(server.gpus, 'GPU')}",
            *_cite(known, "price", request.server_price),
        ),
        Assumption(
            "life",
            f"{server.life_years:g} years, {percent(server.residual_share)} residual",
            "--life-years; 3 to 6 are in use",
        ),
        Assumption("discount rate", f"{percent(server.discount_rate_share)} a year", "--discount-rate-percent"),
        Assumption("power", power, *_cite(known, "power_w", request.server_kw)),
        Assumption(
            "around it",
            f"network {percent(server.network_share)} of the price, support {percent(server.support_share)} a year, "
            f"staff {money(server.staff_cost_per_year, plan.currency)} a year, up {percent(server.availability_share)} of the time",
            "defaults; typical shares, not measured here",
        ),
    )


def _cite(server: Server | None, fact: str, given: float | None) -> tuple[str, str]:
    known = None if server is None else server.price if fact == "price" else server.power_w
    if given is not None or known is None or server is None:
        return ("your --server-price" if fact == "price" else "your --server-kw"), ""
    return f"catalog, {server.name}: {known.source}", f"{known.retrieved_on:%Y-%m}, {known.status}"


def _list_changes(request: OwnRequest, plan: OwnPlan) -> tuple[str, ...]:
    lines = []
    if plan.next_gpu is not None:
        lines.append(plan.next_gpu.sentence)
    lines.append(
        f"A rented GPU-hour at or below {money(plan.cost_per_available_gpu_hour, plan.currency)}: then own nothing."
    )
    if plan.owned_gpus is not None and _write_fall(plan):
        lines.append(_write_fall(plan))
    if plan.spot is None:
        lines.append("Work that survives interruptions: give --spot-price and --spot-hours.")
    if request.growth_percent == 0:
        lines.append("Growing demand: give --growth-percent; the next GPU is judged over its whole life.")
    return tuple(lines)
