"""The kinds of faults: one for each rule of alerts, by the rule's name; what blinds comes last in a scene with several."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import numpy as np
from tests.faults.healthy import FREE, spend_before
from tests.faults.scene import Event, Expectation, Job, Price, Scene, SceneOutage, Wait, Window, measure

from loadfactor.base.errors import PlanError
from loadfactor.base.units import MIN_PER_HOUR

HARD_XIDS = (31, 48, 62, 74, 79, 94, 95, 119)
SLOWDOWNS = (0x8, 0x40, 0x80, 0x8 | 0x40, 0x20)
HEAT = 0x20 | 0x40
AFTER_EVENT = 2 * MIN_PER_HOUR
"""Minutes after an event in which an alert of it is right."""
Inject = Callable[[Scene, np.random.Generator], None]


def lose_node(scene: Scene, rng: np.random.Generator) -> None:
    nodes = sorted({gpu.node for gpu in scene.fleet})
    rng.shuffle(nodes)
    length = int(rng.integers(50, 130))
    for node in nodes:
        places = scene.gpus_of(node)
        try:
            window = pick_dark_window(scene, rng, places, length)
        except NoRoomError:
            continue
        if any(
            o.node == node and o.minutes[0] < window[1] + 60 and window[0] < o.minutes[1] + 60 for o in scene.outages
        ):
            continue
        if not any(set(job.gpus) & set(places) and len(job.gpus) > 1 for job in scene.jobs_at(window)):
            continue
        scene.lost[list(places), window[0] : window[1]] = True
        about = {**scene.describe_gpus(places), "source": frozenset({"dcgm"})}
        scene.expected.append(Expectation("telemetry_lost", about, window))
        return
    raise NoRoomError(f"no node of seed {scene.seed} has room for {length} minutes in the dark")


def lose_all(scene: Scene, rng: np.random.Generator) -> None:
    places = tuple(range(len(scene.fleet)))
    window = pick_dark_window(scene, rng, places, int(rng.integers(45, 90)))
    scene.lost[:, window[0] : window[1]] = True
    about = {**scene.describe_gpus(places), "source": frozenset({"dcgm"})}
    scene.expected.append(Expectation("exporter_lost", about, window))
    scene.expected.append(Expectation("telemetry_lost", about, window, is_certain=False))


def work_unheld(scene: Scene, rng: np.random.Generator) -> None:
    place = len(scene.fleet) - FREE
    first = int(rng.integers(20, scene.minutes - 160))
    window = (first, first + int(rng.integers(60, 150)))
    scene.sm[place, range(*window)] = rng.uniform(0.3, 0.9) * rng.normal(1, 0.03, window[1] - window[0])
    scene.memory[place, range(*window)] = 0.5
    about = scene.describe_gpus((place,))
    scene.expected.append(Expectation("gpus_work_unheld", about, window, gpus=(place,)))


def wait_beside_free(scene: Scene, rng: np.random.Generator) -> None:
    """A job waits for a GPU that nobody holds: a limit or a wrong constraint keeps it."""
    first = int(rng.integers(20, scene.minutes - 150))
    window = (first, first + int(rng.integers(60, 140)))
    team = f"{rng.choice(['blue', 'gold', 'green', 'red'])}"
    wait = Wait(f"stuck-{first}", f"{team}-2", team, "a100", 1, *window, bool(rng.random() < 0.5))
    scene.waits.append(wait)
    about = {**scene.describe_gpus(scene.gpus_of("a100-0")), **_describe_waits([wait])}
    scene.expected.append(Expectation("queue_wait_unusual", about, window, is_certain=False))


def wait_unusually(scene: Scene, rng: np.random.Generator) -> None:
    first = int(rng.integers(20, scene.minutes - 270))
    team = f"{rng.choice(['blue', 'gold', 'green', 'red'])}"
    waits = [
        Wait(f"slow-{n}-{first}", f"{team}-{n % 3}", team, "h100", 24, first + 3 * n, first + int(until), True)
        for n, until in enumerate(rng.integers(190, 260, 5))
    ]
    scene.waits += waits
    places = tuple(place for place, gpu in enumerate(scene.fleet) if gpu.pool == "h100")
    about = {**scene.describe_gpus(places), **_describe_waits(waits)}
    last = min(max(w.until_min or 0 for w in waits) + 90, scene.minutes)
    scene.expected.append(Expectation("queue_wait_unusual", about, (first, last)))


def overspend(scene: Scene, rng: np.random.Generator) -> None:
    """A team has spent its budget of the month in its first days, or will have in a few more."""
    team = f"{rng.choice(['blue', 'gold', 'green', 'red'])}"
    scene.budgets[team] = spend_before(scene, team) / rng.uniform(1.1, 1.6)
    about = {"team": frozenset({team}), "budget": frozenset({team})}
    scene.expected.append(Expectation("budget_burn", about, (0, scene.minutes)))


def end_price(scene: Scene, rng: np.random.Generator) -> None:
    minute = int(rng.integers(40, scene.minutes - 90))
    old = next(price for price in scene.prices if price.accelerator == "a100-sxm")
    scene.prices.remove(old)
    scene.prices.append(Price(old.accelerator, old.from_min, minute, old.price_per_gpu_hour))
    about = scene.describe_gpus(scene.gpus_of("a100-0"))
    scene.expected.append(
        Expectation("price_ended", {**about, "basis": frozenset({"contracted"})}, (minute, scene.minutes))
    )


def _describe_waits(waits: list[Wait]) -> dict[str, frozenset[str]]:
    return {
        "job": frozenset(w.job_id for w in waits),
        "team": frozenset(w.team for w in waits),
        "user": frozenset(w.user for w in waits),
        "pool": frozenset(w.pool for w in waits),
        "queue": frozenset(w.pool for w in waits),
    }


def leak_memory(scene: Scene, rng: np.random.Generator) -> None:
    job = pick_job(scene, rng, 200)
    first, after = job.within(scene.minutes)
    length = min(int(rng.integers(120, 260)), after - first - 40)
    begin = int(rng.integers(first + 20, after - length - 15))
    start, top = rng.uniform(0.4, 0.6), rng.uniform(0.95, 0.99)
    scene.memory[scene.cells(job)] = start
    scene.memory[scene.cells(job, (begin, begin + length))] = np.linspace(start, top, length)
    scene.memory[scene.cells(job, (begin + length, after))] = top
    window = (begin + int(length * (0.8 - start) / (top - start)), after)
    if rng.random() < 0.4:
        scene.events.append(Event(job.gpus[0], min(begin + length, after - 1), "out_of_memory", "CUDA out of memory"))
        window = (window[0], min(after + AFTER_EVENT, scene.minutes))
    expect(scene, "memory_pressure", job, window)


def throttle(scene: Scene, rng: np.random.Generator) -> None:
    """A GPU is slowed down: by heat, by its power supply, or by its hardware."""
    job = pick_job(scene, rng, 80)
    window = pick_window(scene, rng, job, 10, 50, 160)
    place, minutes = job.gpus[rng.integers(len(job.gpus))], range(*window)
    bits = int(rng.choice(SLOWDOWNS))
    scene.throttle[place, minutes] = bits
    expect(scene, "gpu_throttled", job, window, (place,))
    if bits & HEAT:
        scene.heat_c[place, minutes] = rng.uniform(22, 28)
        expect(scene, "gpu_hot", job, window, (place,), is_certain=False)


def overheat(scene: Scene, rng: np.random.Generator) -> None:
    """A fan fails: a GPU becomes hot, and slows down where it is very hot."""
    job = pick_job(scene, rng, 80)
    window = pick_window(scene, rng, job, 10, 50, 160)
    place, minutes = job.gpus[rng.integers(len(job.gpus))], range(*window)
    hot = 30 + rng.uniform(
        61, 66
    )  # whatever it does: were it made to work while its job pauses, it would be a straggler
    scene.heat_c[place, minutes] += np.maximum(hot - measure(scene)["temperature_c"][place, minutes], 0)
    if rng.random() < 0.5:
        scene.throttle[place, minutes] |= 0x20
    expect(scene, "gpu_hot", job, window, (place,))
    expect(scene, "gpu_throttled", job, window, (place,), is_certain=False)


def report_xid(scene: Scene, rng: np.random.Generator) -> None:
    job = pick_job(scene, rng, 60)
    minute = _within(scene, rng, job.within(scene.minutes))
    place, code = job.gpus[rng.integers(len(job.gpus))], int(rng.choice(HARD_XIDS))
    scene.events.append(Event(place, minute, "xid", str(code)))
    window = (minute, min(minute + AFTER_EVENT, scene.minutes))
    expect(scene, "gpu_xid", job, window, (place,))
    scene.expected[-1] = _without_samples(scene.expected[-1])
    if code in (48, 94, 95):
        expect(scene, "gpu_ecc", job, window, (place,), is_certain=False)


def report_ecc(scene: Scene, rng: np.random.Generator) -> None:
    """A GPU's memory has errors that cannot be corrected, or rows are replaced."""
    job = pick_job(scene, rng, 60)
    minute = _within(scene, rng, job.within(scene.minutes))
    place = job.gpus[rng.integers(len(job.gpus))]
    kind, detail = (("ecc", "dbe_volatile"), ("ecc", "dbe_aggregate"), ("row_remap", "uncorrectable"))[rng.integers(3)]
    scene.events.append(Event(place, minute, kind, detail, int(rng.integers(1, 4))))
    expect(scene, "gpu_ecc", job, (minute, min(minute + AFTER_EVENT, scene.minutes)), (place,))
    scene.expected[-1] = _without_samples(scene.expected[-1])


