"""Is it told when nothing is known, and when GPUs work that nobody holds, and is a gap never taken for rest?"""

from pathlib import Path

from tests.insight.alerts.small_fleet import HOUR, MINUTE, START, make_books, make_samples, make_tables, minutes
from tests.ledger.fleets import Tables

from loadfactor.insight.alerts.alert import Alert
from loadfactor.insight.alerts.replay import replay
from loadfactor.insight.alerts.rules import RULES
from loadfactor.insight.alerts.rules.telemetry import TELEMETRY

IDS = ("g0", "g1")


def judge(folder: Path, tables: Tables) -> list[Alert]:
    return replay(make_books(folder, tables), TELEMETRY)


def told(alerts: list[Alert]) -> list[tuple[str, float | None, float | None, float | None]]:
    return [(a.rule, minutes(a.start_ms), minutes(a.fired_ms), minutes(a.end_ms)) for a in alerts]


def test_an_exporter_that_stops_is_told_and_nothing_else(tmp_path: Path) -> None:
    """Silent from minute 180 to 240: of four GPUs half of ten minutes is missing at 185, and less than half again at 246."""
    alerts = replay(make_books(tmp_path, make_tables(lambda m: None if 180 <= m < 240 else 0.8, gpus=4)), RULES)
    assert told(alerts) == [("telemetry_lost", 184, 189, 246)]
    assert dict(alerts[0].by) == {"node": "n0"}
    assert alerts[0].evidence[0] == "samples are missing of 4 of 4 GPUs that are held: g0, g1, g2, g3"


def test_a_single_gpu_that_falls_silent_is_told(tmp_path: Path) -> None:
    """One of two GPUs has no samples from minute 300 on: ten minutes of it are missing at 310."""
    tables = make_tables(lambda _: 0.8)
    tables["samples"] = [
        *make_samples(lambda _: 0.8, range(600), ["g0"]),
        *make_samples(lambda _: 0.8, range(300), ["g1"]),
    ]
    (alert,) = judge(tmp_path, tables)
    assert (minutes(alert.start_ms), minutes(alert.fired_ms), alert.value) == (309, 314, 1)
    assert alert.evidence[0] == "samples are missing of 1 of 2 GPUs that are held: g1"


def test_a_gap_of_one_gpu_is_no_loss(tmp_path: Path) -> None:
    """Nine minutes are missing of one of four GPUs, now and then."""
    tables = make_tables(lambda _: 0.8, gpus=4)
    tables["samples"] = [
        *make_samples(lambda _: 0.8, range(600), ["g0", "g1", "g2"]),
        *make_samples(lambda m: None if m % 40 < 9 else 0.8, range(600), ["g3"]),
    ]
    assert judge(tmp_path, tables) == []


def test_four_minutes_without_samples_are_no_loss(tmp_path: Path) -> None:
    """A restart of an exporter, now and then."""
    assert judge(tmp_path, make_tables(lambda m: None if m % 40 < 4 else 0.8, gpus=4)) == []


def test_samples_that_only_begin_were_not_lost(tmp_path: Path) -> None:
    """An exporter is installed in minute 100, while a job has held the GPUs since minute 0."""
    assert judge(tmp_path, make_tables(lambda m: 0.8 if m >= 100 else None)) == []


def test_a_node_without_any_telemetry_has_none_to_lose(tmp_path: Path) -> None:
    """Allocations alone are books, too."""
    assert judge(tmp_path, make_tables(lambda _: None)) == []


def test_gpus_that_nobody_holds_need_no_samples(tmp_path: Path) -> None:
    """The job ends at minute 120 and with it the samples."""
    tables = make_tables(lambda m: 0.8 if m < 120 else None)
    for row in tables["allocations"]:
        row["to_utc"] = START + 120 * MINUTE
    assert judge(tmp_path, tables) == []


def test_work_without_a_holder_is_told(tmp_path: Path) -> None:
    """The job gives back its GPUs at minute 200, and one of them works until minute 400."""
    tables = make_tables(lambda _: 0.8)
    tables["samples"] = [
        *make_samples(lambda m: 0.8 if m < 400 else 0.0, range(600), ["g0"]),
        *make_samples(lambda m: 0.8 if m < 200 else 0.0, range(600), ["g1"]),
    ]
    for row in tables["allocations"]:
        row["to_utc"] = START + 200 * MINUTE
    (alert,) = judge(tmp_path, tables)
    # five of ten minutes at 205, one of ten at 409
    assert told([alert]) == [("gpus_work_unheld", 204, 214, 409)]
    assert alert.evidence == ("1 GPUs at work that nobody holds, in 100 % of the last 10 min: g0",)


def test_without_allocations_nobody_can_say_who_holds_what(tmp_path: Path) -> None:
    """Where no allocation source speaks of GPUs, their work has an unknown holder, and is no alert."""
    tables = make_tables(lambda _: 0.8)
    tables["allocations"] = []
    assert judge(tmp_path / "a", tables) == []
    tables["allocations"] = [{"job_id": "k", "node": "n9", "gpus": 2, "from_utc": START, "to_utc": START + HOUR}]
    assert judge(tmp_path / "b", tables) == []
