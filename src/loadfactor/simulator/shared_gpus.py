"""Runs on shared GPUs: pods on the divided one, sessions on the slices of the one cut into seven; placed by hand, not queued."""

import numpy as np

from loadfactor.base.units import MS_PER_DAY, MS_PER_HOUR, MS_PER_S
from loadfactor.simulator.demand import FOREVER_MS, SubmittedJob
from loadfactor.simulator.fleet import SimulatedFleet
from loadfactor.simulator.outcome import ScheduledRun
from loadfactor.simulator.scenario import Scenario
from loadfactor.simulator.workloads import WORKLOADS, find_workload

PODS = (("notebook", 0.25), ("small-batch", 0.125), ("serving", 0.5))
"""Workload and share. The signals of the GPU are those of the last pod that holds it: a collector sees the GPU, not the pod."""


def build_shared_runs(scenario: Scenario, fleet: SimulatedFleet) -> list[ScheduledRun]:
    """The runs on divided GPUs. An eighth of the divided GPU is never given away."""
    rng = np.random.default_rng((scenario.seed, 5))
    runs: list[ScheduledRun] = []
    if fleet.divided is not None:
        for p, (work, share) in enumerate(PODS):
            # From some time in the first day to some time in the last, so that the GPU is also seen half free.
            since = scenario.start_ms + int(rng.integers(0, MS_PER_DAY // MS_PER_S // 2)) * MS_PER_S
            until = scenario.end_ms - int(rng.integers(1, MS_PER_DAY // MS_PER_S // 2)) * MS_PER_S
            runs.append(_build_run(scenario, f"pod-{p}-{work}", work, fleet.divided, share, since, until, rng))
    for m, device in enumerate(fleet.mig):
        at, number = scenario.start_ms, 0
        while at < scenario.end_ms:
            since = at + int(rng.exponential(5 * MS_PER_HOUR) / MS_PER_S) * MS_PER_S
            until = since + int(rng.lognormal(np.log(6), 0.7) * MS_PER_HOUR / MS_PER_S) * MS_PER_S
            if since >= scenario.end_ms:
                break
            work = "notebook" if rng.random() < 0.7 else "sweep"
            runs.append(_build_run(scenario, f"mig-{m}-{number}", work, device, 1.0, since, until, rng))
            at, number = until, number + 1
    return runs


def _build_run(
    scenario: Scenario,
    job_id: str,
    work: str,
    device: int,
    share: float,
    since: int,
    until: int,
    rng: np.random.Generator,
) -> ScheduledRun:
    kind = find_workload(work)
    team = scenario.teams[int(rng.integers(0, len(scenario.teams)))]
    job = SubmittedJob(
        job_id=job_id,
        workload=kind,
        team=team.name,
        user=team.users[int(rng.integers(0, len(team.users)))],
        project=team.projects[int(rng.integers(0, len(team.projects)))],
        experiment_id=None,
        pool="",
        gpus=1,
        submitted_ms=since,
        eligible_ms=since,
        work_ms=FOREVER_MS,
    )
    work_from = min(since + WORKLOADS[kind].startup_s * MS_PER_S, until)
    end, state = (until, "completed") if until <= scenario.end_ms else (scenario.end_ms, "running")
    return ScheduledRun(job, 0, since, end, state, (device,), work_from, end, share)