def fail_node(scene: Scene, rng: np.random.Generator) -> None:
    nodes = []
    for node in sorted({gpu.node for gpu in scene.fleet}):
        jobs = [job for job in scene.jobs if {scene.fleet[place].node for place in job.gpus} == {node}]
        if not any(job.job_id in scene.hurt for job in jobs) and not any(o.node == node for o in scene.outages):
            nodes.append((node, jobs))
    if not nodes:
        raise NoRoomError(f"every node of seed {scene.seed} has a fault")
    node, jobs = nodes[rng.integers(len(nodes))]
    places = scene.gpus_of(node)
    first = int(rng.integers(60, scene.minutes - 130))
    window = (first, first + int(rng.integers(45, 120)))
    reason = str(rng.choice(["not responding", "node failed", "kernel panic", "not ready: KubeletNotReady"]))
    scene.outages.append(SceneOutage(node, window, reason))
    scene.lost[list(places), window[0] : window[1]] = True
    for job in jobs:
        begin, after = job.within(scene.minutes)
        if begin < first < after or first <= job.from_min < window[1]:
            for array in (scene.sm, scene.pcie, scene.nvlink, scene.spin):
                array[scene.cells(job, (first, after))] = 0
            if job.from_min >= first - 2:
                scene.jobs.remove(job)
                continue
            job.to_min, job.end_state = first, "node_fail"
        scene.hurt.add(job.job_id)
    for array in (scene.sm, scene.pcie, scene.nvlink, scene.spin):
        array[np.ix_(places, range(*window))] = 0
    scene.expected.append(Expectation("node_down", scene.describe_gpus(places), window))


