"""The GPUs that were there, when nobody wrote a devices table: those that samples or allocations mention."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import Gap, ReadOptions, Rows
from loadfactor.sources.parsing.cells import quote
from loadfactor.sources.parsing.steps import DevicesSeen

_LEARN_FROM: Final = 33  # instants of a device that its step is learnt from; there may be a hundred thousand devices


class Presence:
    """Watches the rows go by; keeps a few numbers for each device, never the rows."""

    def __init__(self, where: str, options: ReadOptions) -> None:
        self._where = where
        self._listed: set[str] = set()
        self._seen = DevicesSeen(options, 0.0, _LEARN_FROM, where)

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

    def make_rows(self) -> Iterator[Rows | Gap]:
        """Devices as inferred, and the gap that says so; nothing when a devices table lists them."""
        if not len(self._seen):
            return
        yield from self._seen.make_rows()
        what = "devices without a row in devices: presence inferred from samples and allocations"
        yield Gap(self._where, what, len(self._seen))

    def _check(self, rows: Rows, data: pa.Table) -> None:
        for device in pc.unique(data["device_id"]).to_pylist():
            if device not in self._listed:
                raise SourceError(
                    f"{rows.where}: {rows.table} mention device {quote(device)} that devices does not list; add its row"
                )

    def _extend(self, table: str, data: pa.Table) -> None:
        nulls = pa.nulls(data.num_rows, pa.int64())
        start = data["from_utc"] if "from_utc" in data.column_names else nulls
        end = data["to_utc"] if "to_utc" in data.column_names else nulls
        lone = pc.if_else(pc.is_null(start), end, pa.scalar(None, pa.int64()))
        node = data["node"] if "node" in data.column_names else pa.nulls(data.num_rows, pa.string())
        facts = pa.table({"id": data["device_id"], "start": start, "lone": lone, "end": end, "node": node})
        summary = facts.group_by("id", use_threads=False).aggregate(
            [("start", "min"), ("end", "max"), ("end", "count"), ("id", "count"), ("node", "first")]
        )
        for row in summary.to_pylist():
            device = row["id"]
            self._seen.name(device, row["node_first"])
            open_end = table == "allocations" and row["end_count"] < row["id_count"]
            self._seen.see_interval(device, row["start_min"], row["end_max"], open_end)
        if lone.null_count < len(lone):
            self._see_instants(facts.filter(pc.is_valid(lone)))

    def _see_instants(self, lone: pa.Table) -> None:
        """The timestamps of samples that state no start, device by device."""
        ids = lone["id"].combine_chunks().dictionary_encode()
        order = np.argsort(ids.indices.to_numpy(), kind="stable")
        times = lone["lone"].to_numpy()[order]
        edges = np.searchsorted(ids.indices.to_numpy()[order], np.arange(len(ids.dictionary) + 1))
        for i, device in enumerate(ids.dictionary.to_pylist()):
            at_ms = times[edges[i] : edges[i + 1]]
            self._seen.see_instants(device, int(at_ms.min()), int(at_ms.max()), map(int, at_ms))
