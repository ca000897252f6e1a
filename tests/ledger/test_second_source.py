"""A second source for a GPU adds what it measured and takes nothing away from the first."""

from pathlib import Path
from typing import Any

import pytest
from tests.ledger.fleets import HOUR, MINUTE, STARTS, add, batch

from loadfactor.books.books import Books

START = STARTS[-1]
SMI = {"source": "nvidia-smi", "busy_share": 0.5, "power_w": 400.0, "mem_used_bytes": 40.0, "mem_total_bytes": 80.0}
DCGM = {"source": "dcgm", "sm_active_share": 0.3}


def sample(since: int, until: int, **values: Any) -> dict[str, Any]:
    return {"device_id": "g0", "from_utc": START + since, "to_utc": START + until, **values}


def books_of(folder: Path, *imports: list[dict[str, Any]]) -> Books:
    """One GPU held for an hour, and its samples, an import each."""
    hour = {"device_id": "g0", "from_utc": START, "to_utc": START + HOUR}
    books = Books(folder / "store")
    add(books, [batch("devices", [hour]), batch("allocations", [{"job_id": "a", **hour}])], "held", folder)
    for number, rows in enumerate(imports):
        add(books, [batch("samples", rows)], str(number), folder)
    return books


def values(books: Books, *metrics: str) -> list[Any]:
    return [r.value for r in books.show(metrics)]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_better_signal_leaves_energy_and_memory(tmp_path: Path, order: tuple[int, int]) -> None:
    """Activity is the better one's, energy, memory and GPU_UTIL are the other's, whichever came first."""
    both = ([sample(0, HOUR, **SMI)], [sample(0, HOUR, **DCGM)])
    books = books_of(tmp_path, *(both[k] for k in order))
    metrics = ("energy_kwh", "mem_utilization", "utilization", "gpu_util", "sm_activity", "mem_utilization_peak")
    assert values(books, *metrics) == [0.4, 0.5, 0.3, 0.5, 0.3, 0.5]
    (reading,) = books.show(["utilization"])
    assert reading.activity_basis == "sm_active"


def test_of_two_that_measured_the_same_the_better_sample_counts(tmp_path: Path) -> None:
    """Power of both: the one with the better activity signal counts while it speaks, the other before and after."""
    better = sample(15 * MINUTE, 45 * MINUTE, **DCGM, power_w=200.0)
    books = books_of(tmp_path, [sample(0, HOUR, **SMI)], [better])
    assert values(books, "energy_kwh", "utilization") == pytest.approx([0.3, 0.4])


def test_memory_in_use_and_memory_there_is_come_from_one_sample(tmp_path: Path) -> None:
    """The better sample knows only what is in use: both come from the one that knows both."""
    books = books_of(tmp_path, [sample(0, HOUR, **SMI)], [sample(0, HOUR, **DCGM, mem_used_bytes=72.0)])
    assert values(books, "mem_utilization") == [0.5]
    alone = {k: v for k, v in SMI.items() if k != "mem_used_bytes"}
    (tmp_path / "b").mkdir()
    books = books_of(tmp_path / "b", [sample(0, HOUR, **alone)], [sample(0, HOUR, **DCGM, mem_used_bytes=72.0)])
    assert values(books, "mem_utilization") == [0.9]
