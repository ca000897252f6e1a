"""The lever that shares GPUs among small jobs: checked by hand, and its replay beside one that looks at every instant."""

import random

import pytest
from tests.insight.levers.fleet import PRICE, START, held, keep
from tests.ledger.fleets import MINUTE, Row

from loadfactor.insight.levers.share_gpus import share_time
from loadfactor.insight.savings import find_savings

GIB = 2**30
HOURS = 10


FLEETS = {
    "sevenths": (8, 0.1, 20),  # two of three GPUs
    "thirds": (8, 0.2, 20),
    "halves": (30, 0.2, 10),  # by memory: two GPUs for three jobs
    "full": (50, 0.2, None),
    "busy": (8, 0.6, None),
    "unknown": (None, 0.2, None),  # nobody knows whether it would fit
}
"""GiB of 80 in use, activity, and GPU-hours that are saved of three jobs that held a GPU each for ten hours."""


@pytest.fixture(scope="module")
def saved_gpu_hours(tmp_path_factory: pytest.TempPathFactory) -> dict[str | None, float]:
    """What the lever saves of each of these fleets, which are a pool and a team each."""
    gpus, pools, samples, allocations = dict[str, str](), dict[str, str](), list[Row](), list[Row]()
    for team, (memory_gib, active, _) in FLEETS.items():
        memory = {} if memory_gib is None else {"mem_used_bytes": memory_gib * GIB, "mem_total_bytes": 80.0 * GIB}
        for gpu in (f"{team}-{name}" for name in "abc"):
            gpus[gpu], pools[gpu] = f"{team}-n", team
            allocations += held(f"job-{gpu}", [gpu], 0, HOURS, team=team)
            for m in range(5, HOURS * 60 + 1, 5):
                times = {"from_utc": START + (m - 5) * MINUTE, "to_utc": START + m * MINUTE}
                samples.append({"device_id": gpu, **times, "sm_active_share": active, **memory})
    books = keep(tmp_path_factory.mktemp("shared"), gpus, HOURS, allocations, {}, pools=pools, samples=samples)
    return {row.by["team"]: row.levers.get("share_gpus", 0.0) / PRICE for row in find_savings(books, ("team",)).rows}


@pytest.mark.parametrize("team", FLEETS)
def test_small_jobs_share_a_gpu(saved_gpu_hours: dict[str | None, float], team: str) -> None:
    """Three jobs fit into as many GPUs as their activity and their peak of memory say; all of what is spared was inactive."""
    assert saved_gpu_hours[team] == pytest.approx(FLEETS[team][2] or 0.0)


def share_by_hand(spans: list[tuple[int, int]], on_one: int) -> int:
    """The same, instant by instant: a span goes to the GPU that was taken first of those with room, and leaves at its end."""
    gpus: list[list[int]] = []
    waiting = sorted(spans)
    held = 0
    for now in range(max(end for _, end in spans)):
        gpus = [left for gpu in gpus if (left := [end for end in gpu if end > now])]
        while waiting and waiting[0][0] == now:
            end = waiting.pop(0)[1]
            for gpu in gpus:
                if len(gpu) < on_one:
                    gpu.append(end)
                    break
            else:
                gpus.append([end])
        held += len(gpus)
    return held


@pytest.mark.parametrize("seed", range(20))
def test_the_replay_is_what_happens_instant_by_instant(seed: int) -> None:
    """GPUs are held from their first to their last run, and a new run opens a GPU only where all others are full."""
    rnd = random.Random(seed)
    spans = [(start, start + rnd.randint(1, 40)) for start in (rnd.randrange(100) for _ in range(rnd.randint(1, 30)))]
    on_one = rnd.choice((2, 3, 7))
    found = share_time(spans, on_one)
    assert found == share_by_hand(spans, on_one)
    assert found <= sum(end - start for start, end in spans)
