"""What `dcgmi dmon` prints of NVIDIA's GPUs: a table that goes on, without times, its columns by DCGM's short names."""

import re
from collections.abc import Iterator
from typing import Final

from loadfactor.base.units import PERCENT
from loadfactor.sources.base import Gaps, Input, ReadOptions
from loadfactor.sources.device_tools.readings import Column, Row, list_lines, make_source, rename

_RECORD: Final = (
    "dcgmi dmon -e 50,54,203,1001,1002,1003,1004,1005,252,250,155,150,100 -d 10000; --at says when it began, --step 10"
)
_MODEL: Final = "DVNAM"
_MASK: Final = "DVCCTR"
_NVLINK: Final = "NVLTX + NVLRX"
_GAP: Final = re.compile(r" {2,}")
_COLUMNS: Final = {
    "GPUTL": Column("busy_share", "%"),
    "GRACT": Column("engine_active_share", "%"),
    "SMACT": Column("sm_active_share", "%"),
    "SMOCC": Column("sm_occupancy_share", "%"),
    "TENSO": Column("tensor_active_share", "%"),
    "FP32A": Column("fp32_active_share", "%"),
    "DRAMA": Column("dram_active_share", "%"),
    "FBUSD": Column("mem_used_bytes", "MiB"),
    "FBTTL": Column("mem_total_bytes", "MiB"),
    "POWER": Column("power_w", "W"),
    "TMPTR": Column("temperature_c", "C"),
    "SMCLK": Column("sm_clock_hz", "MHz"),
    "PCITX": Column("pcie_tx_bytes_per_s", "B/s"),
    "PCIRX": Column("pcie_rx_bytes_per_s", "B/s"),
    "TXTPT": Column("pcie_tx_bytes_per_s", "KB/s"),
    "RXTPT": Column("pcie_rx_bytes_per_s", "KB/s"),
    _NVLINK: Column("nvlink_bytes_per_s", "B/s"),
    _MASK: Column("reasons"),
    "UUID#": Column("uuid"),
    _MODEL: Column("name"),
}
"""Short names of fields: of 50, 54, 100, 112, 150, 155, 200 to 203, 250, 252 and 1001 to 1012 (dcgm_fields.cpp of NVIDIA/DCGM)."""
_OF_ONE: Final = ("GRACT", "SMACT", "SMOCC", "TENSO", "FP32A", "DRAMA")
"""Columns of shares between 0 and 1."""
_ENTITY: Final = "#Entity"


def _read_rows(log: Input, _options: ReadOptions, gaps: Gaps) -> Iterator[Row]:
    names: list[str] = []
    for line, is_whole in list_lines(log):
        kind, *cells = line.split()
        if kind == _ENTITY:
            names = cells
            continue
        if kind == "ID":
            continue  # units, below a heading
        if names and len(cells) != len(names) + 1 and is_whole:
            who, *spaced = _GAP.split(line.strip())
            cells = [*who.split()[1:], *spaced]  # names of models have single blanks
        if not names or len(cells) != len(names) + 1 or not cells[0].isdigit() or not is_whole:
            gaps.add(log.label, "skipped: a line that is no row of its heading" if is_whole else "last line, cut off")
        elif kind != "GPU":
            gaps.add(log.label, f"skipped: a row of {kind}, of which nobody says which GPU it is on")
        else:
            row = dict(zip(names, cells[1:], strict=True))
            if row.get(_MODEL, "").endswith("..."):
                del row[_MODEL]  # longer than the column
            links = [row[name] for name in _NVLINK.split(" + ") if name in row]
            if len(links) > 1:
                row[_NVLINK] = str(sum(map(int, links))) if all(map(str.isdecimal, links)) else "N/A"
            yield rename({name: _write_cell(name, text) for name, text in row.items()}, _COLUMNS) | {"index": cells[0]}


def _write_cell(name: str, text: str) -> str:
    """A share between 0 and 1 in percent, a mask as nvidia-smi writes it; what is none stays as it is.

    >>> _write_cell("SMACT", "0.871"), _write_cell("SMACT", "N/A"), _write_cell("POWER", "71.2"), _write_cell("DVCCTR", "4")
    ('87.1', 'N/A', '71.2', '0x4')
    """
    try:
        if name == _MASK:
            return f"{int(text):#x}"
        return f"{float(text) * PERCENT:.9g}" if name in _OF_ONE else text
    except ValueError:
        return text


SOURCE = make_source("dcgmi", (".log", ".txt"), _RECORD, _read_rows)
