"""Settling one obvious row after the other: what `normalize` must agree with on every input."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from loadfactor.base.units import MS_PER_HOUR
from loadfactor.store.manifest import LONGEST_REACH_MS, LONGEST_STEP_MS
from loadfactor.store.normalize import ON_DISK
from loadfactor.tables.schema import MEASUREMENTS, REACH_STEPS

Row = dict[str, Any]
SAID = ("began_utc", *MEASUREMENTS)


@dataclass
class Expected:
    """What settling must find."""

    rows: list[Row] = field(default_factory=list)
    met: list[Row] = field(default_factory=list)  # one of each import
    reaches: list[tuple[Row, int]] = field(default_factory=list)  # samples in order of time, and where each may begin
    replaced: int = 0
    reaches_earlier: bool = (
        False  # some sample was given a start before the last one of its series that is not among these
    )

    @property
    def overlaps(self) -> bool:
        """Some sample of a device may begin before an earlier one was taken."""
        if self.reaches_earlier:
            return True
        pairs = ((a, b, begin) for i, (b, begin) in enumerate(self.reaches) for a, _ in self.reaches[:i])
        return any(a["device_id"] == b["device_id"] and begin < a["sampled_utc"] for a, b, begin in pairs)


def settle_slowly(taken: list[Row], before: Mapping[tuple[str, str], int]) -> Expected:
    """Settle a few rows one by one."""
    series: dict[tuple[str, str], dict[int, dict[int, list[Row]]]]
    series = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for row in sorted(taken, key=lambda r: (r["import_no"], r["seq"])):
        series[row["device_id"], row["source"]][row["sampled_utc"]][row["import_no"]].append(row)
    found = Expected()
    for key in sorted(series):
        previous = before.get(key)
        for at in sorted(series[key]):
            own = []
            for rows in series[key][at].values():
                if any(len({r[c] for r in rows if r[c] is not None}) > 1 for c in SAID):
                    found.replaced += len(rows) - 1
                own.append(_latest(rows))
            sample = _latest(own)
            if len(own) > 1:
                found.met += own
                sample["import_no"] = None
            is_first = at == min(series[key])
            start, reach = _reach(sample, previous, is_first)
            given = sample["began_utc"] is not None
            before_all = is_first and previous is not None and start < previous
            found.reaches_earlier |= given and (before_all or at - start > LONGEST_REACH_MS)
            found.reaches.append((sample, start))
            found.rows += _pieces(sample, start, reach)
            previous = at
    found.rows.sort(key=lambda r: (r["device_id"], r["to_utc"] + r["late_ms"], r["source"], r["to_utc"]))
    found.reaches.sort(key=lambda r: (r[0]["device_id"], r[0]["sampled_utc"], r[0]["source"]))
    return found


def _latest(rows: list[Row]) -> Row:
    """Column by column the value of the latest row that has one."""
    merged = {c: next((r[c] for r in reversed(rows) if r[c] is not None), None) for c in rows[0]}
    return merged | {"measured_mask": sum(1 << i for i, c in enumerate(MEASUREMENTS) if merged[c] is not None)}


def _reach(sample: Row, previous: int | None, is_first: bool) -> tuple[int, int | None]:
    """Where a sample may begin, and how far it reaches as far as is known."""
    at, began = sample["sampled_utc"], sample["began_utc"]
    longest = max(sample["step_ms"] or 0, sample["lone_step_ms"] or 0, LONGEST_STEP_MS)
    reach = None if previous is None else at - previous
    if began is not None:
        return began, at - began
    if reach is not None and reach <= REACH_STEPS * longest:
        return at - reach, reach
    return at - longest, None if is_first else reach  # so far back nobody looks in other files


def _pieces(sample: Row, start: int, reach: int | None) -> list[Row]:
    at = sample["sampled_utc"]
    last = (at - 1) // MS_PER_HOUR
    pieces = []
    for hour in range(min(start // MS_PER_HOUR, last), last + 1):
        end = min(at, (hour + 1) * MS_PER_HOUR)
        times = {"hour_utc": hour * MS_PER_HOUR, "to_utc": end, "late_ms": at - end, "reach_ms": reach}
        piece = sample | times | {"given": sample["began_utc"] is not None}
        pieces.append({name: piece[name] for name in ON_DISK.names})
    return pieces
