"""The heat map of GPUs or nodes by hour: what each did for most of an hour, as a picture and as one byte a cell.

A cell is in the state that most of its time was in: working, and then its share is its utilization; held and idle; held by nobody;
down; or held and unobserved. Time of which the reader may see nothing, or in which the GPU was not there, is nothing.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo
from typing import Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.units import MS_PER_HOUR, MS_PER_S
from loadfactor.interfaces.charts import Chart, Series, State
from loadfactor.interfaces.reports.inquiry import Inquiry

STATES: Final[tuple[State, ...]] = ("idle", "free", "unobserved", "down")
PARTS: Final = ("busy_gpu_hours", "idle_gpu_hours", "unallocated_gpu_hours", "unobserved_gpu_hours", "down_gpu_hours")
"""Hours of a cell: working, then in each of the states."""
CODES: Final[dict[State | None, int]] = {"unobserved": 255, "down": 254, "idle": 253, "free": 252, None: 251}
"""Bytes of cells that have no share; a share is as many 200ths."""
WHOLE_SHARE: Final = 200
WORKING, NOTHING = 0, -1
MOST_ROWS, MOST_COLUMNS = 40, 60
"""What a picture without a script shows."""


@dataclass(frozen=True)
class Heat:
    """`names` of rows (node, or node and GPU); `parts` × rows × columns of hours, and what was effective of them."""

    names: Sequence[tuple[str, ...]]
    first: datetime
    step: timedelta
    parts: NDArray[np.float64]
    effective: NDArray[np.float64]

    @property
    def kinds(self) -> NDArray[np.int8]:
        """What each cell was for most of its time: `WORKING`, the number of its state from 1, or `NOTHING`."""
        return np.where(self.parts.sum(axis=0) > 0, self.parts.argmax(axis=0), NOTHING).astype(np.int8)

    @property
    def shares(self) -> NDArray[np.float64]:
        """The utilization of each cell; anything where it was not observed."""
        observed = self.parts[0] + self.parts[1]
        shares = np.divide(self.effective, observed, out=np.zeros_like(observed), where=observed > 0)
        return np.asarray(np.minimum(shares, 1.0))

    def write_cells(self) -> bytes:
        """A line of JSON that says what the rows and columns are, then a byte a cell, row by row."""
        codes = np.array([0, *(CODES[state] for state in STATES), CODES[None]], dtype=np.uint8)
        kinds = self.kinds
        cells = np.where(kinds == WORKING, np.rint(self.shares * WHOLE_SHARE).astype(np.uint8), codes[kinds])
        head = {
            "rows": self.names,
            "columns": self.parts.shape[2],
            "first": round(self.first.timestamp()),
            "step": round(self.step.total_seconds()),
            "zone": str(self.first.tzinfo),
        }
        return json.dumps(head, ensure_ascii=False).encode("utf-8", "replace") + b"\n" + cells.tobytes()

    def thin(self) -> "Heat":
        """The rows with the most idle hours, in their order, and columns of several hours, as a picture has room for."""
        idle = self.parts[1].sum(axis=1)
        kept = sorted(np.argsort(-idle, kind="stable")[:MOST_ROWS].tolist())
        each = -(-self.parts.shape[2] // MOST_COLUMNS)
        starts = np.arange(0, self.parts.shape[2], each)
        parts = np.add.reduceat(self.parts[:, kept], starts, axis=2)
        effective = np.add.reduceat(self.effective[kept], starts, axis=1)
        return replace(
            self, names=[self.names[n] for n in kept], step=self.step * each, parts=parts, effective=effective
        )

    def draw(self, title: str) -> Chart:
        """The picture."""
        thinned = self.thin()
        starts = [thinned.first + n * thinned.step for n in range(thinned.parts.shape[2])]
        states: list[State | None] = [None, *STATES, None]
        rows = []
        for name, kinds, shares in zip(thinned.names, thinned.kinds.tolist(), thinned.shares.tolist(), strict=True):
            known = [share if kind == WORKING else None for kind, share in zip(kinds, shares, strict=True)]
            rows.append(Series(name[-1], known, states=[states[kind] for kind in kinds]))
        left = len(self.names) - len(rows)
        note = f"The {len(rows)} with most idle time; {left} more are not shown here." if left else ""
        zone = str(self.first.tzinfo)
        return Chart(title, "heat map", [at.astimezone(self.first.tzinfo) for at in starts], rows, zone, note=note)


def read_heat(inquiry: Inquiry, by: Sequence[str]) -> Heat | None:
    """The heat map of a window by node, or by node and device; None where nothing is named. One question to the books."""
    (*named, at_ms), values = inquiry.tabulate("effective_gpu_hours", *PARTS, by=(*by, "hour"))
    some = np.logical_and.reduce([column != None for column in named])  # noqa: E711 (by element)
    if not some.any():
        return None
    named, at_ms = [column[some] for column in named], at_ms[some]
    begins = np.logical_or.reduce([column[1:] != column[:-1] for column in named])  # groups come in order
    starts = [0, *(np.flatnonzero(begins) + 1).tolist()]
    names = list(zip(*(column[starts].tolist() for column in named), strict=True))
    rows = np.cumsum(np.concatenate([[0], begins]))
    hours = np.asarray(at_ms, dtype=np.int64) // MS_PER_HOUR
    start, end = (round(at.timestamp() * MS_PER_S) for at in inquiry.window)
    first = start // MS_PER_HOUR
    columns = hours - first
    shape = (len(names), max(int(-(-end // MS_PER_HOUR) - first), int(columns.max()) + 1))
    tables = []
    for name in ("effective_gpu_hours", *PARTS):
        table = np.zeros(shape)
        table[rows, columns] = np.nan_to_num(values[name][some])
        tables.append(table)
    zone: tzinfo = inquiry.timezone
    at = datetime.fromtimestamp(first * MS_PER_HOUR / MS_PER_S, zone)
    return Heat(names, at, timedelta(hours=1), np.stack(tables[1:]), tables[0])
