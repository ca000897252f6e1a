"""Logs of `nvidia-smi dmon`: columns as their headings announce them; times only with `-o DT`."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from loadfactor.base.errors import SourceError
from loadfactor.base.units import MS_PER_S
from loadfactor.sources.base import Rows
from loadfactor.sources.nvidia_smi.cells import Cells, encode_cells
from loadfactor.sources.nvidia_smi.columns import DMON_HEADINGS, DMON_NAMES
from loadfactor.sources.nvidia_smi.samples import SampleBuilder


def parse_dmon_heading(line: bytes) -> tuple[str, ...] | None:
    """The columns that this line announces, or None when it is no heading of dmon.

    >>> parse_dmon_heading(b"# gpu    pwr  gtemp     sm")
    ('gpu', 'pwr', 'gtemp', 'sm')
    >>> parse_dmon_heading(b"#Date       Time        gpu    sm ")
    ('date', 'time', 'gpu', 'sm')
    >>> parse_dmon_heading(b"# Idx      W      C      %") is None
    True
    """
    if not line.startswith(b"#"):
        return None
    names = tuple(line[1:].replace(b",", b" ").decode(errors="replace").lower().split())
    if names[:1] not in (("gpu",), ("date",), ("time",)) or "gpu" not in names[:3] or "pid" in names:
        return None
    return names if DMON_HEADINGS.intersection(names) else None


class DmonLog:
    """One heading of dmon and the rows below it."""

    def __init__(self, names: tuple[str, ...], builder: SampleBuilder, alone: bool) -> None:
        self.names = names
        self._builder = builder
        self._cycles: Counter[str] = Counter()
        label, options = builder.label, builder.options
        self._dated = "date" in names and "time" in names
        self._untimed = not self._dated and (options.at_ms is None or not alone)
        if alone and not self._dated and ("date" in names or "time" in names or options.at_ms is None):
            raise SourceError(
                f"{label}: dmon without date and time; record with nvidia-smi dmon -o DT, or say when it began with --at"
            )
        builder.gaps.add(label, "skipped: a column that is not kept", sum(name not in DMON_NAMES for name in names))

    def read(self, data: bytes, line: int) -> Iterator[Rows]:
        """The rows of whole lines; headings repeated among them are passed over."""
        label, gaps = self._builder.label, self._builder.gaps
        lines = [text for text in data.decode().split("\n") if text.strip() and not text.startswith("#")]
        split = [text.replace(",", " ").split() for text in lines]
        good = [cells for cells in split if len(cells) == len(self.names)]
        gaps.add(label, "skipped: a line that is no row of its heading", len(lines) - len(good))
        if not good:
            return
        if self._untimed:
            gaps.add(label, "skipped: a row of dmon without a time (record with -o DT)", len(good))
            return
        texts = dict(zip(self.names, zip(*good, strict=True), strict=True))
        columns = {
            DMON_NAMES[n]: _encode(n, texts[n]) for n in self.names if n in DMON_NAMES and n not in ("date", "time")
        }
        if self._dated:
            both = [f"{d} {t}" for d, t in zip(texts["date"], texts["time"], strict=True)]
            yield from self._builder.build({**columns, "timestamp": _encode("Date and Time", both)}, line)
        else:
            yield from self._builder.build(columns, line, self._count_instants(texts["gpu"]))

    def read_last(self, line: bytes, number: int) -> Iterator[Rows]:
        """The last line of a log that ends without a line end; dmon pads its cells, so a whole line ends in a blank."""
        if line.endswith(b" "):
            yield from self.read(line, number)
        else:
            self._builder.gaps.add(self._builder.label, "last line, cut off")

    def _count_instants(self, gpus: tuple[str, ...]) -> Any:
        """Instants of rows without times: the n-th row of a GPU comes n - 1 steps after the beginning."""
        at_ms, step_s = self._builder.options.at_ms, self._builder.options.step_s
        turns = []
        for gpu in gpus:
            turns.append(self._cycles[gpu])
            self._cycles[gpu] += 1
        if step_s is None and max(turns):
            raise SourceError(
                f"{self._builder.label}: dmon without times; say how many seconds lie between its rows with --step "
                "(its own default is 1)"
            )
        assert at_ms is not None
        return at_ms + np.array(turns, dtype=np.int64) * round((step_s or 0) * MS_PER_S)


def _encode(name: str, texts: Any) -> Cells:
    return encode_cells(name, None, pa.array(texts, type=pa.string()))
