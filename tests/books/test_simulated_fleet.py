"""Do the books of a simulated fleet say what is known to be true of it?"""

import pytest
from tests.simulator.truth import TrueTotals, Truth

from loadfactor.books.books import Books

SAID = {
    **{
        f"{name}_gpu_hours": f"{name}_gpu_hours"
        for name in ("paid", "allocated", "unallocated", "down", "observed", "unobserved", "idle", "busy", "effective")
    },
    "cost": "paid_cost",
    **{f"{name}_cost": f"{name}_cost" for name in ("unallocated", "down", "idle", "unobserved")},
}
"""Metric → what the truth calls it."""


def _values(books: Books, *by: str) -> dict[tuple[str | None, ...], dict[str, float]]:
    out: dict[tuple[str | None, ...], dict[str, float]] = {}
    for reading in books.show([*SAID], by=by):
        assert not isinstance(reading.value, list)
        out.setdefault(tuple(reading.by.values()), {})[reading.metric] = reading.value or 0.0
    return out


def _matches(found: dict[str, float], totals: TrueTotals) -> None:
    for metric, name in SAID.items():
        assert found[metric] == pytest.approx(getattr(totals, name), rel=1e-9, abs=1e-9), metric


def test_the_whole_fleet_is_booked_as_it_was(simulated_books: Books, simulated_truth: Truth) -> None:
    """Every hour and dollar of the fleet, shared GPUs, slices, outages, gaps and a price change included."""
    _matches(_values(simulated_books)[()], simulated_truth.total())


@pytest.mark.parametrize("dimension", ["team", "job", "device", "node", "accelerator", "purpose", "experiment"])
def test_every_part_is_booked_as_it_was(simulated_books: Books, simulated_truth: Truth, dimension: str) -> None:
    """Split by any dimension, each part is what the construction of the fleet says."""
    found, expected = _values(simulated_books, dimension), simulated_truth.by(dimension)
    assert {key for (key,) in found} == set(expected)
    for key, totals in expected.items():
        _matches(found[(key if key is None else str(key),)], totals)


def test_waits_are_those_that_were(simulated_books: Books, simulated_truth: Truth) -> None:
    """Quantiles of the waits that ended, and those that did not counted."""
    waits = simulated_truth.waits()
    found = {
        r.metric: r.value
        for r in simulated_books.show(["queue_wait_s_p50", "queue_wait_s_p90", "queue_wait_s_mean", "queue_waiting"])
    }
    assert found["queue_wait_s_p50"] == pytest.approx(waits.p50_s)
    assert found["queue_wait_s_p90"] == pytest.approx(waits.p90_s)
    assert found["queue_wait_s_mean"] == pytest.approx(waits.mean_s)
    assert found["queue_waiting"] == waits.waiting + waits.cancelled


@pytest.mark.parametrize(
    ("paid", "unit"), [("paid_gpu_hours", "gpu_hours"), ("cost", "cost")], ids=["hours", "dollars"]
)
def test_what_is_paid_less_every_loss_is_effective(simulated_books: Books, paid: str, unit: str) -> None:
    """Paid less unallocated, down, unobserved, idle and underused leaves exactly what was effective, in hours and dollars."""
    losses = [f"{loss}_{unit}" for loss in ("unallocated", "down", "unobserved", "idle", "underused")]
    value = {r.metric: r.value for r in simulated_books.show([paid, *losses, f"effective_{unit}"])}
    assert value[paid] - sum(value[loss] for loss in losses) == pytest.approx(value[f"effective_{unit}"], rel=1e-12)
    assert all(value[loss] > 0 for loss in losses)
