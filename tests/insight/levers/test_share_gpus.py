"""The lever that shares GPUs among small jobs: checked by hand, and its replay beside one that looks at every instant."""

import random
from pathlib import Path

import pytest
from tests.insight.levers.fleet import START, held, keep
from tests.ledger.fleets import MINUTE

from loadfactor.insight.levers.share_gpus import share_time
from loadfactor.insight.savings import LeverSaving, find_savings

GIB = 2**30
HOURS = 10


def find_shared(folder: Path, memory_gib: float | None, active: float) -> LeverSaving | None:
    """The lever for three jobs that held a GPU each for ten hours, as active as that, with so much of 80 GiB in use."""
    gpus = dict.fromkeys("abc", "n")
    memory = {} if memory_gib is None else {"mem_used_bytes": memory_gib * GIB, "mem_total_bytes": 80.0 * GIB}
    samples = [
        {
            "device_id": gpu,
            "from_utc": START + (m - 5) * MINUTE,
            "to_utc": START + m * MINUTE,
            "sm_active_share": active,
        }
        | memory
        for gpu in gpus
        for m in range(5, HOURS * 60 + 1, 5)
    ]
    allocations = [row for gpu in gpus for row in held(f"job-{gpu}", [gpu], 0, HOURS)]
    books = keep(folder, gpus, HOURS, allocations, {}, samples=samples)
    levers = {lever.lever: lever for lever in find_savings(books).levers}
    return levers.get("share_gpus")


@pytest.mark.parametrize(
    ("memory_gib", "active", "saved"),
    [
        (8, 0.1, 20),  # sevenths: two of three GPUs
        (8, 0.2, 20),  # thirds
        (30, 0.2, 10),  # halves, by memory: two GPUs for three jobs
        (50, 0.2, None),
        (8, 0.6, None),
        (None, 0.2, None),  # nobody knows whether it would fit
    ],
)
def test_small_jobs_share_a_gpu(tmp_path: Path, memory_gib: float | None, active: float, saved: float | None) -> None:
    """Three jobs fit into as many GPUs as their activity and their peak of memory say; all of what is spared was inactive."""
    found = find_shared(tmp_path, memory_gib, active)
    assert (found and found.gpu_hours) == (saved and pytest.approx(saved))


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
