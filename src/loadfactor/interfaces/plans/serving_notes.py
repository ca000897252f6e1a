"""The headline of a serving plan, and what would change it."""

from loadfactor.base.units import MS_PER_S
from loadfactor.interfaces.formats import counted, money, number, percent
from loadfactor.planner.serving.serving_plan import ServingPlan


def write_headline(p: ServingPlan) -> str:
    """The plan in one sentence; each of its numbers stands in the first table."""
    t = p.total
    fleet = f"{counted(p.replicas, 'replica')} of {p.layout} ({p.gpus} × {p.accelerator})"
    met = f"{percent(t.slo_share)} of requests within {p.slo.ttft_s:g} s and {p.slo.tpot_s * MS_PER_S:g} ms a token"
    if not p.slo.kept:
        return f"No: {fleet} serving {p.model} in {p.precision} keep the objective for only {met}."
    most = "at most " if p.fleet_run.fleet.autoscale else ""
    return (
        f"Serve {p.model} in {p.precision} on {fleet}: {most}{money(p.cost_per_hour, p.currency)} an hour, "
        f"{money(t.cost_per_mtok, p.currency)} per million tokens, {number(p.multiplier.multiplier)} × the benchmark price; "
        f"{met}; busy {percent(t.duty_share)} of the time with a batch of {number(t.mean_batch)}."
    )


def write_notes(p: ServingPlan, requests_per_day: float) -> tuple[str, ...]:
    """What would change the answer."""
    found = []
    helpful = [e for e in p.levers if e.cost_factor is not None and e.cost_factor < 1]
    if helpful:
        best = min(helpful, key=lambda e: e.cost_factor or 1.0)
        saved = percent(1 - (best.cost_factor or 1.0))
        found.append(
            f"{best.name.capitalize()} ({best.assumes}) would make tokens {saved} cheaper at scale, by equation."
        )
    m = p.multiplier
    name, factor = max(
        ("hours without requests", m.duty_factor),
        ("replicas kept for peaks", m.peaks_factor),
        ("batches short of the benchmark", m.fill_factor),
        key=lambda cause: cause[1],
    )
    found.append(f"The largest cause of the cost is {name} (× {number(factor)}).")
    if p.efficient_requests_per_day > requests_per_day:
        found.append(
            f"Demand is below the {round_off(p.efficient_requests_per_day)} requests a day from which this is efficient: "
            "a smaller model, an API or sharing replicas may be cheaper."
        )
    found += _write_ranges(p)
    if p.slo.tpot_s <= p.chosen.require_capacity().tpot_s * 1.02:
        found.append("The time per token binds: allowing more of it would fill batches further (--tpot).")
    return tuple(found)


def _write_ranges(p: ServingPlan) -> list[str]:
    """How wrong the plan may be, and which of its decisions that leaves open."""
    found = []
    times = (("time per token", p.tpot_range), ("time to the first token", p.ttft_range))
    said = " and ".join(f"the {name} is {number(low)} to {number(high)} times" for name, (low, high) in times)
    found.append(f"In four of five cases {said} what is said here.")
    if p.cost_per_mtok_range is not None:
        low_cost, high_cost = (money(c, p.currency) for c in p.cost_per_mtok_range)
        found.append(f"The cost per million tokens lies between {low_cost} and {high_cost} in four of five cases.")
    low, high = p.replicas_range
    if low != high:
        found.append(
            f"The number of replicas is open: {low:,} to {high:,} ({p.gpus_range[0]:,} to {p.gpus_range[1]:,} GPUs)."
        )
    if p.open_layouts:
        ways = counted(len(p.open_layouts), "other layout")
        found.append(f"{ways} {'is' if len(p.open_layouts) == 1 else 'are'} too close to call: measure them.")
    return found


def round_off(value: float) -> str:
    """An estimate to three significant digits.

    >>> round_off(341471.97), round_off(0.012345)
    ('341,000', '0.0123')
    """
    return number(float(f"{value:.3g}"))
