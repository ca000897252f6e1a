"""Samples made of columns of text: the one way in for query logs, dmon and XML alike."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import Input, ReadOptions, Rows
from loadfactor.sources.nvidia_smi.cells import Cells, Numbers, explain_cell
from loadfactor.sources.nvidia_smi.columns import MEASURES, REASONS, SLOWING, Measure
from loadfactor.sources.nvidia_smi.gpu_names import GpuNames, NamedGpu, refuse_several
from loadfactor.sources.nvidia_smi.parsed_rows import ParsedRows, parse_columns
from loadfactor.sources.nvidia_smi.scanning import Scanning
from loadfactor.sources.nvidia_smi.timestamps import MISSING, Timestamps
from loadfactor.sources.parsing.devices_seen import DevicesSeen
from loadfactor.sources.parsing.gaps import Gaps
from loadfactor.tables.schema import SAMPLES

BATCH_ROWS: Final = 50_000
_MASK_MAX: Final = 2**63 - 1
_UNKNOWN: Final = np.iinfo(np.int64).min  # as a mask
_RADIX: Final = 2**15

Instants = NDArray[np.int64]
Which = NDArray[np.bool_]


class SampleBuilder:
    """Turns columns of text of one log into `samples`, and notes the devices seen.

    Columns are named as in `columns.QUERY_NAMES`. Rows that nothing places in time, or that name no device, become gaps.
    """

    def __init__(self, log: Input, options: ReadOptions, seen: DevicesSeen, gaps: Gaps, scanning: Scanning) -> None:
        self.label, self.gaps, self.options, self.scanning = log.label, gaps, options, scanning
        self._seen = seen
        self._times = Timestamps(log.label, options.timezone, gaps)
        self._gpus = GpuNames(log, options.node, gaps)
        self._snapshot: set[str] = set()

    def build(self, columns: Mapping[str, Cells], line: int, at_ms: Instants | None = None) -> Iterator[Rows]:
        """The rows of these columns, all of one length; `line` is where they begin, `at_ms` their instants where known."""
        yield from self.add(parse_columns(columns), line, at_ms)

    def add(self, rows: ParsedRows, line: int, at_ms: Instants | None = None) -> Iterator[Rows]:
        """The same of columns that are numbers already."""
        texts, count = rows.texts, rows.count
        times = at_ms if at_ms is not None else self._find_instants(rows, line)
        devices, which = self._gpus.find(texts, count)
        keep = (times != MISSING) & (which >= 0)
        if not texts.keys() & {"uuid", "index", "bus_id"}:
            refuse_several(self.label, times[keep])
        if at_ms is None and rows.times is None:
            self._refuse_repeated([devices[i].device_id for i in which[keep]])
        data: dict[str, Any] = {"to_utc": times}
        for measure in MEASURES:
            values = self._measure(measure, rows.numbers, keep)
            if values is not None:
                data[measure.column] = values
        mask = _find_throttle_mask(texts, count)
        if mask is not None:
            data["throttle_mask"] = mask
        if "mig" in texts and "busy_share" in data:
            on = _select(texts["mig"], "enabled")
            lost = on & keep & ~np.isnan(data["busy_share"])
            self.gaps.add(
                self.label, "utilization.gpu of a GPU divided by MIG, where it means nothing", int(lost.sum())
            )
            data["busy_share"] = np.where(on, np.nan, data["busy_share"])
        if not keep.all():
            which, data = which[keep], {name: values[keep] for name, values in data.items()}
        self._see(devices, which, data["to_utc"])
        ids = pa.array([d.device_id for d in devices], pa.string())
        for i in range(0, len(which), BATCH_ROWS):
            batch = {"device_id": ids.take(pa.array(which[i : i + BATCH_ROWS]))}
            for name, values in data.items():
                batch[name] = _to_arrow(name, values[i : i + BATCH_ROWS])
            yield Rows("samples", pa.table(batch), self.label)

    def _see(self, devices: list[NamedGpu], which: NDArray[np.int64], times: Instants) -> None:
        """Note the devices of these rows, and when they were seen."""
        order = np.argsort(
            which.astype(np.int16) if len(devices) < _RADIX else which, kind="stable"
        )  # int16: radix sort
        sorted_ms, numbers = times[order], which[order]
        edges = np.searchsorted(numbers, np.arange(len(devices) + 1))
        for device, start, end in zip(devices, edges[:-1], edges[1:], strict=True):
            if start < end:
                seen_ms = sorted_ms[start:end]
                self._seen.name(device.device_id, device.node, device.accelerator, device.index)
                self._seen.see_instants(device.device_id, int(seen_ms.min()), int(seen_ms.max()), map(int, seen_ms))

    def _find_instants(self, rows: ParsedRows, line: int) -> Instants:
        if rows.times is not None:
            return self._times.place(rows.times, line)
        if self.options.at_ms is None:
            raise SourceError(
                f"{self.label}: it does not say when it was taken; record with timestamp among the fields of --query-gpu, "
                "or say when with --at"
            )
        return np.full(rows.count, self.options.at_ms, dtype=np.int64)

    def _refuse_repeated(self, seen: list[str]) -> None:
        """A snapshot without times has one row a GPU; more were taken at times nobody knows."""
        for device_id in seen:
            if device_id in self._snapshot:
                raise SourceError(
                    f"{self.label}: several rows of {device_id} and no times; record with timestamp among the fields"
                )
            self._snapshot.add(device_id)

    def _measure(self, measure: Measure, numbers: Mapping[str, Numbers], keep: Which) -> NDArray[np.float64] | None:
        """Values in our unit, NaN where not measured; None when the log has no such column."""
        named = [numbers[name] for name in (*measure.query, measure.column) if name in numbers]
        if not named:
            return None
        first, *others = named
        values = first.values
        for other in others:
            values = np.where(np.isnan(values), other.values, values)
        missing = np.isnan(values) & keep
        if missing.any():
            often, unread = np.bincount(first.codes[missing]), np.isnan(first.values)
            for i in sorted(np.flatnonzero(often), key=lambda i: int(np.argmax(unread & (first.codes == i)))):
                self.gaps.add(self.label, f"{explain_cell(first.texts[i].as_py())} in {first.name}", int(often[i]))
        return values


def _find_throttle_mask(texts: Mapping[str, Cells], count: int) -> NDArray[np.int64] | None:
    """The mask of clock event reasons, from its own column or bit by bit, or _UNKNOWN; None when the log has neither."""
    if "reasons" in texts:
        cells = texts["reasons"]
        masks = [_parse_mask(t) for t in cells.distinct()]
        return np.array([_UNKNOWN if mask is None else mask for mask in masks], dtype=np.int64)[cells.codes]
    bits = {name: texts[f"reason:{name}"] for name in REASONS if f"reason:{name}" in texts}
    if not bits:
        return None
    mask = np.zeros(count, dtype=np.int64)
    known = np.full(count, all(name in bits for name in SLOWING))
    for name, cells in bits.items():
        mask |= np.where(_select(cells, "active"), REASONS[name], 0)
        if name in SLOWING:
            known &= _select(cells, "active", "not active")
    mask[(mask == 0) & ~known] = _UNKNOWN  # what was not asked may have slowed it
    return mask


def _select(cells: Cells, *wanted: str) -> Which:
    """The rows with one of these texts, however it is capitalized."""
    return np.array([text.lower() in wanted for text in cells.distinct()], dtype=bool)[cells.codes]


def _to_arrow(name: str, values: NDArray[Any]) -> pa.Array:
    """A column of samples; what is not known is null."""
    unknown = values == _UNKNOWN if name == "throttle_mask" else None
    return pa.array(values, type=SAMPLES.schema.field(name).type, mask=unknown, from_pandas=True)


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
