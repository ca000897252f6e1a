"""Rules of hardware: GPUs that are slowed down, hot or report errors, and nodes that are down."""

import re
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from loadfactor.base.units import MS_PER_MIN, S_PER_MIN
from loadfactor.books.watched import WatchedEvent
from loadfactor.insight.alerts.rule import (
    Compound,
    Evidence,
    Limit,
    Limits,
    Need,
    Rule,
    Threshold,
    Verdicts,
    read_known,
    show,
)
from loadfactor.insight.alerts.rules.links import share_of_limit

USERS_XIDS: Final = frozenset({43, 45})
"""Errors that the driver writes when a program ends in the middle of its work: no error of the GPU."""
XIDS: Final = {
    13: "an exception in a program's kernel, mostly the program's fault",
    31: "a program read or wrote memory that is not its own, mostly the program's fault",
    48: "an error of the memory that could not be corrected",
    62: "the GPU's own controller stopped",
    63: "a row of the memory is marked for replacement",
    64: "a row of the memory could not be replaced",
    74: "NVLink had an error",
    79: "the GPU has fallen off the bus",
    92: "many corrected errors of the memory",
    94: "an error of the memory that hit one program",
    95: "an error of the memory that may have hit every program",
    119: "the GPU's system processor does not answer",
    120: "the GPU's system processor had an error",
}
"""The meanings in NVIDIA's list of XIDs of those that are most frequent in data centers."""
FAILED: Final = (
    "fail",
    "down",
    "not respond",
    "not_respond",
    "not ready",
    "panic",
    "error",
    "lost",
    "xid",
    "crash",
    "unreachable",
)
PLANNED: Final = (
    "maint",
    "drain",
    "drng",
    "cordon",
    "planned",
    "schedul",
    "firmware",
    "update",
    "upgrade",
    "reserv",
    "reboot",
)


def find_xids(evidence: Evidence, limits: Limits) -> Verdicts:
    """GPUs of which the driver reported an error a while ago, other than a program that ended."""

    def describe(event: WatchedEvent, _step: int) -> str | None:
        if event.kind != "xid":
            return None
        code = _read_code(event.detail)
        if code in USERS_XIDS:
            return None
        if code is None or not event.detail.isdecimal():
            return f"XID: {event.detail or 'no number is said'}"
        return f"XID {code}: {XIDS[code]}" if code in XIDS else f"XID {code}"

    found = [event for event in evidence.records.events if describe(event, 0) is not None]
    return _find_events(evidence, limits["stays"], found, describe)


def find_ecc(evidence: Evidence, limits: Limits) -> Verdicts:
    """GPUs whose memory had errors that could not be corrected a while ago, replaced rows, or had many that could."""
    found = [event for event in evidence.records.events if event.kind in ("ecc", "row_remap")]
    corrected = {event.device: np.zeros(len(evidence.at_ms)) for event in found}
    for event in found:
        if event.kind == "ecc" and _is_corrected(event.detail):
            corrected[event.device][_stay(evidence, event, limits["stays"])] += event.count

    def describe(event: WatchedEvent, step: int) -> str | None:
        if event.kind == "row_remap":
            return f"rows of the memory were replaced, or could not be: {event.detail or 'no detail'}"
        if not _is_corrected(event.detail):
            return f"{event.count:.0f} errors of the memory that could not be corrected ({event.detail})"
        total = corrected[event.device][step]
        return f"{total:.0f} corrected errors of the memory" if total >= limits["corrected"] else None

    return _find_events(evidence, limits["stays"], found, describe)


def find_down(evidence: Evidence, _: Limits) -> Verdicts:
    """Nodes that are out of use without anybody having planned it."""
    at_ms, outages = evidence.at_ms, evidence.records.outages
    nodes = sorted({outage.node for outage in outages})
    is_known = np.zeros((len(at_ms), len(nodes)), dtype=np.bool_)
    now = np.full(is_known.shape, -1)  # the outage that lasts
    for number, outage in enumerate(outages):
        place = nodes.index(outage.node)
        begins = int(np.searchsorted(at_ms, outage.from_ms, "right"))
        ends = len(at_ms) if outage.to_ms is None else int(np.searchsorted(at_ms, outage.to_ms, "right"))
        is_known[begins:, place] = True
        if not is_planned(outage.reason):
            now[begins:ends, place] = number
    is_bad = now >= 0
    since = np.array([*(outage.from_ms for outage in outages), 0])[now]
    minutes = np.where(is_bad, (at_ms[:, np.newaxis] - since) / MS_PER_MIN, 0.0)

    def explain(step: int, place: int) -> tuple[str, ...]:
        reason = outages[now[step, place]].reason
        return (f"down for {minutes[step, place]:.0f} min", f"reason: {reason or 'none is said'}")

    return Verdicts([(node,) for node in nodes], is_bad, ~is_bad, minutes, "min", explain, ~is_known)


