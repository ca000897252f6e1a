"""Faults of telemetry, holders, queues and money."""

import numpy as np

from loadfactor.simulator.faults.healthy import FREE, spend_before
from loadfactor.simulator.faults.pick import NoRoomError, pick_dark_window
from loadfactor.simulator.faults.scene import Expectation, Price, Scene, Wait


def lose_node(scene: Scene, rng: np.random.Generator) -> None:
    """The exporter of a node stops, while jobs run."""
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
    """What collects the samples of all nodes stops."""
    places = tuple(range(len(scene.fleet)))
    window = pick_dark_window(scene, rng, places, int(rng.integers(45, 90)))
    scene.lost[:, window[0] : window[1]] = True
    about = {**scene.describe_gpus(places), "source": frozenset({"dcgm"})}
    scene.expected.append(Expectation("exporter_lost", about, window))
    scene.expected.append(Expectation("telemetry_lost", about, window, is_certain=False))


def work_unheld(scene: Scene, rng: np.random.Generator) -> None:
    """Somebody works on a GPU past the scheduler."""
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
    """Large jobs wait for hours, because the fleet is full."""
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
    """A contract ends, and nobody says what comes after it."""
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
