"""Do rules of links and memory tell of jobs whose GPUs wait, and whose memory runs full, and of nothing that only looks so?"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.insight.alerts.small_fleet import MINUTE, START, make_books, make_tables, minutes
from tests.ledger.fleets import Row

from loadfactor.insight.alerts.alert import Alert
from loadfactor.insight.alerts.replay import replay
from loadfactor.insight.alerts.rules.links import LINKS
from loadfactor.insight.alerts.rules.memory import MEMORY

PCIE_PEAK, NVLINK_PEAK, LIMIT_W = 6.3015e10, 9e11, 700.0
GB = 1e9
Signals = Callable[[int, int], dict[str, Any]]
"""Number of the GPU and minute → signals."""


def judge(folder: Path, signals: Signals, gpus: int = 4, events: list[Row] | None = None) -> list[Alert]:
    """What fires of a job on some GPUs for five hours."""
    folder.mkdir(exist_ok=True)
    tables = make_tables(lambda _: 0.8, hours=5, gpus=gpus)
    for row in tables["samples"]:
        row.update(signals(int(row["device_id"][1:]), (row["from_utc"] - START) // MINUTE))
    tables["device_events"] = events or []
    return replay(make_books(folder, tables), (*LINKS, *MEMORY))


def between(signals: dict[str, Any], otherwise: dict[str, Any] | None = None) -> Signals:
    """These signals of every GPU in the second and third hour, and others else."""
    return lambda _gpu, minute: signals if 60 <= minute < 180 else (otherwise or {})


def test_full_pcie_is_told_while_gpus_wait(tmp_path: Path) -> None:
    """90 % of the peak while SM activity is 30 %: from the eighth of ten minutes, until it has fallen to 60 %."""
    quiet = {"pcie_rx_bytes_per_s": 0.1 * PCIE_PEAK}
    (alert,) = judge(tmp_path, between({"sm_active_share": 0.3, "pcie_rx_bytes_per_s": 0.9 * PCIE_PEAK}, quiet))
    assert (alert.rule, alert.by, alert.cause) == ("pcie_saturated", {"job": "j"}, "I/O")
    # (10 − n) × 0.1 + n × 0.9 > 7 from n = 8 on; 0.9 − 0.08 × n ≤ 0.6 from n = 4 on
    assert (minutes(alert.start_ms), minutes(alert.fired_ms), minutes(alert.end_ms)) == (67, 77, 184)


def test_a_gpu_without_samples_hides_nothing_of_the_others(tmp_path: Path) -> None:
    """One GPU of four is silent for an hour in the middle: what is known of the others goes on being told, once."""
    signals = {"sm_active_share": 0.3, "pcie_rx_bytes_per_s": 0.9 * PCIE_PEAK}
    silent = {"sm_active_share": None, "pcie_rx_bytes_per_s": None}
    (alert,) = judge(tmp_path, lambda gpu, minute: silent if gpu == 1 and 60 <= minute < 120 else signals)
    assert (alert.rule, alert.state, alert.value) == ("pcie_saturated", "firing", pytest.approx(0.9))


def test_full_pcie_beside_busy_gpus_is_streaming(tmp_path: Path) -> None:
    """The same traffic while the GPUs work tells nothing, and neither do idle GPUs of which nobody measures the link."""
    assert judge(tmp_path, between({"sm_active_share": 0.8, "pcie_rx_bytes_per_s": 0.9 * PCIE_PEAK})) == []
    assert judge(tmp_path / "blind", between({"sm_active_share": 0.3})) == []


@pytest.mark.parametrize(
    "signals",
    [
        {"nvlink_bytes_per_s": 0.8 * NVLINK_PEAK},
        {"busy_share": 1.0, "tensor_active_share": 0.02, "power_w": 0.4 * LIMIT_W},
    ],
)
def test_gpus_that_wait_for_each_other_are_told(tmp_path: Path, signals: dict[str, Any]) -> None:
    """SM activity is low while NVLink is busy, or while kernels are always resident, draw little and do no matrix work."""
    (alert,) = judge(tmp_path, between({"sm_active_share": 0.25, **signals}))
    assert (alert.rule, alert.by, alert.cause) == ("collective_bound", {"job": "j"}, "communication")


def test_a_single_gpu_waits_for_nobody(tmp_path: Path) -> None:
    """Small kernels on one GPU look like waiting ones, and are not."""
    small = {"sm_active_share": 0.25, "busy_share": 1.0, "tensor_active_share": 0.02, "power_w": 0.4 * LIMIT_W}
    assert judge(tmp_path, between(small), gpus=1) == []


def test_busy_links_beside_busy_gpus_overlap(tmp_path: Path) -> None:
    """Tensor parallelism moves as much while it computes; and without power and links nothing is told of low activity."""
    assert judge(tmp_path, between({"sm_active_share": 0.8, "nvlink_bytes_per_s": 0.8 * NVLINK_PEAK})) == []
    assert judge(tmp_path / "blind", between({"sm_active_share": 0.25, "busy_share": 1.0})) == []


@pytest.mark.parametrize(("slow", "others"), [(0.3, 0.8), (0.85, 0.35)])
def test_a_straggler_is_named(tmp_path: Path, slow: float, others: float) -> None:
    """GPU g2 does less than the other three, or works while they wait for it."""
    (alert,) = judge(
        tmp_path, lambda gpu, minute: {"sm_active_share": (slow if gpu == 2 else others) if 60 <= minute < 180 else 0.8}
    )
    assert (alert.rule, alert.by) == ("job_straggler", {"job": "j", "device": "g2"})
    assert 180 < (minutes(alert.end_ms) or 0) < 190


@pytest.mark.parametrize("levels", [(0.3, 0.8, 0.5, 0.6), (0.0, 0.8, 0.8, 0.8), (0.7, 0.8, 0.8, 0.8)])
def test_uneven_jobs_unused_gpus_and_small_differences_are_no_stragglers(
    tmp_path: Path, levels: tuple[float, ...]
) -> None:
    """Replicas with loads of their own, a GPU that nobody uses, and a tenth of difference."""
    assert judge(tmp_path, lambda gpu, _minute: {"sm_active_share": levels[gpu]}) == []


def memory(share: float) -> dict[str, Any]:
    return {"mem_used_bytes": share * 80 * GB, "mem_total_bytes": 80 * GB}


def test_memory_that_grows_towards_the_limit_is_told(tmp_path: Path) -> None:
    """From 40 % by a fifth of a percent a minute: over 85 % on the mean of five minutes in minute 227, until the job ends."""
    alerts = judge(tmp_path, lambda _gpu, minute: memory(min(0.4 + 0.002 * minute, 0.97)), gpus=1)
    assert [(a.rule, a.by) for a in alerts] == [("memory_pressure", {"job": "j", "device": "g0"})]
    assert minutes(alerts[0].fired_ms) == pytest.approx(228, abs=1)
    assert alerts[0].state == "firing"


@pytest.mark.parametrize(
    "used",
    [
        lambda _: 0.95,
        lambda minute: 0.1 if minute < 6 else 0.93,
        lambda minute: 0.5 + 0.003 * (minute % 60),
        lambda minute: 0.3 if minute < 150 else 0.9,
    ],
    ids=["preallocated", "loaded", "up and down", "one step"],
)
def test_memory_that_is_full_from_the_first_minutes_is_no_pressure(
    tmp_path: Path, used: Callable[[int], float]
) -> None:
    """A framework takes nearly all memory at once, or once it is loaded; goes up and down under the limit, or a step is larger."""
    assert judge(tmp_path, lambda _gpu, minute: memory(used(minute)), gpus=1) == []


def test_out_of_memory_is_told_for_an_hour(tmp_path: Path) -> None:
    """However flat the line was: a GPU that was out of memory is pressure."""
    event = {"device_id": "g1", "at_utc": START + 100 * MINUTE, "kind": "out_of_memory", "detail": "CUDA out of memory"}
    (alert,) = judge(tmp_path, lambda _gpu, _minute: memory(0.7), gpus=2, events=[event])
    assert (alert.rule, alert.by) == ("memory_pressure", {"job": "j", "device": "g1"})
    assert (minutes(alert.fired_ms), minutes(alert.end_ms)) == (100, 160)
