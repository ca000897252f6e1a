"""What happened in the simulated fleet? Everything but the samples, which are made day by day when somebody asks."""

from dataclasses import dataclass

import numpy as np

from loadfactor.simulator.calendar import Calendar, build_calendar
from loadfactor.simulator.demand import Job, build_jobs
from loadfactor.simulator.divided import build_shared_runs
from loadfactor.simulator.fleet import Fleet, Floats, Ints, Price, build_fleet, build_prices
from loadfactor.simulator.fleet_plan import FleetPlan
from loadfactor.simulator.schedule import Outage, Run, Wait, schedule
from loadfactor.simulator.trouble import Silence, build_silences, build_troubles


@dataclass(frozen=True)
class Pieces:
    """Every GPU held, one element per run and GPU, sorted by GPU and time. `run` indexes the runs."""

    run: Ints
    device: Ints
    from_ms: Ints
    to_ms: Ints
    share: Floats


@dataclass(frozen=True)
class Simulation:
    """A fleet's life. `tables.rows` turns it into the tables, `truth.truth` into what the books must say."""

    plan: FleetPlan
    calendar: Calendar
    fleet: Fleet
    prices: tuple[Price, ...]
    jobs: tuple[Job, ...]
    runs: tuple[Run, ...]
    waits: tuple[Wait, ...]
    outages: tuple[Outage, ...]
    silences: tuple[Silence, ...]
    pieces: Pieces


def simulate(plan: FleetPlan) -> Simulation:
    """Let the fleet of a plan live. The same plan gives the same life."""
    calendar, fleet = build_calendar(plan), build_fleet(plan)
    jobs = build_jobs(plan, fleet, calendar)
    rng = np.random.default_rng((plan.seed, 3))
    runs: list[Run] = []
    waits: list[Wait] = []
    outages: list[Outage] = []
    for pool in dict.fromkeys(g.pool for g in plan.groups):
        nodes = [n for n in fleet.nodes if n.group.pool == pool]
        queued = [j for j in jobs if j.pool == pool]
        went = schedule(queued, nodes, build_troubles(plan, nodes, rng), plan.end_ms)
        runs, waits, outages = runs + went.runs, waits + went.waits, outages + went.outages
    runs = [r for r in runs + build_shared_runs(plan, fleet) if r.to_ms > r.from_ms]
    return Simulation(
        plan=plan,
        calendar=calendar,
        fleet=fleet,
        prices=build_prices(plan),
        jobs=tuple(jobs),
        runs=tuple(runs),
        waits=tuple(waits),
        outages=tuple(outages),
        silences=tuple(build_silences(plan, len(fleet.nodes))),
        pieces=_pieces(runs),
    )


def _pieces(runs: list[Run]) -> Pieces:
    width = np.array([len(r.devices) for r in runs], dtype=np.int64)
    run = np.repeat(np.arange(len(runs), dtype=np.int64), width)
    device = np.array([d for r in runs for d in r.devices], dtype=np.int64)
    from_ms = np.array([r.from_ms for r in runs], dtype=np.int64)[run]
    to_ms = np.array([r.to_ms for r in runs], dtype=np.int64)[run]
    share = np.array([r.share for r in runs])[run]
    # On a divided GPU the pod with the largest share comes last: its signals are the ones seen.
    order = np.lexsort((from_ms, np.where(share < 1, share, 0), device))
    return Pieces(run[order], device[order], from_ms[order], to_ms[order], share[order])