def _within(scene: Scene, rng: np.random.Generator, window: Window) -> int:
    return int(rng.integers(window[0] + 5, min(window[1], scene.minutes - 20)))


def _without_samples(of: Expectation) -> Expectation:
    return Expectation(of.rule, of.about, of.minutes, of.is_certain)


class NoRoomError(PlanError):
    """The fleet of this seed has no place for the fault."""


def pick_job(
    scene: Scene,
    rng: np.random.Generator,
    minutes: int,
    fits: Callable[[Job], bool] = lambda job: job.purpose != "notebook",
    from_start: bool = False,
) -> Job:
    """A job that fits and holds its GPUs for so many minutes within the scene; `from_start`: it begins there, too.

    Raises NoRoomError.
    """
    found = []
    for job in scene.jobs:
        first, after = job.within(scene.minutes)
        begins = job.from_min >= 5 if from_start else True
        if begins and after - first >= minutes and job.job_id not in scene.hurt and fits(job):
            found.append(job)
    if not found:
        raise NoRoomError(f"no job of seed {scene.seed} has room for a fault of {minutes} minutes")
    near = [job for job in found if _is_near(scene, job)]
    chosen = near if near and rng.random() < 0.5 else found
    job = chosen[rng.integers(len(chosen))]
    scene.hurt.add(job.job_id)
    return job


def pick_window(scene: Scene, rng: np.random.Generator, job: Job, before: int, shortest: int, longest: int) -> Window:
    """Minutes of a job, so many after its first ones, of a length between both limits."""
    first, after = job.within(scene.minutes)
    length = min(int(rng.integers(shortest, longest + 1)), after - first - before)
    begin = int(rng.integers(first + before, after - length + 1))
    return begin, begin + length


