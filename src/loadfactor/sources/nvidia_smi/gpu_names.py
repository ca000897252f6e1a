"""The GPU that each row is of: by its UUID, without one by the node and the GPU's number or bus id there."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.errors import SourceError
from loadfactor.catalog.accelerators import find_accelerator
from loadfactor.sources.base import Input
from loadfactor.sources.gpu_scrapes.series_identity import read_index
from loadfactor.sources.nvidia_smi.cells import Cells, is_unmeasured, merge_equal
from loadfactor.sources.parsing.file_names import strip_endings
from loadfactor.sources.parsing.gaps import Gaps

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
            said = {name: texts[name][cells.codes[first[i]]] for name, cells in present.items()}
            device = self._name_gpu(said, int(often[i]))
            if device is not None:
                places[i] = numbers.setdefault(device, len(numbers))
        return list(numbers), places[inverse]

    def _name_gpu(self, row: Mapping[str, str], often: int) -> NamedGpu | None:
        said = {name: text for name, text in row.items() if not is_unmeasured(text)}
        node = self._node or said.get("hostname")
        known = find_accelerator(said["name"]) if "name" in said else None
        own = said.get("index", said.get("bus_id"))
        names = [(node, said[name]) for name in ("index", "bus_id") if name in said]
        uuid = said.get("uuid")
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
        if uuid is None:  # its name needs a node; one with a UUID sits where nobody said, and may be in many files
            node = node or strip_endings(self._log.name or self._log.label)
            uuid = f"{node}/{own}"
        return NamedGpu(uuid, node, known.id if known else said.get("name"), read_index(said.get("index")))


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
