"""Does an alert fire when nothing is known, and when GPUs work that nobody holds, and is a gap never taken for rest?

Each scene is a node of its own, most with two GPUs that one job holds for ten hours.
"""

from pathlib import Path

import pytest
from tests.insight.alerts.small_fleet import (
    HOUR,
    MINUTE,
    START,
    Level,
    judge_together,
    list_times,
    make_books,
    make_samples,
    make_tables,
    minutes,
)
from tests.ledger.fleets import Tables

from loadfactor.insight.alerts.alert import Alert
from loadfactor.insight.alerts.judge import replay
from loadfactor.insight.alerts.rules import RULES
from loadfactor.insight.alerts.rules.telemetry import TELEMETRY


def sample_apart(levels: dict[str, Level], ends: int = 600) -> Tables:
    """GPUs with a level each, which one job holds until a minute."""
    tables = make_tables(lambda _: None, gpus=len(levels))
    tables["samples"] = [row for gpu, level in levels.items() for row in make_samples(level, range(600), [gpu])]
    for row in tables["allocations"]:
        row["to_utc"] = START + ends * MINUTE
    return tables


def work(_minute: int) -> float:
    """At work all the time."""
    return 0.8


def hold_another_node() -> Tables:
    """Allocations speak of another node alone."""
    tables = make_tables(work)
    tables["allocations"] = [{"job_id": "k", "node": "n9", "gpus": 2, "from_utc": START, "to_utc": START + HOUR}]
    return tables


@pytest.fixture(scope="module")
def fired(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Alert]]:
    """The alerts of each scene."""
    scenes = {
        "one gpu silent": sample_apart({"g0": work, "g1": lambda m: 0.8 if m < 300 else None}),
        "gaps of one gpu": sample_apart(
            {**dict.fromkeys(("g0", "g1", "g2"), work), "g3": lambda m: None if m % 40 < 9 else 0.8}
        ),
        "restarts": make_tables(lambda m: None if m % 40 < 4 else 0.8, gpus=4),
        "begins": make_tables(lambda m: 0.8 if m >= 100 else None),
        "never": make_tables(lambda _: None),
        "released": sample_apart(dict.fromkeys(("g0", "g1"), lambda m: 0.8 if m < 120 else None), ends=120),
        "unheld work": sample_apart(
            {"g0": lambda m: 0.8 if m < 400 else 0.0, "g1": lambda m: 0.8 if m < 200 else 0.0}, ends=200
        ),
        "another node": hold_another_node(),
    }
    return judge_together(tmp_path_factory.mktemp("telemetry"), scenes, TELEMETRY)


def test_an_exporter_that_stops_fires_and_nothing_else(tmp_path: Path) -> None:
    """Silent from minute 180 to 240: of four GPUs half of ten minutes is missing at 185, and less than half again at 246."""
    alerts = replay(make_books(tmp_path, make_tables(lambda m: None if 180 <= m < 240 else 0.8, gpus=4)), RULES)
    assert list_times(alerts) == [("telemetry_lost", 184, 189, 246)]
    assert dict(alerts[0].by) == {"node": "n0"}
    assert alerts[0].evidence[0] == "samples are missing of 4 of 4 GPUs that are held: g0, g1, g2, g3"


def test_a_single_gpu_that_falls_silent_fires(fired: dict[str, list[Alert]]) -> None:
    """One of two GPUs has no samples from minute 300 on: ten minutes of it are missing at 310."""
    (alert,) = fired["one gpu silent"]
    assert (minutes(alert.start_ms), minutes(alert.fired_ms), alert.value) == (309, 314, 1)
    assert alert.evidence[0] == "samples are missing of 1 of 2 GPUs that are held: g1"


@pytest.mark.parametrize("scene", ["gaps of one gpu", "restarts", "begins", "never", "released", "another node"])
def test_what_only_looks_so_is_no_loss(fired: dict[str, list[Alert]], scene: str) -> None:
    """Nine minutes are missing of one of four GPUs, or four of all, now and then, as when an exporter restarts.

    An exporter is installed in minute 100, while a job has held the GPUs since minute 0; a node has none at all: allocations alone
    are books, too. GPUs that nobody holds need no samples. Where allocations speak of another node, work has an unknown holder.
    """
    assert fired[scene] == []


def test_work_without_a_holder_fires(fired: dict[str, list[Alert]]) -> None:
    """The job gives back its GPUs at minute 200, and one of them works until minute 400."""
    (alert,) = fired["unheld work"]
    # five of ten minutes at 205, one of ten at 409
    assert list_times([alert]) == [("gpus_work_unheld", 204, 214, 409)]
    assert alert.evidence == ("1 GPUs at work that nobody holds, in 100 % of the last 10 min: g0",)


def test_without_allocations_nobody_can_say_who_holds_what(tmp_path: Path) -> None:
    """Where no allocation source speaks of GPUs at all, their work has an unknown holder, and is no alert."""
    assert replay(make_books(tmp_path, {**make_tables(work), "allocations": []}), TELEMETRY) == []