def is_planned(reason: str) -> bool:
    """Is an outage planned, by what its reason says? Words of failure count first, and no reason is no plan.

    >>> is_planned("drained: firmware update"), is_planned("drained: not responding"), is_planned("")
    (True, False, False)
    """
    words = reason.lower()
    return not any(word in words for word in FAILED) and any(word in words for word in PLANNED)


def _find_events(
    evidence: Evidence,
    stays_min: float,
    events: Sequence[WatchedEvent],
    describe: Callable[[WatchedEvent, int], str | None],
) -> Verdicts:
    """GPUs of which an event of a while ago says something in a step; one alert however often it does."""
    devices = sorted({event.device for event in events})
    count = np.zeros((len(evidence.at_ms), len(devices)))
    own: dict[str, list[tuple[WatchedEvent, slice]]] = {device: [] for device in devices}
    for event in reversed(events):  # the latest first
        steps = _stay(evidence, event, stays_min)
        own[event.device].append((event, steps))
        says = [describe(event, step) is not None for step in range(steps.start, steps.stop)]
        count[steps, devices.index(event.device)] += says
    is_bad = count > 0

    def explain(step: int, place: int) -> tuple[str, ...]:
        facts = (describe(e, step) for e, steps in own[devices[place]] if steps.start <= step < steps.stop)
        return tuple(dict.fromkeys(fact for fact in facts if fact is not None))

    return Verdicts([(device,) for device in devices], is_bad, np.zeros_like(is_bad), count, "events", explain, ~is_bad)


def _stay(evidence: Evidence, event: WatchedEvent, minutes: float) -> slice:
    """The steps in which an event counts."""
    return evidence.find_steps(event.at_ms, event.at_ms + minutes * MS_PER_MIN)


def _read_code(detail: str) -> int | None:
    """The number of an XID: the first one of its detail.

    >>> _read_code("79"), _read_code("Xid 79: GPU has fallen off the bus"), _read_code("")
    (79, 79, None)
    """
    found = re.search(r"\d+", detail)
    return int(found[0]) if found else None


def _is_corrected(detail: str) -> bool:
    """Single-bit errors are corrected; what says neither is taken for the worse."""
    words = detail.lower()
    return words.startswith("sbe") or "single" in words or ("correct" in words and "uncorrect" not in words)


_DEVICE: Final = ("device",)
_WINDOW_MIN = 10
_THROTTLED, _POWER, _HEAT = (
    Need(name, _DEVICE, _WINDOW_MIN * S_PER_MIN) for name in ("throttled_share", "throttled_power_w", "temperature_c")
)
_BOARDS = Need("power_w", ("accelerator",), S_PER_MIN)
"""Read so that the accelerator of a GPU is known."""
_STAYS = Limit(60, "min", "so long an alert stays after the last event", 1, 1440)


