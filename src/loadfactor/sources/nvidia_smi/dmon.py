"""Logs of `nvidia-smi dmon`: columns as their headings announce them; times only with `-o DT`."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

import numpy as np
import pyarrow as pa

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_MIB, MS_PER_S
from loadfactor.sources.base import Rows
from loadfactor.sources.nvidia_smi.cells import Cells, encode_cells
from loadfactor.sources.nvidia_smi.columns import DMON_HEADINGS, DMON_NAMES, MEASURES, REASONS
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


_TOP: Final = 2  # depth of <timestamp> and <gpu> below <nvidia_smi_log>
_HELD_ROWS: Final = 2000
_GPU_BYTES: Final = 16 * BYTES_PER_MIB  # far above any description of one GPU, as is:
_GPU_ELEMENTS: Final = 100_000
END: Final = b"</nvidia_smi_log>"
STARTS: Final = (b"<?xml", b"<!DOCTYPE nvidia_smi_log", b"<nvidia_smi_log")
_PATHS: Final = {
    "uuid": ("uuid",),
    "name": ("product_name",),
    "mig": ("mig_mode/current_mig",),
    **{measure.column: measure.xml for measure in MEASURES if measure.xml},
    **{
        f"reason:{name}": tuple(f"clocks_{era}_reasons/clocks_{era}_reason_{name}" for era in ("event", "throttle"))
        for name in REASONS
    },
}
_TAGS: Final = {name: paths[0].rpartition("/")[2] for name, paths in _PATHS.items()}


class XmlLog:
    """The documents of one log, fed piece by piece; a row a GPU and document."""

    def __init__(self, builder: SampleBuilder) -> None:
        self._builder = builder
        self._held: list[dict[str, str]] = []
        self._parser: XMLPullParser[Element] | None = None
        self._timestamp: str | None = None
        self._depth = self._pending = self._elements = 0
        self._root: Element | None = None

    def begin(self) -> None:
        """A new document starts."""
        if self._parser is not None:
            self._builder.gaps.add(self._builder.label, "document, cut off")
        self._parser = XMLPullParser(events=("start", "end"))
        self._timestamp, self._root, self._depth, self._pending, self._elements = None, None, 0, 0, 0

    @property
    def inside(self) -> bool:
        """True between the beginning of a document and its end."""
        return self._parser is not None

    def feed(self, data: bytes, line: int) -> Iterator[Rows]:
        """More of the document; broken XML is passed over up to the next one."""
        if self._parser is None:
            return
        self._pending += len(data)
        try:
            if self._pending > _GPU_BYTES or b"<!ENTITY" in data:  # nvidia-smi declares none; they multiply
                raise ParseError
            self._parser.feed(data)
            for event, element in self._parser.read_events():  # type: ignore[misc]
                self._handle(str(event), element)  # type: ignore[arg-type]
        except (ParseError, ValueError, LookupError):  # LookupError: an encoding nobody knows
            self._builder.gaps.add(self._builder.label, "document of broken XML")
            self._parser = None
        if len(self._held) >= _HELD_ROWS:
            yield from self.flush(line)

    def hold(self, row: dict[str, str], line: int) -> Iterator[Rows]:
        """A row that was read of a text, under our names."""
        self._held.append(row)
        if len(self._held) >= _HELD_ROWS:
            yield from self.flush(line)

    def end(self, line: int) -> Iterator[Rows]:
        """The document ends here."""
        self._parser = None
        yield from self.flush(line) if len(self._held) >= _HELD_ROWS else ()

    def finish(self, line: int) -> Iterator[Rows]:
        """The log ends here."""
        if self._parser is not None:
            self._builder.gaps.add(self._builder.label, "document, cut off")
            self._parser = None
        yield from self.flush(line)

    def flush(self, line: int) -> Iterator[Rows]:
        """The rows held so far, together with others that know the same columns."""
        held, self._held = self._held, []
        for timed in (True, False):
            rows = [row for row in held if ("timestamp" in row) == timed]
            names = dict.fromkeys(name for row in rows for name in row)
            columns = {
                n: encode_cells(_TAGS.get(n, n), None, pa.array([r.get(n, "") for r in rows], type=pa.string()))
                for n in names
            }
            if rows:
                yield from self._builder.build(columns, line)

    def _handle(self, event: str, element: Element) -> None:
        if event == "start":
            self._depth += 1
            self._elements += 1
            if self._elements > _GPU_ELEMENTS:
                raise ParseError
            self._root = self._root if self._root is not None else element
            return
        if self._depth == _TOP and element.tag == "timestamp":
            self._timestamp = (element.text or "").strip()
        elif self._depth == _TOP and element.tag == "gpu":
            self._held.append(self._read_gpu(element))
        if self._depth == _TOP and self._root is not None:
            self._root.clear()
            self._pending = self._elements = 0
        self._depth -= 1

    def _read_gpu(self, gpu: Element) -> dict[str, str]:
        """The texts of one GPU under our names; what the document does not have is left out."""
        row = {"bus_id": gpu.get("id") or ""}
        for name, paths in _PATHS.items():
            found = [text for path in paths if (text := gpu.findtext(path)) is not None]
            measured = [text for text in found if any(c.isdigit() for c in text)]
            if found:
                row[name] = (measured or found)[0].strip()
        if self._timestamp:
            row["timestamp"] = self._timestamp
        instances = len(gpu.findall("mig_devices/mig_device"))
        self._builder.gaps.add(self._builder.label, "MIG instance, which nvidia-smi does not measure", instances)
        return row
