"""A fleet in which nothing is wrong, with much that looks as if: dips, checkpoints, full memory, busy links, a drain, waits.

Three nodes of H100 and one of A100, eight GPUs each, for nine hours from an evening; four teams with jobs and notebooks, one
after the other. Three days before it have allocations and waits, so that there is something usual, and money spent.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
from tests.faults.scene import (
    CAPPED_ABOVE,
    POWER_CAP,
    PROFILED,
    Array,
    Event,
    Flags,
    Gpu,
    Job,
    Price,
    Scene,
    SceneOutage,
    Wait,
    Window,
    measure,
)

from loadfactor.base.units import H_PER_MONTH, MIN_PER_DAY, MIN_PER_HOUR, MS_PER_MIN, MS_PER_S, S_PER_MIN
from loadfactor.simulator.table_rows import TableBatch
from loadfactor.tables.schema import table

MINUTES: Final = 9 * MIN_PER_HOUR
HISTORY_DAYS: Final = 3
START: Final = datetime(2026, 10, 4, 18, tzinfo=UTC)
HISTORY_MINUTES: Final = HISTORY_DAYS * MIN_PER_DAY + START.hour * MIN_PER_HOUR
"""From the first of the month to the beginning of the scene."""
TEAMS: Final = ("blue", "gold", "green", "red")
PRICES: Final = {"h100-sxm": 2.6, "a100-sxm": 1.35}
PATTERNS: Final = ((8,), (4, 4), (4, 2, 2))
MIXED: Final = (4, 2, 1, 1)
"""How many GPUs the slots of a node have; in a mixed node the last but one has notebooks."""
GPUS_OF_A_NODE: Final = 8
FREE: Final = 1
"""GPUs that nobody ever asks for, at the end of the node of A100."""
Row = dict[str, Any]


def make_healthy(seed: int, more_nodes: int = 0) -> Scene:
    """A healthy fleet; the same seed makes the same one. `more_nodes`: of H100, beside the usual three."""
    rng = np.random.default_rng((seed, 11))
    nodes = [(f"h100-{n}", "h100") for n in range(3 + more_nodes)] + [("a100-0", "a100")]
    fleet = tuple(
        Gpu(f"{node}/gpu{n}", node, pool, f"{pool}-sxm") for node, pool in nodes for n in range(GPUS_OF_A_NODE)
    )
    shape = (len(fleet), MINUTES)
    scene = Scene(
        seed=seed,
        start_ms=int(START.timestamp()) * MS_PER_S,
        minutes=MINUTES,
        fleet=fleet,
        sm=np.zeros(shape),
        spin=np.zeros(shape),
        pcie=np.zeros(shape),
        nvlink=np.zeros(shape),
        heat_c=np.zeros(shape),
        tensor_ratio=np.full(shape, 0.5),
        memory=np.full(shape, 0.004),
        throttle=np.zeros(shape, dtype=np.int64),
        lost=np.zeros(shape, dtype=np.bool_),
    )
    drain = _drain(scene, rng) if rng.random() < 0.5 else None
    for node, _ in nodes:
        mixed = node in ("h100-2", "a100-0")
        pattern = MIXED if mixed else PATTERNS[rng.integers(len(PATTERNS))]
        places = scene.gpus_of(node)
        for slot, size in enumerate(pattern):
            gpus, places = places[:size], places[size:]
            if node == "a100-0" and slot == len(pattern) - 1:
                break  # stays free
            is_notebook = mixed and slot == 2
            _fill_slot(scene, rng, gpus, is_notebook, drain if node == "h100-1" else None)
    for job in scene.jobs:
        _work(scene, rng, job)
    scene.heat_c[list(scene.gpus_of("h100-2"))] = 5.0
    capped = np.array([gpu.node == "h100-0" for gpu in scene.fleet])[:, None] & (scene.sm > CAPPED_ABOVE)
    scene.throttle[capped] |= POWER_CAP
    scene.sm[capped] = np.maximum(scene.sm[capped], 0.93)
    for number in range(2):
        first = int(rng.integers(20, scene.minutes - 80))
        team = str(rng.choice(TEAMS))
        until = first + int(rng.integers(15, 35))
        scene.waits.append(Wait(f"large-{number}", f"{team}-0", team, "a100", 8, first, until, False))
    _make_usual(scene, rng)
    _price(scene, rng)
    return scene


def _drain(scene: Scene, rng: np.random.Generator) -> Window:
    first = int(rng.integers(150, 300))
    window = (first, first + int(rng.integers(60, 110)))
    scene.outages.append(
        SceneOutage("h100-1", window, str(rng.choice(["maintenance", "drained", "drain: firmware update"])))
    )
    scene.lost[list(scene.gpus_of("h100-1")), window[0] : window[1]] = True
    return window


def _fill_slot(
    scene: Scene, rng: np.random.Generator, gpus: tuple[int, ...], is_notebook: bool, drain: Window | None
) -> None:
    start = -int(rng.integers(1, 120))
    while start < scene.minutes - 100:
        after: int | None = start + int(rng.integers(210, 420))
        if drain is not None and start < drain[1] and (after or 0) > drain[0] - 3:
            after = drain[0] - 3
        if after is not None and after > scene.minutes - 130:
            after = None if rng.random() < 0.7 else scene.minutes - int(rng.integers(1, 12))
        team = str(rng.choice(TEAMS))
        number = len(scene.jobs)
        name, user = f"{'notebook' if is_notebook else 'job'}-{number}", f"{team}-{rng.integers(3)}"
        purpose = "notebook" if is_notebook else str(rng.choice(["training", "training", "batch-inference"]))
        submitted, state = start - int(rng.integers(1, 5)), "running" if after is None else "completed"
        scene.jobs.append(Job(name, user, team, purpose, gpus, start, after, submitted, state))
        if after is None:
            return
        start = after + int(rng.integers(2, 6))
        if drain is not None and drain[0] - 10 < start < drain[1]:
            start = drain[1] + int(rng.integers(2, 6))


def _work(scene: Scene, rng: np.random.Generator, job: Job) -> None:
    first, after = job.within(scene.minutes)
    at = scene.cells(job)
    width = after - first
    since = first - job.from_min
    minute = np.arange(width) + since
    warm_up = int(rng.integers(2, 9))
    level = np.full(width, rng.uniform(0.68, 0.9))
    if job.purpose == "notebook":
        level = level * _run_sometimes(rng, width)
    else:
        every, pause = int(rng.integers(60, 95)), int(rng.integers(2, 5))
        level = np.where((minute > every) & (minute % every < pause), 0.02, level)  # checkpoints
        for dip in rng.integers(20, max(width - 10, 21), 2):
            level[dip : dip + int(rng.integers(1, 4))] *= rng.uniform(0.0, 0.4)
    level = np.where(minute < warm_up, 0.0, level)
    if job.to_min is not None and job.to_min <= scene.minutes:
        level[width - int(rng.integers(1, 4)) :] = 0.0
    noise = rng.normal(1, 0.03, (len(job.gpus), width))
    scene.sm[at] = np.clip(level * noise, 0, 0.98)
    scene.tensor_ratio[at] = rng.uniform(0.4, 0.62)
    gpus = len(job.gpus)
    kind = rng.choice(["preallocated", "flat", "wavy"])
    if kind == "preallocated":
        used = np.full(len(minute), rng.uniform(0.9, 0.96))
    elif kind == "flat":
        used = np.where(minute < warm_up, 0.15, rng.uniform(0.45, 0.93))
    else:
        used = np.where(minute < warm_up, 0.1, rng.uniform(0.4, 0.6) + 0.12 * np.sin(minute / rng.uniform(9, 40)))
    scene.memory[at] = np.tile(used, (gpus, 1)) + rng.normal(0, 0.0005, (gpus, 1))
    # Busy links are well where the GPU is busy, too: streamed inputs, tensor parallelism that overlaps.
    scene.pcie[at] = scene.sm[at] * rng.choice([0.02, 0.05, 1.02])
    scene.nvlink[at] = scene.sm[at] * (rng.choice([0.1, 0.25, 0.7]) if len(job.gpus) > 1 else 0)


def _run_sometimes(rng: np.random.Generator, width: int) -> Array:
    out, minute = np.zeros(width), 0
    while minute < width:
        run = int(rng.integers(15, 50))
        out[minute : minute + run] = 1
        minute += run + int(rng.integers(4, 42))
    return out


def _make_usual(scene: Scene, rng: np.random.Generator) -> None:
    for number in range(150):
        wait = int(np.clip(rng.lognormal(1.2, 0.9), 1, 20)) if rng.random() < 0.88 else int(rng.integers(20, 50))
        first = -int(rng.integers(60, HISTORY_MINUTES - 60))
        team, pool = str(rng.choice(TEAMS)), str(rng.choice(["h100", "h100", "a100"]))
        size = int(rng.choice([1, 2, 4, 8, 16]))
        scene.waits.append(Wait(f"past-{number}", f"{team}-1", team, pool, size, first, first + wait, True))


def _price(scene: Scene, rng: np.random.Generator) -> None:
    for accelerator, price in PRICES.items():
        change = int(rng.integers(60, scene.minutes - 60)) if accelerator == "h100-sxm" else None
        scene.prices.append(Price(accelerator, None, change, price))
        if change is not None:
            scene.prices.append(Price(accelerator, change, None, 0.95 * price))
    for team in TEAMS:
        scene.budgets[team] = 3 * spend_before(scene, team) / HISTORY_MINUTES * H_PER_MONTH * MIN_PER_HOUR
    scene.events.append(
        Event(int(rng.integers(len(scene.fleet))), int(rng.integers(scene.minutes)), "ecc", "sbe_volatile", 1)
    )


def spend_before(scene: Scene, team: str) -> float:
    """What a team spent from the first of the month to the beginning of the scene."""
    hours = HISTORY_MINUTES / MIN_PER_HOUR
    return sum(PRICES[scene.fleet[place].accelerator] * hours for place in held_before(team))


def held_before(team: str) -> range:
    """The places of the GPUs that a team held in the days before the scene."""
    number = TEAMS.index(team)
    return range(8 * number, 8 * number + 6)


def make_rows(scene: Scene, signals: Sequence[str] | None = None, late: Flags | None = None) -> Iterator[TableBatch]:
    """All rows, the small tables first. `signals`: the columns that samples have, all by default; `late`: samples left out."""
    for name, rows in (
        ("devices", _list_devices(scene)),
        ("prices", _list_prices(scene)),
        ("outages", _list_outages(scene)),
        ("allocations", _list_allocations(scene)),
        ("queue_events", _list_queue_events(scene)),
        ("device_events", _list_events(scene)),
    ):
        if listed := list(rows):
            yield TableBatch(name, pa.Table.from_pylist(listed, schema=table(name).schema))
    yield make_samples(scene, signals, ~scene.lost if late is None else ~scene.lost & ~late)


def make_samples(scene: Scene, signals: Sequence[str] | None, taken: Flags) -> TableBatch:
    """The samples of these GPUs and minutes: one of each, or several that are alike where the step is shorter."""
    place, minute = (np.repeat(of, S_PER_MIN // scene.step_s) for of in np.nonzero(taken))
    measured: dict[str, Array] = {k: v for k, v in measure(scene).items() if signals is None or k in signals}
    for name in PROFILED & {*measured}:
        measured[name][sorted(scene.plain)] = np.nan
    step_ms = scene.step_s * MS_PER_S
    part = np.arange(len(place)) % (S_PER_MIN // scene.step_s)
    to_ms = scene.start_ms + minute * MS_PER_MIN + (part + 1) * step_ms
    names = pa.array([gpu.device for gpu in scene.fleet])
    columns = {
        "device_id": pa.DictionaryArray.from_arrays(pa.array(place.astype(np.int32)), names).cast(pa.string()),
        "from_utc": to_ms - step_ms,
        "to_utc": to_ms,
        **{name: pa.array(values[place, minute], from_pandas=True) for name, values in measured.items()},
        "source": pa.array(["dcgm"] * len(place)),
    }
    schema = table("samples").schema
    made = pa.table(columns)
    return TableBatch("samples", made.cast(pa.schema([schema.field(name) for name in made.column_names])))


def write_settings(scene: Scene) -> str:
    """What `loadfactor.toml` says of the fleet: its budgets."""
    return "".join(f'[[budget]]\nteam = "{team}"\namount = {amount:.2f}\n\n' for team, amount in scene.budgets.items())


def _list_devices(scene: Scene) -> Iterator[Row]:
    for gpu in scene.fleet:
        yield {
            "device_id": gpu.device,
            "node": gpu.node,
            "accelerator": gpu.accelerator,
            "pool": gpu.pool,
            "from_utc": scene.at_ms(-HISTORY_MINUTES),
            "to_utc": scene.at_ms(scene.minutes),
        }


def _list_prices(scene: Scene) -> Iterator[Row]:
    for price in scene.prices:
        yield {
            "accelerator": price.accelerator,
            "from_utc": None if price.from_min is None else scene.at_ms(price.from_min),
            "to_utc": None if price.to_min is None else scene.at_ms(price.to_min),
            "basis": "contracted",
            "price_per_gpu_hour": price.price_per_gpu_hour,
            "currency": "USD",
            "source": "simulated",
        }


def _list_outages(scene: Scene) -> Iterator[Row]:
    for outage in scene.outages:
        first, after = outage.minutes
        until = scene.at_ms(after) if after < scene.minutes else None
        yield {"node": outage.node, "from_utc": scene.at_ms(first), "to_utc": until, "reason": outage.reason}


def _name_holder(of: Job | Wait) -> Row:
    return {"user": of.user, "team": of.team, "project": f"{of.team}-project"}


def _list_allocations(scene: Scene) -> Iterator[Row]:
    for job in scene.jobs:
        for place in job.gpus:
            yield {
                "job_id": job.job_id,
                "device_id": scene.fleet[place].device,
                **_name_holder(job),
                "purpose": job.purpose,
                "submitted_utc": scene.at_ms(job.submitted_min),
                "from_utc": scene.at_ms(job.from_min),
                "to_utc": None if job.to_min is None else scene.at_ms(job.to_min),
                "end_state": job.end_state,
            }
    for team in TEAMS:
        for place in held_before(team):
            yield {
                "job_id": f"before-{team}",
                "device_id": scene.fleet[place].device,
                "user": f"{team}-0",
                "team": team,
                "purpose": "training",
                "from_utc": scene.at_ms(-HISTORY_MINUTES),
                "to_utc": scene.at_ms(-130),
                "end_state": "completed",
            }


def _list_queue_events(scene: Scene) -> Iterator[Row]:
    def event(of: Wait, minute: int, what: str) -> Row:
        said = {"job_id": of.job_id, "at_utc": scene.at_ms(minute), "event": what, "gpus": of.gpus, "pool": of.pool}
        return {**said, **_name_holder(of), "reason": "Resources" if what == "submitted" else None}

    for wait in scene.waits:
        yield event(wait, wait.from_min, "submitted")
        if wait.until_min is not None:
            yield event(wait, wait.until_min, "started" if wait.started else "cancelled")
    for job in scene.jobs:
        pool = scene.fleet[job.gpus[0]].pool
        wait = Wait(job.job_id, job.user, job.team, pool, len(job.gpus), job.submitted_min, job.from_min, True)
        yield event(wait, job.submitted_min, "submitted")
        yield event(wait, job.from_min, "started")


def _list_events(scene: Scene) -> Iterator[Row]:
    for event in scene.events:
        yield {
            "device_id": scene.fleet[event.gpu].device,
            "at_utc": scene.at_ms(event.minute),
            "kind": event.kind,
            "detail": event.detail,
            "count": event.count,
        }
