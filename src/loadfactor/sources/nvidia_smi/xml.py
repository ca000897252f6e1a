"""Documents of `nvidia-smi -q -x`, one after the other, of any version of its schema."""

from collections.abc import Iterator
from typing import Final
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

import pyarrow as pa

from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.sources.base import Rows
from loadfactor.sources.nvidia_smi.cells import encode_cells
from loadfactor.sources.nvidia_smi.columns import MEASURES, REASONS
from loadfactor.sources.nvidia_smi.samples import SampleBuilder

_TOP: Final = 2  # depth of <timestamp> and <gpu> below <nvidia_smi_log>
_HELD_ROWS: Final = 2000
_GPU_BYTES: Final = 16 * BYTES_PER_MIB  # far above any description of one GPU
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
        self._depth = self._pending = 0
        self._root: Element | None = None

    def begin(self) -> None:
        """A new document starts."""
        if self._parser is not None:
            self._builder.gaps.add(self._builder.label, "document, cut off")
        self._parser = XMLPullParser(events=("start", "end"))
        self._timestamp, self._root, self._depth, self._pending = None, None, 0, 0

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
            if self._pending > _GPU_BYTES:
                raise ParseError
            self._parser.feed(data)
            for event, element in self._parser.read_events():  # type: ignore[misc]
                self._handle(str(event), element)  # type: ignore[arg-type]
        except (ParseError, ValueError, LookupError):  # LookupError: an encoding nobody knows
            self._builder.gaps.add(self._builder.label, "document of broken XML")
            self._parser = None
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
            self._root = self._root if self._root is not None else element
            return
        if self._depth == _TOP and element.tag == "timestamp":
            self._timestamp = (element.text or "").strip()
        elif self._depth == _TOP and element.tag == "gpu":
            self._held.append(self._read_gpu(element))
        if self._depth == _TOP and self._root is not None:
            self._root.clear()
            self._pending = 0
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