def pick_dark_window(scene: Scene, rng: np.random.Generator, gpus: tuple[int, ...], length: int) -> Window:
    """Minutes in which no sample of these GPUs shows a fault. Raises NoRoomError."""
    seen = [e.minutes for e in scene.expected if e.is_certain and set(e.gpus) & set(gpus)]
    begins = [
        begin
        for begin in range(45, scene.minutes - length - 10, 5)
        if all(begin + length + 30 <= first or begin >= after + 45 for first, after in seen)
    ]
    if not begins:
        raise NoRoomError(f"no time of seed {scene.seed} has room for {length} minutes in the dark")
    begin = int(rng.choice(begins))
    return begin, begin + length


def expect(
    scene: Scene, rule: str, job: Job, minutes: Window, gpus: tuple[int, ...] | None = None, is_certain: bool = True
) -> None:
    places = job.gpus if gpus is None else gpus
    scene.expected.append(Expectation(rule, scene.describe(job, gpus), minutes, is_certain, places))


def _is_near(scene: Scene, job: Job) -> bool:
    nodes = {scene.fleet[place].node for place in job.gpus}
    return any(nodes & e.about.get("node", frozenset()) or job.team in e.about.get("team", ()) for e in scene.expected)


def slow_fleet(scene: Scene, rng: np.random.Generator) -> None:
    first = int(rng.integers(40, scene.minutes - 210))
    window = (first, first + int(rng.integers(170, 210)))
    _slow(scene, rng, scene.jobs, window)


def slow_team(scene: Scene, rng: np.random.Generator) -> None:
    length = int(rng.integers(170, 210))
    found = [
        (team, (first, first + length))
        for team in sorted({job.team for job in scene.jobs})
        for first in range(30, scene.minutes - length, 20)
        if any(job.team == team and job.purpose != "notebook" for job in scene.jobs_at((first, first + length)))
    ]
    if not found:
        raise NoRoomError(f"no team of seed {scene.seed} works long enough")
    team, window = found[rng.integers(len(found))]
    _slow(scene, rng, [job for job in scene.jobs if job.team == team], window)


def slow_job(scene: Scene, rng: np.random.Generator) -> None:
    job = pick_job(scene, rng, 190)
    _slow(scene, rng, [job], pick_window(scene, rng, job, 15, 170, 260))


def never_begin(scene: Scene, rng: np.random.Generator) -> None:
    job = pick_job(scene, rng, 70, from_start=True)
    window = job.within(scene.minutes)
    _stop(scene, rng, job, window)
    expect(scene, "job_idle_from_start", job, window)


def stop_working(scene: Scene, rng: np.random.Generator) -> None:
    job = pick_job(scene, rng, 160)
    first, after = job.within(scene.minutes)
    window = (int(rng.integers(first + 60, after - 90)), after)
    _stop(scene, rng, job, window)
    expect(scene, "job_became_idle", job, window)


def forget_notebook(scene: Scene, rng: np.random.Generator) -> None:
    """Somebody leaves a notebook and does not close it, or opens one and never runs anything."""
    job = pick_job(scene, rng, 140, lambda job: job.purpose == "notebook")
    first, after = job.within(scene.minutes)
    window = (first if rng.random() < 0.3 else int(rng.integers(first, after - 110)), after)
    _stop(scene, rng, job, window)
    expect(scene, "notebook_idle", job, window)


def use_some(scene: Scene, rng: np.random.Generator) -> None:
    job = pick_job(scene, rng, 130, lambda job: job.purpose != "notebook" and len(job.gpus) >= 2, from_start=True)
    window = job.within(scene.minutes)
    used = int(rng.integers(1, len(job.gpus)))
    unused = job.gpus[used:]
    scene.sm[np.ix_(unused, range(*window))] = 0
    scene.pcie[np.ix_(unused, range(*window))] = 0
    scene.nvlink[scene.cells(job)] = 0
    scene.memory[np.ix_(unused, range(*window))] = 0.004
    expect(scene, "gpus_never_used", job, window)


def _slow(scene: Scene, rng: np.random.Generator, jobs: Iterable[Job], window: Window) -> None:
    for job in jobs:
        begins, ends = job.within(scene.minutes)
        first, after = max(begins, window[0]), min(ends, window[1])
        if first >= after:
            continue
        minute = np.arange(after - first)
        level = rng.uniform(0.2, 0.36) * np.ones(len(minute))
        if rng.random() < 0.5:
            level = np.where(minute % 6 < 2, 0.8, 0.06) * rng.uniform(0.8, 1.0)
        at = scene.cells(job, (first, after))
        works = scene.sm[at] > 0.03  # who pauses or loads, does so still
        scene.sm[at] = np.where(works, np.clip(level * rng.normal(1, 0.03, works.shape), 0, 1), scene.sm[at])
        scene.pcie[at], scene.nvlink[at] = 0.03, 0.1 * scene.sm[at]


