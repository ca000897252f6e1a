"""Faults of memory, GPUs and nodes."""

import numpy as np

from loadfactor.base.units import MIN_PER_HOUR
from loadfactor.simulator.faults.measure import measure
from loadfactor.simulator.faults.pick import NoRoomError, expect, pick_job, pick_window
from loadfactor.simulator.faults.scene import Event, Expectation, Scene, SceneOutage, Window

HARD_XIDS = (31, 48, 62, 74, 79, 94, 95, 119)
SLOWDOWNS = (0x8, 0x40, 0x80, 0x8 | 0x40, 0x20)
HEAT = 0x20 | 0x40
AFTER_EVENT = 2 * MIN_PER_HOUR
"""Minutes after an event in which an alert of it is right."""


def leak_memory(scene: Scene, rng: np.random.Generator) -> None:
    """The memory of a job grows towards the limit; some die of it."""
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
    """The driver reports an error of a GPU."""
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
    """A node is down: its jobs die, and its exporter is silent."""
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
    """Events are seen in the dark, too."""
    return Expectation(of.rule, of.about, of.minutes, of.is_certain)
