"""Reports of `nvidia-smi -q` as text: names and values nested by indent; a row a GPU and report."""

from collections.abc import Callable, Iterator
from typing import Final

from loadfactor.sources.base import Rows
from loadfactor.sources.nvidia_smi.columns import REASONS
from loadfactor.sources.nvidia_smi.samples import SampleBuilder

START: Final = b"NVSMI LOG"
_POWER: Final = ("power draw", "average power draw", "instantaneous power draw")
_NAMES: Final = {
    "product name": "name",
    "gpu uuid": "uuid",
    "mig mode/current": "mig",
    "utilization/gpu": "busy_share",
    "fb memory usage/used": "mem_used_bytes",
    "fb memory usage/total": "mem_total_bytes",
    **{f"{group}/{name}": "power_w" for group in ("gpu power readings", "power readings") for name in _POWER},
    "clocks/sm": "sm_clock_hz",
    "temperature/gpu current temp": "temperature_c",
    "pci/rx throughput": "pcie_rx_bytes_per_s",
    "pci/tx throughput": "pcie_tx_bytes_per_s",
    **{
        f"clocks {era} reasons/{name.removeprefix('gpu_').replace('_', ' ')}": f"reason:{name}"
        for era in ("event", "throttle")
        for name in REASONS
    },
}
"""Our names of values, by the path below the GPU in lower case; of several with one name the first with a number counts."""


_HELD_ROWS: Final = 2000


class TextReport:
    """The reports of one log. GPUs stand in the order of their numbers, so a report of all attached ones says the number of each.

    Recorded sessions take a report beside a query of the same second, which says more: rows are held until the log ends, and
    dropped where it has a query.
    """

    def __init__(self, builder: SampleBuilder, hold: Callable[[dict[str, str], int], Iterator[Rows]]) -> None:
        self._builder, self._hold = builder, hold
        self._rows: list[dict[str, str]] = []  # of the report that is read
        self._held: list[dict[str, str]] = []
        self._timestamp: str | None = None
        self._attached = ""
        self._groups: list[tuple[int, str]] = []

    def read(self, data: bytes, line: int) -> Iterator[Rows]:
        """More lines of the report."""
        for text in data.decode().split("\n"):
            if text.strip():
                self._read_line(text)
            if len(self._rows) + len(self._held) > _HELD_ROWS:
                yield from self.finish(line)

    def read_last(self, _line: bytes, _number: int) -> Iterator[Rows]:
        """The last line of a log that ends without a line end: it may be cut."""
        self._builder.gaps.add(self._builder.label, "last line, cut off")
        return iter(())

    def end(self) -> None:
        """The report ends here."""
        for number, row in enumerate(self._rows):
            if self._attached == str(len(self._rows)):
                row["index"] = str(number)
            self._held.append(row)
        self._rows, self._groups = [], []

    def finish(self, line: int) -> Iterator[Rows]:
        """The log ends here."""
        self.end()
        held, self._held = self._held, []
        for row in held:
            yield from self._hold(row, line)

    def drop(self) -> None:
        """The log has a query, too."""
        self.end()
        self._builder.gaps.add(
            self._builder.label, "skipped: a report of nvidia-smi -q, beside a query", len(self._held)
        )
        self._held = []

    def _read_line(self, text: str) -> None:
        indent = len(text) - len(text.lstrip())
        name, has_value, value = (part.strip() for part in text.partition(" : "))
        if not indent:
            if name.startswith("GPU ") and not has_value:
                self._rows.append({"bus_id": name.removeprefix("GPU ")})
                if self._timestamp is not None:
                    self._rows[-1]["timestamp"] = self._timestamp
            elif name == "Timestamp":
                self._timestamp = value
            elif name == "Attached GPUs":
                self._attached = value
            return
        while self._groups and self._groups[-1][0] >= indent:
            self._groups.pop()
        if not has_value:
            self._groups.append((indent, name.lower()))
        elif self._rows:
            ours = _NAMES.get("/".join([*(group for _, group in self._groups), name.lower()]))
            if ours is not None and not any(c.isdigit() for c in self._rows[-1].get(ours, "")):
                self._rows[-1][ours] = value
