"""Jobs that a cheaper accelerator would have held, by hand: ten hours on an H100 at 2 dollars, an L4 at 0.4, an A100 at 1."""

from pathlib import Path
from typing import Any

import pytest
from tests.insight.levers.fleet import START, at, held
from tests.ledger.fleets import MINUTE, add, batch

from loadfactor.books.books import Books
from loadfactor.catalog.accelerators import accelerator
from loadfactor.insight.levers.lever import PriceSaving
from loadfactor.insight.levers.offers import PriceOffers
from loadfactor.insight.savings import find_savings

HOURS = 10
PRICES = {"H100": 2.0, "L4": 0.4, "A100": 1.0, "MI300X": 0.1}
H100, L4, A100 = (accelerator(name) for name in ("h100-sxm", "l4", "a100-sxm"))


def make_books(
    folder: Path, sm: float, memory_gb: float, gpus: tuple[str, ...] = ("a",), purpose: str = "training", **more: float
) -> Books:
    """A job that holds GPUs all the time, at an activity and with a memory in use."""
    samples = [
        {
            "device_id": gpu, "from_utc": START + m * MINUTE, "to_utc": START + (m + 5) * MINUTE, "sm_active_share": sm,
            "engine_active_share": sm, "mem_used_bytes": memory_gb * 1e9, "mem_total_bytes": H100.driver_memory_bytes, **more,
        }
        for gpu in gpus for m in range(0, HOURS * 60, 5)
    ]  # fmt: skip
    rows: dict[str, list[dict[str, Any]]] = {
        "devices": [
            {"device_id": gpu, "node": "n", "accelerator": "H100", "from_utc": START, "to_utc": at(HOURS)}
            for gpu in gpus
        ],
        "allocations": held("job", gpus, 0, HOURS, purpose=purpose),
        "samples": samples,
        "prices": [
            {"accelerator": name, "basis": "contracted", "price_per_gpu_hour": price} for name, price in PRICES.items()
        ],
    }
    folder.mkdir(exist_ok=True)
    books = Books(folder / "store")
    add(books, [batch(name, list(of)) for name, of in rows.items()], "fleet", folder)
    return books


def find(books: Books, offers: PriceOffers | None = None) -> dict[str, PriceSaving]:
    """Levers of price by name."""
    found = find_savings(books, offers=offers or PriceOffers(), most_diagnosed=0)
    return {lever.lever: lever for lever in found.price_levers}


def test_a_job_moves_to_the_accelerator_that_is_cheaper_for_certain(tmp_path: Path) -> None:
    """Kernels for half of the time take at most 3.4 times as long on an A100: ten hours become 22 and cost more; a tenth does not.

    What `share_gpus` saved of the idle time is left out: the hours that are left are denser with kernels.
    """
    assert "cheaper_gpu" not in find(make_books(tmp_path / "half", 0.5, 60))
    books = make_books(tmp_path / "tenth", 0.1, 60)
    saved_before = sum(lever.gpu_hours for lever in find_savings(books, most_diagnosed=0).levers)
    found = find(books)["cheaper_gpu"]
    hours = HOURS - saved_before
    assert found.gpu_hours == pytest.approx(hours)
    slower = H100.peak_flops("fp32") / A100.peak_flops("fp32")
    kernels = 0.1 * HOURS / hours
    assert slower == pytest.approx(67 / 19.5, rel=0.01)
    assert found.saved == pytest.approx(hours * (2 - 1 * (1 - kernels + kernels * slower)))
    assert found.saved_range is not None
    assert found.saved_range.high == pytest.approx(hours * 1.0)
    assert found.confidence_word == "medium"
    assert "a100-sxm in place of h100-sxm" in found.evidence[0]


def test_memory_links_and_waiting_people_keep_a_job_where_it_is(tmp_path: Path) -> None:
    """An L4 has 24 GB; GPUs that talk over NVLink, or of which nobody measures it, need it; who serves must not become slower."""
    small = find(make_books(tmp_path / "small", 0.06, 12, ("a", "b"), nvlink_bytes_per_s=0.0))
    assert "l4 in place of h100-sxm" in small["cheaper_gpu"].evidence[0]
    talking = make_books(tmp_path / "talking", 0.06, 12, ("a", "b"), nvlink_bytes_per_s=2e11)
    assert "cheaper_gpu" not in find(talking)
    assert "cheaper_gpu" not in find(make_books(tmp_path / "unknown", 0.06, 12, ("a", "b")))
    assert "cheaper_gpu" not in find(make_books(tmp_path / "full", 0.06, 78))
    assert "cheaper_gpu" not in find(make_books(tmp_path / "serving", 0.06, 60, purpose="serving"))


def test_what_moved_is_not_committed_again(tmp_path: Path) -> None:
    """A base of committed GPUs lies under what stays: the only job moves, so there is none."""
    books = make_books(tmp_path, 0.1, 60)
    assert {*find(books, PriceOffers(committed_per_gpu_hour=0.5))} == {"cheaper_gpu"}
