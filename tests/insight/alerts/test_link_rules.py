"""Do rules of links and memory fire for jobs whose GPUs wait, and whose memory runs full, and for nothing that only looks so?

Each scene is a job on a node of its own, for five hours.
"""

from collections.abc import Callable
from typing import Any

import pytest
from tests.insight.alerts.small_fleet import MINUTE, START, judge_together, make_tables, minutes
from tests.ledger.fleets import Row, Tables

from loadfactor.insight.alerts.alert import Alert
from loadfactor.insight.alerts.rules.links import LINKS, MEMORY

PCIE_PEAK, NVLINK_PEAK, LIMIT_W = 6.3015e10, 9e11, 700.0
GB = 1e9
Signals = Callable[[int, int], dict[str, Any]]
"""Number of the GPU and minute → signals."""
FULL_PCIE = {"sm_active_share": 0.3, "pcie_rx_bytes_per_s": 0.9 * PCIE_PEAK}
QUIET_PCIE = {"pcie_rx_bytes_per_s": 0.1 * PCIE_PEAK}
SILENT = {"sm_active_share": None, "pcie_rx_bytes_per_s": None}
SMALL_KERNELS = {"busy_share": 1.0, "tensor_active_share": 0.02, "power_w": 0.4 * LIMIT_W}
STRAGGLERS = {"slow": (0.3, 0.8), "waited for": (0.85, 0.35)}
"""SM activity of g2 and of the others."""
NO_STRAGGLERS = {"replicas": (0.3, 0.8, 0.5, 0.6), "unused": (0.0, 0.8, 0.8, 0.8), "a tenth": (0.7, 0.8, 0.8, 0.8)}
NO_PRESSURE: dict[str, Callable[[int], float]] = {
    "preallocated": lambda _: 0.95,
    "loaded": lambda minute: 0.1 if minute < 6 else 0.93,
    "up and down": lambda minute: 0.5 + 0.003 * (minute % 60),
    "one step": lambda minute: 0.3 if minute < 150 else 0.9,
}


