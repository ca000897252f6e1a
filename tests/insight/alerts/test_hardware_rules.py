"""Do rules of hardware tell of GPUs that are slowed down, hot or report errors and of nodes that are down, and of nothing else?"""

from pathlib import Path

import pytest
from tests.insight.alerts.small_fleet import HOUR, MINUTE, START, make_books, make_tables, minutes
from tests.ledger.fleets import Row

from loadfactor.insight.alerts.alert import Alert
from loadfactor.insight.alerts.replay import replay
from loadfactor.insight.alerts.rules.hardware import HARDWARE

H100_LIMIT_W = 700


def judge(
    folder: Path, events: list[Row] | None = None, outages: list[Row] | None = None, **signals: object
) -> list[Alert]:
    """What fires of GPUs g0 and g1 that work at 80 %; g1 has these signals from minute 120 to 240, where they are given."""
    folder.mkdir(exist_ok=True)
    tables = make_tables(lambda _: 0.8, hours=6)
    for row in tables["samples"]:
        if row["device_id"] == "g1" and START + 120 * MINUTE <= row["from_utc"] < START + 240 * MINUTE:
            row.update(signals)
        else:
            row.update({name: value for name, value in HEALTHY.items() if name in signals})
    tables["device_events"], tables["outages"] = events or [], outages or []
    return replay(make_books(folder, tables), HARDWARE)


HEALTHY = {"throttle_mask": 0, "power_w": 500.0, "temperature_c": 66.0}


def told(alerts: list[Alert]) -> list[tuple[str, dict[str, str], float | None, float | None]]:
    return [(a.rule, dict(a.by), minutes(a.start_ms), minutes(a.end_ms)) for a in alerts]


def test_a_gpu_that_its_hardware_slows_down_is_told(tmp_path: Path) -> None:
    """Slowed down at half of its power from minute 120: more than half of ten minutes from the sixth on, a quarter at the end."""
    (alert,) = judge(tmp_path, throttle_mask=0x8, power_w=350.0, temperature_c=66.0)
    assert told([alert]) == [("gpu_throttled", {"device": "g1"}, 125, 248)]
    assert alert.holder == {"node": "n0", "job": "j", "user": "ann", "team": "red"}
    assert alert.evidence == (
        "slowed down in 60 % of the last 10 min",
        "at 66 °C",
        "while it draws 50 % of the board's limit of power",
    ) or alert.evidence[0].startswith("slowed down in")


def test_heavy_work_at_the_limit_of_power_is_no_fault(tmp_path: Path) -> None:
    """A GPU that its power limit holds back draws all of it: it works as hard as it can."""
    assert judge(tmp_path, throttle_mask=0x4, power_w=0.98 * H100_LIMIT_W, temperature_c=72.0) == []


def test_without_power_nobody_can_tell_why_a_gpu_is_slowed_down(tmp_path: Path) -> None:
    """Throttled, and neither its power nor its temperature was measured: nothing is told; a hot one is."""
    assert judge(tmp_path, throttle_mask=0x8) == []
    hot = judge(tmp_path / "hot", throttle_mask=0x20, temperature_c=90.0)
    assert {alert.rule for alert in hot} == {"gpu_throttled", "gpu_hot"}


def test_a_hot_gpu_is_told_and_a_warm_one_is_not(tmp_path: Path) -> None:
    """At 91 °C from minute 120 for two hours; at 80 °C nothing."""
    (alert,) = judge(tmp_path, temperature_c=91.0)
    assert (alert.rule, alert.by) == ("gpu_hot", {"device": "g1"})
    assert minutes(alert.start_ms) == pytest.approx(123, abs=2)
    assert judge(tmp_path / "warm", temperature_c=80.0) == []


def test_an_xid_is_told_for_an_hour(tmp_path: Path) -> None:
    """XID 79 in minute 130 fires at its end, whatever was said besides, and stays for an hour."""
    at = START + 130 * MINUTE
    events = [{"device_id": "g1", "at_utc": at, "kind": "xid", "detail": detail} for detail in ("79", "45")]
    (alert,) = judge(tmp_path, events)
    assert told([alert]) == [("gpu_xid", {"device": "g1"}, 129, 190)]
    assert alert.evidence == ("XID 79: the GPU has fallen off the bus",)


def test_a_program_that_ends_is_no_error_of_the_gpu(tmp_path: Path) -> None:
    """XIDs 43 and 45, which the driver writes when a program dies, and single corrected errors of memory tell nothing."""
    at = START + 130 * MINUTE
    events: list[Row] = [{"device_id": "g1", "at_utc": at, "kind": "xid", "detail": code} for code in ("43", "45")]
    events += [{"device_id": "g0", "at_utc": at, "kind": "ecc", "detail": "sbe_volatile", "count": 3}]
    assert judge(tmp_path, events) == []


@pytest.mark.parametrize(
    ("kind", "detail", "count"),
    [("ecc", "dbe_volatile", 1), ("row_remap", "failure", 1), ("ecc", "sbe_volatile", 5000)],
)
def test_errors_of_memory_are_told(tmp_path: Path, kind: str, detail: str, count: int) -> None:
    """An error that could not be corrected, a row that is replaced, or thousands that could be corrected."""
    at = START + 130 * MINUTE
    (alert,) = judge(tmp_path, [{"device_id": "g0", "at_utc": at, "kind": kind, "detail": detail, "count": count}])
    assert (alert.rule, alert.by) == ("gpu_ecc", {"device": "g0"})


@pytest.mark.parametrize(
    ("reason", "is_told"), [("not responding", True), (None, True), ("drained: firmware update", False)]
)
def test_a_node_that_is_down_is_told_and_one_that_is_drained_is_not(
    tmp_path: Path, reason: str | None, is_told: bool
) -> None:
    """Down for an hour from minute 120; a node that is taken out for maintenance, as its reason says, is planned."""
    outage = {"node": "n0", "from_utc": START + 2 * HOUR, "to_utc": START + 3 * HOUR, "reason": reason}
    assert told(judge(tmp_path, outages=[outage])) == ([("node_down", {"node": "n0"}, 120, 181)] if is_told else [])


@pytest.mark.parametrize(("detail", "is_told"), [("hw_slowdown", True), ("sw_power_cap", False)])
def test_what_the_driver_says_of_a_gpu_that_is_slowed_down_is_told(tmp_path: Path, detail: str, is_told: bool) -> None:
    """An event of throttling is enough, unless it is the limit of power."""
    events: list[Row] = [
        {"device_id": "g0", "at_utc": START + minute * MINUTE, "kind": "throttle", "detail": detail}
        for minute in (100, 105, 110)
    ]
    assert [a.rule for a in judge(tmp_path, events)] == (["gpu_throttled"] if is_told else [])
