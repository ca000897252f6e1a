"""Samples made of columns of text: the one way in for query logs, dmon and XML alike."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from loadfactor.base.errors import SourceError
from loadfactor.catalog.accelerators import find_accelerator
from loadfactor.sources.base import Gaps, Input, ReadOptions, Rows
from loadfactor.sources.gpu_scrapes.known_devices import read_index
from loadfactor.sources.nvidia_smi.cells import (
    MISSING,
    TIMESTAMP,
    Cells,
    Timestamps,
    explain_cell,
    is_unmeasured,
    merge_equal,
    parse_numbers,
)
from loadfactor.sources.nvidia_smi.columns import MEASURES, REASONS, SLOWING, Measure
from loadfactor.sources.parsing.steps import DevicesSeen
from loadfactor.sources.parsing.text_blocks import strip_endings
from loadfactor.tables.schema import SAMPLES

_WHO: Final = ("uuid", "index", "bus_id", "name", "hostname")
_MASKED: Final = frozenset("gpu-0")  # letters of a UUID that somebody blanked out with zeros
_DENSE: Final = 2**16
_BURST_MS: Final = 500  # one call of the tool asks its GPUs within less


@dataclass(frozen=True)
class NamedGpu:
    """One GPU as a log names it."""

    device_id: str
    node: str | None
    accelerator: str | None
    index: int | None = field(default=None, compare=False)  # its number on its node


class GpuNames:
    """Names the GPUs of one log."""

    def __init__(self, log: Input, node: str | None, gaps: Gaps) -> None:
        self._log, self._node, self._gaps = log, node, gaps
        self._uuids: dict[tuple[str | None, str], str] = {}  # by number and by bus id, for rows that lost their UUID

    def find(self, columns: Mapping[str, Cells], count: int) -> tuple[list[NamedGpu], NDArray[np.int64]]:
        """The devices named in these columns, and for each of `count` rows which of them it is of, or -1."""
        present = {name: merge_equal(columns[name]) for name in _WHO if name in columns}
        code, size = np.zeros(count, dtype=np.int64), 1
        for cells in present.values():
            code, size = code * max(1, len(cells.texts)) + cells.codes, size * max(1, len(cells.texts))
        first, inverse = _find_distinct(code, size)
        often = np.bincount(inverse, minlength=len(first))
        texts = {name: cells.distinct() for name, cells in present.items()}
        numbers: dict[NamedGpu, int] = {}
        places = np.full(len(first), -1, dtype=np.int64)
        for i in np.argsort(first):
            named = {name: texts[name][cells.codes[first[i]]] for name, cells in present.items()}
            device = self._name_gpu(named, int(often[i]))
            if device is not None:
                places[i] = numbers.setdefault(device, len(numbers))
        return list(numbers), places[inverse]

    def _name_gpu(self, row: Mapping[str, str], often: int) -> NamedGpu | None:
        known_texts = {name: text for name, text in row.items() if not is_unmeasured(text)}
        node = self._node or known_texts.get("hostname")
        known = find_accelerator(known_texts["name"]) if "name" in known_texts else None
        own = known_texts.get("index", known_texts.get("bus_id"))
        names = [(node, known_texts[name]) for name in ("index", "bus_id") if name in known_texts]
        uuid = known_texts.get("uuid")
        if uuid is not None and _MASKED.issuperset(uuid.lower()):
            self._gaps.add(self._log.label, "masked UUID; the GPU is called by its node and number", often)
            uuid = None
            own = own if own is not None or row.keys() & {"index", "bus_id"} else "0"
        elif uuid is not None:
            self._uuids.update(dict.fromkeys(names, uuid))
        else:
            uuid = next((self._uuids[name] for name in names if name in self._uuids), None)
        if uuid is None and own is None:
            if row.keys() & {"uuid", "index", "bus_id"}:
                self._gaps.add(self._log.label, "row that does not say of which GPU it is", often)
                return None
            own = "0"  # a log of a machine with one GPU, see `refuse_several`
        if uuid is None:  # its name needs a node; one with a UUID sits where nobody knows, and may be in many files
            node = node or strip_endings(self._log.name or self._log.label)
            uuid = f"{node}/{own}"
        return NamedGpu(
            uuid, node, known.id if known else known_texts.get("name"), read_index(known_texts.get("index"))
        )


def _find_distinct(code: NDArray[np.int64], size: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The first row of each different code (codes are below `size`), in the order of the codes; for every row which of them it has.

    >>> _find_distinct(np.array([5, 2, 5]), 6)
    (array([1, 0]), array([1, 0, 1]))
    """
    if size > _DENSE:
        _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
        return first, inverse
    firsts = np.full(size, -1, dtype=np.intp)
    firsts[code[::-1]] = np.arange(len(code) - 1, -1, -1)  # of rows with one code the first is written last
    there = firsts >= 0
    return firsts[there], (np.cumsum(there) - 1)[code]


def refuse_several(label: str, at_ms: NDArray[np.int64]) -> None:
    """SourceError when rows that do not name their GPU are of several: they come in bursts, one row a GPU.

    >>> refuse_several("gpu.csv", np.array([0, 1000, 2000, 3000]))
    >>> refuse_several("gpu.csv", np.array([0, 2, 1000, 1002, 2000, 2003]))
    Traceback (most recent call last):
    loadfactor.base.errors.SourceError: gpu.csv: rows of several GPUs that do not say of which; record with uuid among the fields
    """
    gaps = np.abs(np.diff(at_ms))
    if len(gaps) == 0:
        return
    short = gaps < min(np.percentile(gaps, 99) / 10, _BURST_MS)
    bursts = np.count_nonzero(
        short[:-1] & ~short[1:]
    )  # a log whose step was changed has many short gaps, but no bursts
    if short.mean() >= 1 / 3 and bursts >= max(2, len(gaps) / 20):
        raise SourceError(f"{label}: rows of several GPUs that do not say of which; record with uuid among the fields")


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
        if at_ms is None and TIMESTAMP not in columns:
            self._refuse_repeated([devices[i].device_id for i in which[keep]])
        data: dict[str, Any] = {"to_utc": times}
        for measure in MEASURES:
            values = self._measure(measure, columns, keep)
            if values is not None:
                data[measure.column] = values
        mask = _find_throttle_mask(columns, count)
        if mask is not None:
            data["throttle_mask"] = mask
        if "mig" in columns and "busy_share" in data:
            on = _select(columns["mig"], "enabled")
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

    def _find_instants(self, columns: Mapping[str, Cells], count: int, line: int) -> Instants:
        if TIMESTAMP in columns:
            return self._times.convert(columns[TIMESTAMP], line)
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
        first, *others = named
        values = first_values = parse_numbers(first, measure.units)
        for other in others:
            values = np.where(np.isnan(values), parse_numbers(other, measure.units), values)
        missing = np.isnan(values) & keep
        if missing.any():
            often, unread = np.bincount(first.codes[missing]), np.isnan(first_values)
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
    mask[(mask == 0) & ~known] = _UNKNOWN  # what was not recorded may have slowed it
    return mask


def _select(cells: Cells, *expected: str) -> Which:
    return np.array([text.lower() in expected for text in cells.distinct()], dtype=bool)[cells.codes]


def _to_arrow(name: str, values: NDArray[Any]) -> pa.Array:
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