def make_scene(signals: Signals, gpus: int = 4, events: list[Row] | None = None) -> Tables:
    """A job on some GPUs for five hours, at 80 % SM activity where the signals say nothing else."""
    tables = make_tables(lambda _: 0.8, hours=5, gpus=gpus)
    for row in tables["samples"]:
        row.update(signals(int(row["device_id"][1:]), (row["from_utc"] - START) // MINUTE))
    return {**tables, "device_events": events or []}


def between(signals: dict[str, Any], otherwise: dict[str, Any] | None = None) -> Signals:
    """These signals of every GPU in the second and third hour, and others else."""
    return lambda _gpu, minute: signals if 60 <= minute < 180 else (otherwise or {})


def make_straggler(slow: float, others: float) -> Tables:
    """GPU g2 at one level and the others at another in the second and third hour."""
    return make_scene(
        lambda gpu, minute: {"sm_active_share": (slow if gpu == 2 else others) if 60 <= minute < 180 else 0.8}
    )


def use_memory(share: Callable[[int], float], gpus: int = 1, events: list[Row] | None = None) -> Tables:
    """So much of 80 GB in use, by minute."""
    return make_scene(
        lambda _gpu, minute: {"mem_used_bytes": share(minute) * 80 * GB, "mem_total_bytes": 80 * GB}, gpus, events
    )


@pytest.fixture(scope="module")
def fired(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Alert]]:
    """The alerts of each scene."""
    event = {"device_id": "g1", "at_utc": START + 100 * MINUTE, "kind": "out_of_memory", "detail": "CUDA out of memory"}
    scenes = {
        "full pcie": make_scene(between(FULL_PCIE, QUIET_PCIE)),
        "a silent gpu": make_scene(lambda gpu, minute: SILENT if gpu == 1 and 60 <= minute < 120 else FULL_PCIE),
        "streaming": make_scene(between({**FULL_PCIE, "sm_active_share": 0.8})),
        "no pcie": make_scene(between({"sm_active_share": 0.3})),
        "busy nvlink": make_scene(between({"sm_active_share": 0.25, "nvlink_bytes_per_s": 0.8 * NVLINK_PEAK})),
        "kernels wait": make_scene(between({"sm_active_share": 0.25, **SMALL_KERNELS})),
        "one gpu": make_scene(between({"sm_active_share": 0.25, **SMALL_KERNELS}), gpus=1),
        "overlap": make_scene(between({"sm_active_share": 0.8, "nvlink_bytes_per_s": 0.8 * NVLINK_PEAK})),
        "blind": make_scene(between({"sm_active_share": 0.25, "busy_share": 1.0})),
        **{name: make_straggler(*levels) for name, levels in STRAGGLERS.items()},
        **{name: make_scene(lambda g, _, of=of: {"sm_active_share": of[g]}) for name, of in NO_STRAGGLERS.items()},  # type: ignore[misc]
        "growing": use_memory(lambda minute: min(0.4 + 0.002 * minute, 0.97)),
        **{name: use_memory(share) for name, share in NO_PRESSURE.items()},
        "out of memory": use_memory(lambda _: 0.7, gpus=2, events=[event]),
    }
    return judge_together(tmp_path_factory.mktemp("links"), scenes, (*LINKS, *MEMORY))


def test_full_pcie_fires_while_gpus_wait(fired: dict[str, list[Alert]]) -> None:
    """90 % of the peak while SM activity is 30 %: from the eighth of ten minutes, until it has fallen to 60 %."""
    (alert,) = fired["full pcie"]
    assert (alert.rule, alert.by, alert.cause) == ("pcie_saturated", {"job": "j"}, "I/O")
    # (10 − n) × 0.1 + n × 0.9 > 7 from n = 8 on; 0.9 − 0.08 × n ≤ 0.6 from n = 4 on
    assert (minutes(alert.start_ms), minutes(alert.fired_ms), minutes(alert.end_ms)) == (67, 77, 184)


def test_a_gpu_without_samples_hides_nothing_of_the_others(fired: dict[str, list[Alert]]) -> None:
    """One GPU of four is silent for an hour in the middle: what is known of the others goes on firing, once."""
    (alert,) = fired["a silent gpu"]
    assert (alert.rule, alert.state, alert.value) == ("pcie_saturated", "firing", pytest.approx(0.9))


@pytest.mark.parametrize("scene", ["streaming", "no pcie", "one gpu", "overlap", "blind", *NO_STRAGGLERS, *NO_PRESSURE])
def test_what_only_looks_so_is_no_alert(fired: dict[str, list[Alert]], scene: str) -> None:
    """Full PCIe beside busy GPUs is streaming, and of idle GPUs whose link nobody measures nothing is known.

    Small kernels on one GPU look like waiting ones, and wait for nobody; tensor parallelism moves as much while it computes.
    Replicas with loads of their own, a GPU that nobody uses and a tenth of difference are no stragglers. A framework takes nearly
    all memory at once, or once it is loaded; goes up and down under the limit, or a step is larger.
    """
    assert fired[scene] == []


@pytest.mark.parametrize("scene", ["busy nvlink", "kernels wait"])
def test_gpus_that_wait_for_each_other_fire(fired: dict[str, list[Alert]], scene: str) -> None:
    """SM activity is low while NVLink is busy, or while kernels are always resident, draw little and do no matrix work."""
    (alert,) = fired[scene]
    assert (alert.rule, alert.by, alert.cause) == ("collective_bound", {"job": "j"}, "communication")


@pytest.mark.parametrize("scene", STRAGGLERS)
def test_a_straggler_is_named(fired: dict[str, list[Alert]], scene: str) -> None:
    """GPU g2 does less than the other three, or works while they wait for it."""
    (alert,) = fired[scene]
    assert (alert.rule, alert.by) == ("job_straggler", {"job": "j", "device": "g2"})
    assert 180 < (minutes(alert.end_ms) or 0) < 190


def test_memory_that_grows_towards_the_limit_fires(fired: dict[str, list[Alert]]) -> None:
    """From 40 % by a fifth of a percent a minute: over 85 % on the mean of five minutes in minute 227, until the job ends."""
    (alert,) = fired["growing"]
    assert (alert.rule, alert.by) == ("memory_pressure", {"job": "j", "device": "g0"})
    assert minutes(alert.fired_ms) == pytest.approx(228, abs=1)
    assert alert.state == "firing"


def test_out_of_memory_fires_for_an_hour(fired: dict[str, list[Alert]]) -> None:
    """However flat the line was: a GPU that was out of memory is pressure."""
    (alert,) = fired["out of memory"]
    assert (alert.rule, alert.by) == ("memory_pressure", {"job": "j", "device": "g1"})
    assert (minutes(alert.fired_ms), minutes(alert.end_ms)) == (100, 160)
