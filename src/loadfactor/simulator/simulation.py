"""The life of a simulated fleet: everything but the samples, which are made day by day when somebody asks."""

from dataclasses import dataclass

import numpy as np

from loadfactor.simulator.demand import Calendar, SubmittedJob, build_calendar, build_jobs
from loadfactor.simulator.fleet import (
    ExporterFailure,
    Floats,
    GpuPrice,
    Ints,
    SimulatedFleet,
    build_exporter_failures,
    build_fleet,
    build_incidents,
    build_prices,
)
from loadfactor.simulator.scenario import Scenario
from loadfactor.simulator.schedule import Outage, ScheduledRun, ScheduledWait, build_shared_runs, schedule_jobs


@dataclass(frozen=True)
class Holdings:
    """Every GPU held, one element per run and GPU, sorted by GPU and time. `run` indexes the runs."""

    run: Ints
    device: Ints
    from_ms: Ints
    to_ms: Ints
    share: Floats


@dataclass(frozen=True)
class Simulation:
    """A fleet's life. `table_rows` turns it into the tables, `truth` into what the ledger must say."""

    scenario: Scenario
    calendar: Calendar
    fleet: SimulatedFleet
    prices: tuple[GpuPrice, ...]
    jobs: tuple[SubmittedJob, ...]
    runs: tuple[ScheduledRun, ...]
    waits: tuple[ScheduledWait, ...]
    outages: tuple[Outage, ...]
    exporter_failures: tuple[ExporterFailure, ...]
    holdings: Holdings


def simulate(scenario: Scenario) -> Simulation:
    """Let the fleet of a scenario live. The same scenario gives the same life."""
    calendar, fleet = build_calendar(scenario), build_fleet(scenario)
    jobs = build_jobs(scenario, fleet, calendar)
    rng = np.random.default_rng((scenario.seed, 3))
    runs: list[ScheduledRun] = []
    waits: list[ScheduledWait] = []
    outages: list[Outage] = []
    for pool in dict.fromkeys(g.pool for g in scenario.groups):
        nodes = [n for n in fleet.nodes if n.group.pool == pool]
        queued = [j for j in jobs if j.pool == pool]
        played = schedule_jobs(queued, nodes, build_incidents(scenario, nodes, rng), scenario.end_ms)
        runs, waits, outages = runs + played.runs, waits + played.waits, outages + played.outages
    runs = [r for r in runs + build_shared_runs(scenario, fleet) if r.to_ms > r.from_ms]
    return Simulation(
        scenario=scenario,
        calendar=calendar,
        fleet=fleet,
        prices=build_prices(scenario),
        jobs=tuple(jobs),
        runs=tuple(runs),
        waits=tuple(waits),
        outages=tuple(outages),
        exporter_failures=tuple(build_exporter_failures(scenario, len(fleet.nodes))),
        holdings=_find_holdings(runs),
    )


def _find_holdings(runs: list[ScheduledRun]) -> Holdings:
    width = np.array([len(r.devices) for r in runs], dtype=np.int64)
    run = np.repeat(np.arange(len(runs), dtype=np.int64), width)
    device = np.array([d for r in runs for d in r.devices], dtype=np.int64)
    from_ms = np.array([r.from_ms for r in runs], dtype=np.int64)[run]
    to_ms = np.array([r.to_ms for r in runs], dtype=np.int64)[run]
    share = np.array([r.share for r in runs])[run]
    # On a divided GPU the pod with the largest share comes last: its signals are the ones seen.
    order = np.lexsort((from_ms, np.where(share < 1, share, 0), device))
    return Holdings(run[order], device[order], from_ms[order], to_ms[order], share[order])
