"""Samples made of columns of text: the one way in for query logs, dmon and XML alike."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from loadfactor.errors import SourceError
from loadfactor.sources.base import Input, ReadOptions, Rows
from loadfactor.sources.nvidia_smi.cells import Cells, explain_cell, parse_numbers
from loadfactor.sources.nvidia_smi.columns import MEASURES, REASONS, SLOWING, Measure
from loadfactor.sources.nvidia_smi.gpu_names import GpuNames, refuse_several
from loadfactor.sources.nvidia_smi.timestamps import MISSING, Timestamps
from loadfactor.sources.parsing.devices_seen import DevicesSeen
from loadfactor.sources.parsing.gaps import Gaps
from loadfactor.tables import SAMPLES

BATCH_ROWS: Final = 50_000
_MASK_MAX: Final = 2**63 - 1

Instants = NDArray[np.int64]
Which = NDArray[np.bool_]


class SampleBuilder:
    """Turns columns of text of one log into `samples`, and notes the devices seen.

    Columns are named as in `columns.QUERY_NAMES`. Rows that nothing places in time, or that name no device, become gaps.
    """

    def __init__(self, log: Input, options: ReadOptions, seen: DevicesSeen, gaps: Gaps) -> None:
        self.label, self.gaps, self.options = log.label, gaps, options
        self._seen = seen
        self._times = Timestamps(log.label, options.timezone, gaps)
        self._gpus = GpuNames(log, options.node, gaps)
        self._snapshot: set[str] = set()

    def build(self, columns: Mapping[str, Cells], line: int, at_ms: Instants | None = None) -> Iterator[Rows]:
        """The rows of these columns, all of one length; `line` is where they begin, `at_ms` their instants where known."""
        count = len(next(iter(columns.values())).codes)
        times = at_ms if at_ms is not None else self._find_instants(columns, count, line)
        devices, which = self._gpus.find(columns, count)
        keep = (times != MISSING) & (which >= 0)
        if not columns.keys() & {"uuid", "index", "bus_id"}:
            refuse_several(self.label, times[keep])
        if at_ms is None and "timestamp" not in columns:
            self._refuse_repeated([devices[i].device_id for i in which[keep]])
        data: dict[str, Any] = {"to_utc": times}
        for measure in MEASURES:
            values = self._measure(measure, columns, keep)
            if values is not None:
                data[measure.column] = values
        mask = self._find_throttle_mask(columns, count)
        if mask is not None:
            data["throttle_mask"] = mask
        if "mig" in columns and "busy_share" in data:
            on = np.isin(
                columns["mig"].codes, [i for i, t in enumerate(columns["mig"].distinct()) if t.lower() == "enabled"]
            )
            lost = on & keep & ~np.isnan(data["busy_share"])
            self.gaps.add(
                self.label, "utilization.gpu of a GPU divided by MIG, where it means nothing", int(lost.sum())
            )
            data["busy_share"] = np.where(on, np.nan, data["busy_share"])
        rows = np.flatnonzero(keep)
        for i in np.unique(which[rows]):
            device = devices[i]
            seen_ms = times[rows[which[rows] == i]]
            self._seen.name(device.device_id, device.node, device.accelerator)
            self._seen.see_instants(device.device_id, int(seen_ms.min()), int(seen_ms.max()), map(int, seen_ms))
        ids = np.array([d.device_id for d in devices], dtype=object)
        for i in range(0, len(rows), BATCH_ROWS):
            part = rows[i : i + BATCH_ROWS]
            batch = {"device_id": pa.array(ids[which[part]], type=pa.string())}
            for name, values in data.items():
                batch[name] = pa.array(values[part], type=SAMPLES.schema.field(name).type, from_pandas=True)
            yield Rows("samples", pa.table(batch), self.label)

    def _find_instants(self, columns: Mapping[str, Cells], count: int, line: int) -> Instants:
        if "timestamp" in columns:
            return self._times.find(columns["timestamp"], line)
        if self.options.at_ms is None:
            raise SourceError(
                f"{self.label}: it does not say when it was taken; record with timestamp among the fields of --query-gpu, "
                "or say when with --at"
            )
        return np.full(count, self.options.at_ms, dtype=np.int64)

    def _refuse_repeated(self, seen: list[str]) -> None:
        """A snapshot without times has one row a GPU; more were taken at times nobody knows."""
        for device_id in seen:
            if device_id in self._snapshot:
                raise SourceError(
                    f"{self.label}: several rows of {device_id} and no times; record with timestamp among the fields"
                )
            self._snapshot.add(device_id)

    def _measure(self, measure: Measure, columns: Mapping[str, Cells], keep: Which) -> NDArray[np.float64] | None:
        """Values in our unit, NaN where not measured; None when the log has no such column."""
        named = [columns[name] for name in (*measure.query, measure.column) if name in columns]
        if not named:
            return None
        tables = []
        values = None
        for cells in named:
            each, rows = parse_numbers(cells, measure.units)
            tables.append(each)
            values = rows if values is None else np.where(np.isnan(values), rows, values)
        assert values is not None
        cells, each = named[0], tables[0]
        often = np.bincount(cells.codes[keep & np.isnan(values)], minlength=len(each))
        texts = cells.distinct()
        for i in np.flatnonzero(often):
            self.gaps.add(self.label, f"{explain_cell(texts[i])} in {cells.name}", int(often[i]))
        return values

    def _find_throttle_mask(self, columns: Mapping[str, Cells], count: int) -> Any:
        """The mask of clock event reasons, from its own column or bit by bit; None when the log has neither."""
        if "reasons" in columns:
            cells = columns["reasons"]
            each = np.array([_parse_mask(t) for t in cells.distinct()], dtype=object)
            return each[cells.codes]
        bits = {name: columns[f"reason:{name}"] for name in REASONS if f"reason:{name}" in columns}
        if not bits:
            return None
        mask = np.zeros(count, dtype=np.int64)
        known = np.full(count, all(name in bits for name in SLOWING))
        for name, cells in bits.items():
            texts = [t.lower() for t in cells.distinct()]
            mask |= np.where(np.isin(cells.codes, [i for i, t in enumerate(texts) if t == "active"]), REASONS[name], 0)
            if name in SLOWING:
                known &= np.isin(cells.codes, [i for i, t in enumerate(texts) if t in ("active", "not active")])
        found = mask.astype(object)
        found[(mask == 0) & ~known] = None  # what was not asked may have slowed it
        return found


def _parse_mask(text: str) -> int | None:
    """The number of a mask in hexadecimal, or None.

    >>> _parse_mask("0x0000000000000004"), _parse_mask("[N/A]")
    (4, None)
    """
    try:
        value = int(text, 16) if text.lower().startswith("0x") else None
    except ValueError:
        return None
    return value if value is not None and value <= _MASK_MAX else None
