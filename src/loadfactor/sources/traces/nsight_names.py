"""The texts of an export of Nsight Systems: strings by their id, and the names that copies get."""

import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.sources.traces.tables import NULL, Tables

_VERSION: Final = re.compile(r"_(v\d+|ptsz|ptds)\w*$")
DIRECTIONS: Final = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoA",
    4: "AtoH",
    5: "AtoA",
    6: "AtoD",
    7: "DtoA",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
    11: "HtoD managed",
    12: "DtoH managed",
    13: "DtoD managed",
}
"""CUpti_ActivityMemcpyKind, and Nsight's own kinds of managed memory."""
MEMORIES: Final = {
    0: "Pageable",
    1: "Pinned",
    2: "Device",
    3: "Array",
    4: "Managed",
    5: "Device Static",
    6: "Managed Static",
}


class ExportNames:
    """Texts by number; those of `StringIds` by their id."""

    def __init__(self, tables: Tables) -> None:
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._strings: dict[int, str] = {}
        if "StringIds" in tables.names():
            ids = tables.numbers("StringIds", ("id",))[:, 0].tolist()
            self._strings = {
                key: str(text or "") for key, text in zip(ids, tables.texts("StringIds", "value"), strict=True)
            }

    def number(self, name: str) -> int:
        """The number of a text."""
        if name not in self._numbers:
            self._numbers[name] = len(self.names)
            self.names.append(name)
        return self._numbers[name]

    def number_all(self, ids: NDArray[np.int64], strip: bool = False) -> NDArray[np.int32]:
        """The numbers of strings by their ids, -1 where there is none; `strip` leaves versions of calls out: cudaMalloc_v3020."""
        known, place = np.unique(ids, return_inverse=True)
        numbers = []
        for key in known.tolist():
            text = self._strings.get(key) if key != NULL else None
            numbers.append(-1 if text is None else self.number(_VERSION.sub("", text) if strip else text))
        return np.array(numbers, np.int32)[place] if len(ids) else np.empty(0, np.int32)

    def number_copies(self, kinds: NDArray[np.int64]) -> NDArray[np.int32]:
        """The numbers of copies' names, as Kineto writes them, from rows of direction, source and target."""
        known, place = np.unique(kinds, axis=0, return_inverse=True)
        numbers = []
        for direction, source, target in known.tolist():
            way = DIRECTIONS.get(direction, f"kind {direction}")
            ends = [MEMORIES.get(end, "?") for end in (source, target)]
            where = f" ({ends[0]} -> {ends[1]})" if source != NULL and target != NULL else ""
            numbers.append(self.number(f"Memcpy {way}{where}"))
        return np.array(numbers, np.int32)[place.reshape(-1)] if len(kinds) else np.empty(0, np.int32)