def _stop(scene: Scene, rng: np.random.Generator, job: Job, window: Window) -> None:
    at = scene.cells(job, window)
    poked = rng.random() < 0.3
    scene.sm[at] = rng.uniform(0, 0.01, scene.sm[at].shape) if poked else 0.0
    scene.pcie[at], scene.nvlink[at] = 0.0, 0.0


def fill_pcie(scene: Scene, rng: np.random.Generator) -> None:
    """A job moves its data over PCIe all the time, and computes little."""
    job = pick_job(scene, rng, 90)
    window = pick_window(scene, rng, job, 20, 60, 150)
    at = scene.cells(job, window)
    shape = scene.sm[at].shape
    scene.sm[at] = rng.uniform(0.15, 0.35) * rng.normal(1, 0.05, shape)
    scene.pcie[at] = rng.uniform(0.86, 0.97) * rng.normal(1, 0.01, shape)
    scene.nvlink[at] = 0.05
    expect(scene, "pcie_saturated", job, window)


def wait_for_collectives(scene: Scene, rng: np.random.Generator) -> None:
    """GPUs of a job spend their time in AllReduce: over busy NVLink, or over a slow network, which shows as waiting kernels."""
    job = pick_job(scene, rng, 90, _has_several)
    window = pick_window(scene, rng, job, 20, 60, 150)
    at = scene.cells(job, window)
    shape = scene.sm[at].shape
    scene.sm[at] = rng.uniform(0.12, 0.3) * rng.normal(1, 0.05, shape)
    scene.spin[at] = rng.uniform(0.96, 1.0)
    scene.tensor_ratio[at] = rng.uniform(0.05, 0.2)
    scene.pcie[at] = 0.03
    over_nvlink = rng.random() < 0.5
    scene.nvlink[at] = rng.uniform(0.72, 0.95) if over_nvlink else 0.04
    expect(scene, "collective_bound", job, window)


def lag_behind(scene: Scene, rng: np.random.Generator) -> None:
    """One GPU of a job does less than the others, or works while all others wait for it."""
    job = pick_job(scene, rng, 90, lambda job: job.purpose != "notebook" and len(job.gpus) >= 4)
    window = pick_window(scene, rng, job, 20, 60, 150)
    slow = job.gpus[rng.integers(len(job.gpus))]
    minutes = range(*window)
    if rng.random() < 0.5:
        scene.sm[slow, minutes] *= rng.uniform(0.2, 0.5)
    else:
        others = [place for place in job.gpus if place != slow]
        scene.sm[np.ix_(others, minutes)] *= rng.uniform(0.3, 0.5)
        scene.tensor_ratio[np.ix_(others, minutes)] = 0.25
        scene.sm[slow, minutes] = np.maximum(scene.sm[slow, minutes], 0.8)
    scene.pcie[scene.cells(job, window)] = 0.05
    scene.nvlink[scene.cells(job, window)] = 0.1  # who waits sends nothing
    expect(scene, "job_straggler", job, window)


def _has_several(job: Job) -> bool:
    return job.purpose != "notebook" and len(job.gpus) >= 2


FAULTS: Final[Mapping[str, Inject]] = {
    "fleet_utilization_low": slow_fleet,
    "team_utilization_low": slow_team,
    "job_utilization_low": slow_job,
    "job_idle_from_start": never_begin,
    "job_became_idle": stop_working,
    "notebook_idle": forget_notebook,
    "gpus_never_used": use_some,
    "pcie_saturated": fill_pcie,
    "collective_bound": wait_for_collectives,
    "job_straggler": lag_behind,
    "memory_pressure": leak_memory,
    "gpu_throttled": throttle,
    "gpu_hot": overheat,
    "gpu_xid": report_xid,
    "gpu_ecc": report_ecc,
    "gpus_work_unheld": work_unheld,
    "gpus_free_while_jobs_wait": wait_beside_free,
    "queue_wait_unusual": wait_unusually,
    "budget_burn": overspend,
    "price_ended": end_price,
    "node_down": fail_node,
    "telemetry_lost": lose_node,
    "exporter_lost": lose_all,
}
