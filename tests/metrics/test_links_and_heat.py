"""Traffic of links beside their peaks, FP32 and occupancy, power and temperature: worked on paper."""

from pathlib import Path
from typing import Any

import pytest
from tests.ledger.fleets import HOUR, STARTS, add, batch

from loadfactor.books.books import Books

START = STARTS[-1]


def books_of(folder: Path, accelerators: dict[str, str | None], samples: list[dict[str, Any]]) -> Books:
    """GPUs of these models, each held for two hours."""
    two = {"from_utc": START, "to_utc": START + 2 * HOUR}
    given = {
        "devices": [{"device_id": d, "accelerator": a, **two} for d, a in accelerators.items()],
        "allocations": [{"job_id": f"job-{d}", "device_id": d, **two} for d in accelerators],
        "samples": samples,
    }
    books = Books(folder / "store")
    add(books, [batch(name, rows) for name, rows in given.items()], "all", folder)
    return books


def sample(device: str, hour: int, **values: float) -> dict[str, Any]:
    return {"device_id": device, "from_utc": START + hour * HOUR, "to_utc": START + (hour + 1) * HOUR, **values}


def known(books: Books, *metrics: str, **where: str) -> list[tuple[Any, float | None]]:
    return [(r.value, r.coverage) for r in books.show(metrics, where=where)]


def test_links_are_measured_against_their_peaks(tmp_path: Path) -> None:
    """An H100: PCIe 5.0 x16 carries 63.015 GB/s in a direction, the busier one counts; NVLink 900 GB/s in both."""
    rows = [
        sample("g0", 0, pcie_rx_bytes_per_s=63.015e9, pcie_tx_bytes_per_s=1e9, nvlink_bytes_per_s=90e9),
        sample("g0", 1, pcie_tx_bytes_per_s=31.5075e9, nvlink_bytes_per_s=270e9),
    ]
    books = books_of(tmp_path, {"g0": "H100-SXM"}, rows)
    pcie, nvlink = known(books, "pcie_saturation", "nvlink_saturation")
    assert pcie == (pytest.approx(0.75), 1.0)
    assert nvlink == (pytest.approx(0.2), 1.0)


def test_a_link_without_a_known_peak_is_not_measured(tmp_path: Path) -> None:
    """Of two GPUs alike in traffic the catalog knows one: it alone counts, and coverage is one half; an L4 has no NVLink."""
    rows = [sample(d, h, pcie_rx_bytes_per_s=12.603e9, nvlink_bytes_per_s=1e9) for d in ("g0", "g1") for h in (0, 1)]
    books = books_of(tmp_path, {"g0": "H100-SXM", "g1": "abacus"}, rows)
    assert known(books, "pcie_saturation") == [(pytest.approx(0.2), 0.5)]
    assert known(books, "pcie_saturation", job="job-g1") == [(None, 0.0)]
    (tmp_path / "l4").mkdir()
    books = books_of(tmp_path / "l4", {"g0": "L4"}, rows[:2])
    assert known(books, "pcie_saturation", "nvlink_saturation") == [(pytest.approx(12.603 / 31.508), 1.0), (None, 0.0)]


def test_power_heat_fp32_and_occupancy_are_means_over_time(tmp_path: Path) -> None:
    """One of two hours measured: the means speak of that hour, coverage is one half, the highest temperature is a peak."""
    values = {"power_w": 400.0, "temperature_c": 60.0, "fp32_active_share": 0.25, "sm_occupancy_share": 0.5}
    half = START + HOUR // 2
    rows = [
        sample("g0", 0, **values) | {"to_utc": half},
        sample("g0", 0, **values) | {"from_utc": half, "power_w": 200.0, "temperature_c": 81.0},
    ]
    books = books_of(tmp_path, {"g0": "H100-SXM"}, rows)
    names = ("power_w", "temperature_c", "fp32_activity", "sm_occupancy", "energy_kwh")
    assert known(books, *names) == [(300.0, 0.5), (70.5, 0.5), (0.25, 0.5), (0.5, 0.5), (0.3, 0.5)]
    assert known(books, "temperature_c_max") == [(81.0, None)]
