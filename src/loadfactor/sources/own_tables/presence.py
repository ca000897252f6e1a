"""Which GPUs were there, when nobody wrote a devices table? Those with samples or allocations, from first to last seen."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.errors import SourceError
from loadfactor.sources.base import Gap, ReadOptions, Rows
from loadfactor.sources.parsing.csv_text import shown
from loadfactor.sources.parsing.devices_seen import step_ms
from loadfactor.tables import DEVICES

_EARLY: Final = 33  # instants of a device that its step is read from
_BATCH: Final = 50_000


@dataclass
class _Seen:
    node: str | None = None
    from_ms: int | None = None  # earliest start that a row states
    first_ms: int | None = None  # earliest timestamp of a sample that states no start
    last_ms: int | None = None
    held: bool = False  # an allocation of it has no end
    early_ms: set[int] = field(default_factory=set)


class Presence:
    """Watches the rows go by; keeps a few numbers for each device, never the rows."""

    def __init__(self, where: str, options: ReadOptions) -> None:
        self._where, self._options = where, options
        self._listed: set[str] = set()
        self._seen: dict[str, _Seen] = {}

    def watch(self, rows: Rows) -> None:
        """Devices are listed, samples and allocations must be of a listed one, unless none is. Devices come first.

        Raises SourceError naming the first device that the devices table does not list.
        """
        if rows.table == "devices":
            self._listed.update(rows.data["device_id"].drop_null().to_pylist())
        elif rows.table in ("samples", "allocations") and "device_id" in rows.data.column_names:
            data = rows.data.filter(pc.is_valid(rows.data["device_id"]))
            if self._listed:
                self._check(rows, data)
            else:
                self._extend(rows.table, data)

    def rows(self) -> Iterator[Rows | Gap]:
        """Devices as inferred, and the gap that says so; nothing when a devices table lists them."""
        if not self._seen:
            return
        ids = list(self._seen)
        for i in range(0, len(ids), _BATCH):
            batch = [self._seen[k] for k in ids[i : i + _BATCH]]
            columns = {
                "device_id": ids[i : i + _BATCH],
                "node": [s.node for s in batch],
                "pool": [self._options.pool] * len(batch),
                "from_utc": [self._since(s) for s in batch],
                "to_utc": [None if s.held else s.last_ms for s in batch],
            }
            schema = pa.schema([DEVICES.schema.field(name) for name in columns])
            yield Rows("devices", pa.table(columns, schema=schema), self._where)
        yield Gap(
            self._where, "devices without a row in devices: presence inferred from samples and allocations", len(ids)
        )

    def _check(self, rows: Rows, data: pa.Table) -> None:
        for device in pc.unique(data["device_id"]).to_pylist():
            if device not in self._listed:
                raise SourceError(
                    f"{rows.where}: {rows.table} mention device {shown(device)} that devices does not list; add its row"
                )

    def _extend(self, table: str, data: pa.Table) -> None:
        nulls = pa.nulls(data.num_rows, pa.int64())
        start = data["from_utc"] if "from_utc" in data.column_names else nulls
        end = data["to_utc"] if "to_utc" in data.column_names else nulls
        lone = pc.if_else(pc.is_null(start), end, pa.scalar(None, pa.int64()))
        node = data["node"] if "node" in data.column_names else pa.nulls(data.num_rows, pa.string())
        facts = pa.table({"id": data["device_id"], "start": start, "lone": lone, "end": end, "node": node})
        summary = facts.group_by("id", use_threads=False).aggregate(
            [("start", "min"), ("lone", "min"), ("end", "max"), ("end", "count"), ("id", "count"), ("node", "first")]
        )
        for row in summary.to_pylist():
            seen = self._seen.setdefault(row["id"], _Seen())
            seen.node = seen.node or row["node_first"]
            seen.from_ms = _least(seen.from_ms, row["start_min"])
            seen.first_ms = _least(seen.first_ms, row["lone_min"])
            seen.last_ms = max((t for t in (seen.last_ms, row["end_max"]) if t is not None), default=None)
            seen.held |= table == "allocations" and row["end_count"] < row["id_count"]
        if lone.null_count < len(lone):
            self._learn(facts.filter(pc.is_valid(lone)))

    def _learn(self, lone: pa.Table) -> None:
        """The first few timestamps of each device whose samples state no start."""
        ids = lone["id"].combine_chunks().dictionary_encode()
        order = np.argsort(ids.indices.to_numpy(), kind="stable")
        times = lone["lone"].to_numpy()[order]
        edges = np.searchsorted(ids.indices.to_numpy()[order], np.arange(len(ids.dictionary) + 1))
        for i, device in enumerate(ids.dictionary.to_pylist()):
            early = self._seen[device].early_ms
            if len(early) < _EARLY:
                early.update(times[edges[i] : min(edges[i + 1], edges[i] + _EARLY - len(early))].tolist())

    def _since(self, seen: _Seen) -> int | None:
        """The start the rows state, or one step before the first timestamp, whichever is earlier."""
        if seen.first_ms is None:
            return seen.from_ms
        return _least(seen.from_ms, seen.first_ms - step_ms(sorted(seen.early_ms), self._options.step_s, 0.0))


def _least(one: int | None, two: int | None) -> int | None:
    known = [t for t in (one, two) if t is not None]
    return min(known, default=None)