def find_throttled(evidence: Evidence, limits: Limits) -> Verdicts:
    """GPUs that are slowed down, other than by working at the limit of their power, which heavy work does."""
    throttled, power, heat = (read_known(evidence, need) for need in (_THROTTLED, _POWER, _HEAT))
    is_hot = heat > limits["hot"]
    unclear = (throttled > limits["time"]) & ~is_hot
    is_known = ~np.isnan(throttled) & (is_hot | ~np.isnan(power) | (throttled <= limits["clears_at"]))
    of_limit = share_of_limit(evidence, _DEVICE, unclear, power)
    is_bad = (throttled > limits["time"]) & (is_hot | (of_limit < limits["power"]))
    is_clear = (throttled <= limits["clears_at"]) | (~is_hot & (of_limit >= limits["power"]))
    reported = [event for event in evidence.records.events if _is_of_throttling(event)]
    places = {name: place for place, (name,) in enumerate(evidence.groups(_DEVICE))} if reported else {}
    for event in reported:
        if event.device in places:
            at = _stay(evidence, event, _WINDOW_MIN), places[event.device]
            is_bad[at], is_clear[at] = True, False

    def explain(step: int, gpu: int) -> tuple[str, ...]:
        (device,), at = evidence.groups(_DEVICE)[gpu], (step, gpu)
        own = (event for event in reversed(reported) if event.device == device)
        found = [
            f"the driver said: {event.detail or 'throttled'}"
            for event in own
            if event.at_ms <= evidence.at_ms[step] < event.at_ms + _WINDOW_MIN * MS_PER_MIN
        ]
        if not np.isnan(throttled[at]):
            found.append(f"slowed down in {show(throttled[at], 'share')} of the last 10 min")
        if not np.isnan(heat[at]):
            found.append(f"at {show(heat[at], '°C')}")
        if not np.isnan(of_limit[at]):
            found.append(f"while it draws {show(of_limit[at], 'share')} of the board's limit of power")
        return tuple(found)

    value = np.where(is_known, throttled, np.nan)
    is_gone = ~evidence.read(_THROTTLED).is_there
    return Verdicts(evidence.groups(_DEVICE), is_bad, is_clear, value, "share", explain, is_gone)


def _is_of_throttling(event: WatchedEvent) -> bool:
    """Whether an event says that a GPU is slow; the limit of power is no such reason."""
    return event.kind == "throttle" and "power_cap" not in event.detail


HARDWARE: Final = (
    Rule(
        "gpu_throttled",
        Compound(
            find_throttled,
            (_THROTTLED, _POWER, _HEAT, _BOARDS),
            {
                "time": Limit(0.5, "share", "time in which the GPU is slowed down", 0.01, 1),
                "clears_at": Limit(0.25, "share", "of the time, at which it is clear again", 0, 1),
                "hot": Limit(83, "°C", "above which heat slows it down, whatever power it draws", 40, 120),
                "power": Limit(0.95, "share", "power of the board's limit, at which heavy work slows it down", 0.1, 1),
            },
        ),
        _DEVICE, 5 * S_PER_MIN, "warning", "hardware",
        "A GPU is slowed down by heat, by its power supply or by its hardware, not by working at the limit of its power.",
        "Is it hot, is the node's power limited, or is it this one GPU alone?",
        "`nvidia-smi -q -d PERFORMANCE` names the reason; other GPUs of the node and rack; fans and power supplies.",
    ),
    Rule(
        "gpu_hot",
        Threshold("temperature_c", "above", 85, clears_at=80, window_s=5 * S_PER_MIN),
        _DEVICE, 5 * S_PER_MIN, "warning", "hardware",
        "A GPU is so hot that it will be slowed down, or is.",
        "One GPU (its heat sink), one node (its fans) or a whole rack (its air)?",
        "`loadfactor show temperature_c --by node`; other GPUs of the node.",
    ),
    Rule(
        "gpu_xid", Compound(find_xids, (), {"stays": _STAYS}), _DEVICE, 0.0, "critical", "hardware",
        "The driver reported an error of a GPU (an XID).",
        "Does NVIDIA's list call this XID one of the hardware or one of the program: does it follow the GPU or the job?",
        "`dmesg` of the node; a job of somebody else on this GPU; drain the node where it is the hardware.",
    ),
    Rule(
        "gpu_ecc",
        Compound(
            find_ecc,
            (),
            {"stays": _STAYS, "corrected": Limit(1000, "errors", "corrected ones in this time that are too many", 1)},
        ),
        _DEVICE, 0.0, "critical", "hardware",
        "The memory of a GPU had errors that could not be corrected, or many that could.",
        "Does it come back after a reset of the GPU?",
        "`nvidia-smi -q -d ECC,ROW_REMAPPER`: pending remaps need a reset, failed ones another GPU.",
    ),
    Rule(
        "node_down", Compound(find_down), ("node",), 2 * S_PER_MIN, "critical", "hardware",
        "A node is down, and nobody planned it.",
        "Does the machine answer, or only its scheduler's daemon not?",
        "What the scheduler says of it (`sinfo -R`, `kubectl describe node`), its console, its power; the jobs that it held.",
    ),
)  # fmt: skip
