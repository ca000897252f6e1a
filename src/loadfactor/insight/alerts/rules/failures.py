"""What drivers and schedulers report: errors of GPUs that stay for a while, and nodes that nobody planned to be down."""

import re
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from loadfactor.base.units import MS_PER_MIN, S_PER_MIN
from loadfactor.books.watched import WatchedEvent, WatchedOutage
from loadfactor.insight.alerts.evidence import Evidence, Verdicts
from loadfactor.insight.alerts.rule import Limits
from loadfactor.insight.alerts.rules.reading import list_recent

USERS_XIDS: Final = frozenset({43, 45})
"""What the driver writes when a program ends in the middle of its work: no error of the GPU."""
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
"""What NVIDIA's list of XIDs says of those that are most frequent in data centers."""
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

    def tell(event: WatchedEvent) -> str | None:
        if event.kind != "xid":
            return None
        code = _read_code(event.detail)
        if code in USERS_XIDS:
            return None
        if code is None or not event.detail.isdecimal():
            return f"XID: {event.detail or 'no number is said'}"
        return f"XID {code}: {XIDS[code]}" if code in XIDS else f"XID {code}"

    return _find_events(evidence, limits["stays"], tell)


def find_ecc(evidence: Evidence, limits: Limits) -> Verdicts:
    """GPUs whose memory had errors that could not be corrected a while ago, replaced rows, or had many that could."""
    corrected: dict[str, float] = {}
    for event in list_recent(evidence.records.events, evidence.at_ms, limits["stays"] * S_PER_MIN):
        if event.kind == "ecc" and _is_corrected(event.detail):
            corrected[event.device] = corrected.get(event.device, 0) + event.count

    def tell(event: WatchedEvent) -> str | None:
        if event.kind == "row_remap":
            return f"rows of the memory were replaced, or could not be: {event.detail or 'no detail'}"
        if event.kind != "ecc":
            return None
        if not _is_corrected(event.detail):
            return f"{event.count:.0f} errors of the memory that could not be corrected ({event.detail})"
        found = corrected[event.device]
        return f"{found:.0f} corrected errors of the memory" if found >= limits["corrected"] else None

    return _find_events(evidence, limits["stays"], tell)


def find_down(evidence: Evidence, _: Limits) -> Verdicts:
    """Nodes that are out of use without anybody having planned it."""
    at_ms, outages = evidence.at_ms, evidence.records.outages
    nodes = sorted({outage.node for outage in outages if outage.from_ms < at_ms})
    now: dict[str, WatchedOutage] = {
        o.node: o
        for o in outages
        if o.from_ms < at_ms and (o.to_ms is None or o.to_ms >= at_ms) and not is_planned(o.reason)
    }
    is_bad = np.array([node in now for node in nodes], dtype=np.bool_)
    minutes = [(at_ms - now[node].from_ms) / MS_PER_MIN if node in now else np.nan for node in nodes]

    def explain(place: int) -> tuple[str, ...]:
        return (f"down for {minutes[place]:.0f} min", f"reason: {now[nodes[place]].reason or 'none is said'}")

    return Verdicts([(node,) for node in nodes], is_bad, ~is_bad, np.nan_to_num(np.array(minutes)), "min", explain)


def is_planned(reason: str) -> bool:
    """Is an outage planned, by what its reason says? Words of failure count first, and no reason is no plan.

    >>> is_planned("drained: firmware update"), is_planned("drained: not responding"), is_planned("")
    (True, False, False)
    """
    said = reason.lower()
    return not any(word in said for word in FAILED) and any(word in said for word in PLANNED)


def _find_events(evidence: Evidence, stays_min: float, tell: Callable[[WatchedEvent], str | None]) -> Verdicts:
    """GPUs of which an event of a while ago tells something; one alert however often it does."""
    found: dict[str, list[str]] = {}
    for event in list_recent(evidence.records.events, evidence.at_ms, stays_min * S_PER_MIN):
        fact = tell(event)
        if fact is not None:
            found.setdefault(event.device, []).append(fact)
    devices: Sequence[str] = sorted(found)
    is_bad = np.ones(len(devices), dtype=np.bool_)
    count = np.array([len(found[device]) for device in devices], dtype=np.float64)

    def explain(place: int) -> tuple[str, ...]:
        return tuple(dict.fromkeys(found[devices[place]]))

    return Verdicts([(device,) for device in devices], is_bad, ~is_bad, count, "events", explain)


def _read_code(detail: str) -> int | None:
    """The number of an XID: the first one of its detail.

    >>> _read_code("79"), _read_code("Xid 79: GPU has fallen off the bus"), _read_code("")
    (79, 79, None)
    """
    found = re.search(r"\d+", detail)
    return int(found[0]) if found else None


def _is_corrected(detail: str) -> bool:
    """Single-bit errors are corrected; what says neither is taken for the worse."""
    said = detail.lower()
    return said.startswith("sbe") or "single" in said or ("correct" in said and "uncorrect" not in said)
