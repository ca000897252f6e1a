"""Rules of hardware: GPUs that are slowed down, hot or report errors, and nodes that are down."""

from typing import Final

import numpy as np

from loadfactor.base.units import S_PER_MIN
from loadfactor.catalog.accelerators import find_accelerator
from loadfactor.insight.alerts.evidence import Evidence, Need, Verdicts
from loadfactor.insight.alerts.rule import Compound, Limit, Limits, Rule, Threshold
from loadfactor.insight.alerts.rules.failures import find_down, find_ecc, find_xids
from loadfactor.insight.alerts.rules.reading import list_recent, read_known
from loadfactor.insight.alerts.threshold import show

_DEVICE: Final = ("device",)
_THROTTLED = Need("throttled_share", _DEVICE, 10 * S_PER_MIN)
_POWER = Need("throttled_power_w", _DEVICE, 10 * S_PER_MIN)
_HEAT = Need("temperature_c", _DEVICE, 10 * S_PER_MIN)
_BOARDS = Need("power_w", ("accelerator",), S_PER_MIN)
"""Read so that the accelerator of a GPU is told."""
_STAYS = Limit(60, "min", "so long an alert stays after the last event", 1, 1440)


def find_throttled(evidence: Evidence, limits: Limits) -> Verdicts:
    """GPUs that are slowed down, other than by working at the limit of their power, which heavy work does."""
    throttled, power, heat = (read_known(evidence, need) for need in (_THROTTLED, _POWER, _HEAT))
    is_hot = heat > limits["hot"]
    asked = (throttled > limits["time"]) & ~is_hot
    is_known = ~np.isnan(throttled) & (is_hot | ~np.isnan(power) | (throttled <= limits["clears_at"]))
    of_limit = np.full(len(throttled), np.nan)
    if asked.any():
        boards = evidence.said(_DEVICE, "accelerator")
        for gpu in np.flatnonzero(asked).tolist():
            board = find_accelerator(boards[gpu] or "")
            limit_w = board.get("tdp_w") if board else None
            of_limit[gpu] = power[gpu] / limit_w if limit_w else np.nan
    is_bad = (throttled > limits["time"]) & (is_hot | (of_limit < limits["power"]))
    is_clear = (throttled <= limits["clears_at"]) | (~is_hot & (of_limit >= limits["power"]))
    said = _list_said(evidence)
    if said:
        is_said = np.array([name in said for (name,) in evidence.groups(_DEVICE)], dtype=np.bool_)
        is_bad, is_clear = is_bad | is_said, is_clear & ~is_said

    def explain(gpu: int) -> tuple[str, ...]:
        found = [f"the driver said: {fact}" for fact in said.get(evidence.groups(_DEVICE)[gpu][0], ())]
        if not np.isnan(throttled[gpu]):
            found.append(f"slowed down in {show(throttled[gpu], 'share')} of the last 10 min")
        if not np.isnan(heat[gpu]):
            found.append(f"at {show(heat[gpu], '°C')}")
        if not np.isnan(of_limit[gpu]):
            found.append(f"while it draws {show(of_limit[gpu], 'share')} of the board's limit of power")
        return tuple(found)

    value = np.where(is_known, throttled, np.nan)
    is_gone = ~evidence.read(_THROTTLED).is_there
    return Verdicts(evidence.groups(_DEVICE), is_bad, is_clear, value, "share", explain, is_gone)


def _list_said(evidence: Evidence) -> dict[str, tuple[str, ...]]:
    """What events of the last ten minutes say of GPUs that are slowed down, by GPU; the limit of power is none of it."""
    found: dict[str, tuple[str, ...]] = {}
    for event in list_recent(evidence.records.events, evidence.at_ms, _THROTTLED.window_s):
        if event.kind == "throttle" and "power_cap" not in event.detail:
            found[event.device] = (*found.get(event.device, ()), event.detail or "throttled")
    return found


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
