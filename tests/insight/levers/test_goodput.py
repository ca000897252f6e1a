"""The lever on checkpoints, by hand: a run that loses much work, one that checkpoints too often, and what stays as it is."""

from pathlib import Path

import pytest
from tests.insight.levers.fleet import START, at, held, keep
from tests.ledger.fleets import MINUTE, Row

from loadfactor.catalog.accelerators import accelerator
from loadfactor.insight.savings import FleetSavings, find_savings
from loadfactor.planner.hardware.checkpoint import efficiency_share, plan_checkpoints
from loadfactor.settings.config import settings

TOML = """
[[network]]
match = { experiment = "ft-*" }
model = "llama-3.1-8b"
sequence_length = 4096
datatype = "bf16"
"""
PEAK = accelerator("h100-sxm").peak_flops("bf16")
DAY = 100.0
LEVER = "checkpoint_oftener"


@pytest.fixture(autouse=True)
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working folder with a loadfactor.toml that names the network, so that FLOPs are counted."""
    monkeypatch.chdir(tmp_path)
    Path("loadfactor.toml").write_text(TOML)
    settings.cache_clear()


def saves(length_min: float, every_h: float, hours: float) -> list[Row]:
    """Checkpoints of a job, one every so many hours."""
    starts = [round(every_h * n * 60) for n in range(1, int(hours / every_h))]
    return [
        {"job_id": "ft", "kind": "checkpoint", "from_utc": START + m * MINUTE, "to_utc": START + round((m + length_min) * MINUTE)}
        for m in starts
    ]  # fmt: skip


def made(hours: float, start: float, end: float, kept: bool = True) -> Row:
    """Work of so many hours at the peak."""
    flops = hours * 3600 * PEAK
    row = {
        "job_id": "ft",
        "unit": "model_flop",
        "amount": flops,
        "from_utc": at(start),
        "to_utc": at(end),
        "kept": kept,
    }
    return row if kept else row | {"cause": "restart"}


def find(folder: Path, sections: list[Row], progress: list[Row], hours: float = DAY) -> FleetSavings:
    """One GPU at 2 dollars, held by one job, active 80 %."""
    books = keep(
        folder,
        {"a": "n"},
        hours,
        held("ft", ["a"], 0, hours, purpose="training", experiment_id="ft-1"),
        {"a": [(0, hours, 0.8)]},
        job_sections=sections,
        progress=progress,
    )
    return find_savings(books, most_diagnosed=0)


def test_the_best_interval_is_worth_the_time_whose_work_was_lost(tmp_path: Path) -> None:
    """100 h, a quarter of the work lost in two failures, one of 50 h each; checkpoints of 60 s every ten hours.

    Daly's interval is √(2 · 60 · 180,000)·(1 + …) − 60, 77 min, and loses 2.6 %. The other 22.4 of 100 GPU-hours, with what was
    underused and not math in them, are saved: $44.8.
    """
    work = [made(15, 0, 40), made(5, 40, 50, False), made(15, 50.5, 90), made(5, 90, 99, False), made(1e-9, 99.5, 100)]
    found = find(tmp_path, saves(1, 10, DAY), work)
    (lever,) = (one for one in found.levers if one.lever == LEVER)
    best = plan_checkpoints(60, 50 * 3600, 0)
    assert best.interval_s == pytest.approx(4607, rel=0.002)
    assert lever.gpu_hours == pytest.approx(100 * (0.25 - (1 - best.efficiency_share)), rel=1e-6)
    assert lever.saved == pytest.approx(44.8, abs=0.1)
    (sentence,) = lever.evidence
    assert "ft lost work 2 times in 100 h, 25 % of it, 0.48 times a GPU-day" in sentence
    assert "every 10 h" in sentence
    assert "works again 30 min after a loss" in sentence
    assert "77 min" in lever.action


def test_checkpoints_that_come_too_often_cost_the_time_they_stop(tmp_path: Path) -> None:
    """Five minutes of 19 hours without a failure: at the rate of Llama 3 four days apart is best, which saves 8.2 % of 20 h.

    That is more than the 19 stops that were idle, so these are saved.
    """
    stops = saves(5, 1, 20)
    books = keep(
        tmp_path,
        {"a": "n"},
        20,
        held("ft", ["a"], 0, 20, purpose="training", experiment_id="ft-1"),
        {
            "a": [(h + (5 / 60 if h else 0), h + 1, 0.9) for h in range(20)]
            + [(h, h + 5 / 60, 0.0) for h in range(1, 20)]
        },
        job_sections=stops,
    )
    found = find_savings(books, most_diagnosed=0)
    (lever,) = (one for one in found.levers if one.lever == LEVER)
    mtbf_s = 50_677 * 3600
    gain = plan_checkpoints(300, mtbf_s, 0).efficiency_share - efficiency_share(3300, 300, mtbf_s, 0)
    assert gain == pytest.approx(5 / 60, abs=0.003)
    assert 20 * gain > 19 * 5 / 60
    assert lever.gpu_hours == pytest.approx(19 * 5 / 60, rel=1e-6)
    assert lever.saved == pytest.approx(2 * 19 * 5 / 60, rel=1e-6)
    assert lever.confidence_word == "low"


def test_a_run_at_its_best_interval_has_nothing_to_gain(tmp_path: Path) -> None:
    """One part in a hundred lost in two failures, less than any interval would lose: no lever."""
    work = [made(20, 0, 50), made(0.2, 50, 51, False), made(20, 51, 90), made(0.2, 90, 91, False), made(1e-9, 91, 100)]
    assert LEVER not in {lever.lever for lever in find(tmp_path, saves(1, 1.3, DAY), work).levers}
