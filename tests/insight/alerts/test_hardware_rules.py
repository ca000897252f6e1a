"""Do rules of hardware fire for GPUs that are slowed down, hot or report errors and nodes that are down, and for nothing else?

Each scene is a node with the GPUs g0 and g1, which work at 80 % for six hours.
"""

import pytest
from tests.insight.alerts.small_fleet import HOUR, MINUTE, START, judge_together, make_tables, minutes
from tests.ledger.fleets import Row, Tables

from loadfactor.insight.alerts.alert import Alert
from loadfactor.insight.alerts.rules.hardware import HARDWARE

H100_LIMIT_W = 700
HEALTHY = {"throttle_mask": 0, "power_w": 500.0, "temperature_c": 66.0}
MEMORY_ERRORS = {"uncorrected": ("ecc", "dbe_volatile", 1), "replaced": ("row_remap", "failure", 1)} | {
    "thousands": ("ecc", "sbe_volatile", 5000)
}
REASONS = {"not responding": True, None: True, "drained: firmware update": False}
"""Whether a node that is down for such a reason fires."""


def make_scene(events: list[Row] | None = None, outages: list[Row] | None = None, **signals: object) -> Tables:
    """Two GPUs; g1 has these signals from minute 120 to 240, where they are given."""
    tables = make_tables(lambda _: 0.8, hours=6)
    for row in tables["samples"]:
        if row["device_id"] == "g1" and START + 120 * MINUTE <= row["from_utc"] < START + 240 * MINUTE:
            row.update(signals)
        else:
            row.update({name: value for name, value in HEALTHY.items() if name in signals})
    return {**tables, "device_events": events or [], "outages": outages or []}


def make_event(kind: str, detail: str, device: str = "g0", minute: int = 130, **more: object) -> Row:
    """An event of a GPU."""
    return {"device_id": device, "at_utc": START + minute * MINUTE, "kind": kind, "detail": detail, **more}


@pytest.fixture(scope="module")
def fired(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Alert]]:
    """The alerts of each scene."""
    down: Row = {"node": "n0", "from_utc": START + 2 * HOUR, "to_utc": START + 3 * HOUR}
    scenes = {
        "slowed": make_scene(throttle_mask=0x8, power_w=350.0, temperature_c=66.0),
        "at its limit": make_scene(throttle_mask=0x4, power_w=0.98 * H100_LIMIT_W, temperature_c=72.0),
        "mask alone": make_scene(throttle_mask=0x8),
        "slowed by heat": make_scene(throttle_mask=0x20, temperature_c=90.0),
        "hot": make_scene(temperature_c=91.0),
        "warm": make_scene(temperature_c=80.0),
        "xid": make_scene([make_event("xid", detail, "g1") for detail in ("79", "45")]),
        "program ended": make_scene(
            [*(make_event("xid", code, "g1") for code in ("43", "45")), make_event("ecc", "sbe_volatile", count=3)]
        ),
        **{name: make_scene([make_event(kind, of, count=n)]) for name, (kind, of, n) in MEMORY_ERRORS.items()},
        **{f"down: {reason}": make_scene(outages=[{**down, "reason": reason}]) for reason in REASONS},
        **{
            detail: make_scene([make_event("throttle", detail, minute=minute) for minute in (100, 105, 110)])
            for detail in ("hw_slowdown", "sw_power_cap")
        },
    }
    return judge_together(tmp_path_factory.mktemp("hardware"), scenes, HARDWARE)


def list_spans(alerts: list[Alert]) -> list[tuple[str, dict[str, str], float | None, float | None]]:
    return [(a.rule, dict(a.by), minutes(a.start_ms), minutes(a.end_ms)) for a in alerts]


def test_a_gpu_that_its_hardware_slows_down_fires(fired: dict[str, list[Alert]]) -> None:
    """Slowed down at half of its power from minute 120: more than half of ten minutes from the sixth on, a quarter at the end."""
    (alert,) = fired["slowed"]
    assert list_spans([alert]) == [("gpu_throttled", {"device": "g1"}, 125, 248)]
    assert alert.holder == {"node": "n0", "job": "j", "user": "ann", "team": "red"}
    assert alert.evidence == (
        "slowed down in 60 % of the last 10 min",
        "at 66 °C",
        "while it draws 50 % of the board's limit of power",
    ) or alert.evidence[0].startswith("slowed down in")


def test_heavy_work_at_the_limit_of_power_is_no_fault(fired: dict[str, list[Alert]]) -> None:
    """A GPU that its power limit holds back draws all of it: it works as hard as it can."""
    assert fired["at its limit"] == []


def test_without_power_nobody_can_tell_why_a_gpu_is_slowed_down(fired: dict[str, list[Alert]]) -> None:
    """Throttled, and neither its power nor its temperature was measured: nothing fires; of a hot one both do."""
    assert fired["mask alone"] == []
    assert {alert.rule for alert in fired["slowed by heat"]} == {"gpu_throttled", "gpu_hot"}


def test_a_hot_gpu_fires_and_a_warm_one_does_not(fired: dict[str, list[Alert]]) -> None:
    """At 91 °C from minute 120 for two hours; at 80 °C nothing."""
    (alert,) = fired["hot"]
    assert (alert.rule, alert.by) == ("gpu_hot", {"device": "g1"})
    assert minutes(alert.start_ms) == pytest.approx(123, abs=2)
    assert fired["warm"] == []


def test_an_xid_fires_for_an_hour(fired: dict[str, list[Alert]]) -> None:
    """XID 79 in minute 130 fires at its end, whatever was reported besides, and stays for an hour."""
    (alert,) = fired["xid"]
    assert list_spans([alert]) == [("gpu_xid", {"device": "g1"}, 129, 190)]
    assert alert.evidence == ("XID 79: the GPU has fallen off the bus",)


def test_a_program_that_ends_is_no_error_of_the_gpu(fired: dict[str, list[Alert]]) -> None:
    """XIDs 43 and 45, which the driver writes when a program dies, and single corrected errors of memory fire nothing."""
    assert fired["program ended"] == []


@pytest.mark.parametrize("scene", MEMORY_ERRORS)
def test_errors_of_memory_fire(fired: dict[str, list[Alert]], scene: str) -> None:
    """An error that could not be corrected, a row that is replaced, or thousands that could be corrected."""
    (alert,) = fired[scene]
    assert (alert.rule, alert.by) == ("gpu_ecc", {"device": "g0"})


@pytest.mark.parametrize("reason", REASONS)
def test_a_node_that_is_down_fires_and_one_that_is_drained_does_not(
    fired: dict[str, list[Alert]], reason: str | None
) -> None:
    """Down for an hour from minute 120; a node that is taken out for maintenance, as its reason says, is planned."""
    down = [("node_down", {"node": "n0"}, 120, 181)]
    assert list_spans(fired[f"down: {reason}"]) == (down if REASONS[reason] else [])


@pytest.mark.parametrize(("detail", "fires"), [("hw_slowdown", True), ("sw_power_cap", False)])
def test_what_the_driver_reports_of_a_gpu_that_is_slowed_down_fires(
    fired: dict[str, list[Alert]], detail: str, fires: bool
) -> None:
    """An event of throttling is enough, unless it is the limit of power."""
    assert [a.rule for a in fired[detail]] == (["gpu_throttled"] if fires else [])
