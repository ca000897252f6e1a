"""What `dcgmi dmon` prints of NVIDIA's GPUs: a table that goes on, without times, its columns by DCGM's short names."""

from collections.abc import Iterator
from typing import Final

from loadfactor.base.units import PERCENT
from loadfactor.sources.base import Gaps, Input, ReadOptions
from loadfactor.sources.device_tools.readings import Column, Row, list_lines, make_source, rename

_RECORD: Final = (
    "dcgmi dmon -e 203,1001,1002,1003,1004,1005,252,250,155,150,100 -d 10000; --at says when it began, --step 10"
)
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
}
_OF_ONE: Final = ("GRACT", "SMACT", "SMOCC", "TENSO", "FP32A", "DRAMA")
"""Columns of shares between 0 and 1."""
_ENTITY: Final = "#Entity"


def _read_rows(log: Input, _options: ReadOptions, gaps: Gaps) -> Iterator[Row]:
    names: list[str] = []
    for line, is_whole in list_lines(log):
        kind, *cells = line.split()
        if kind == _ENTITY:
            names = cells
        elif kind == "ID":
            continue  # units, below a heading
        elif not names or len(cells) != len(names) + 1 or not cells[0].isdigit() or not is_whole:
            gaps.add(log.label, "skipped: a line that is no row of its heading" if is_whole else "last line, cut off")
        elif kind != "GPU":
            gaps.add(log.label, f"skipped: a row of {kind}, of which nobody says which GPU it is on")
        else:
            row = dict(zip(names, cells[1:], strict=True))
            yield rename({name: _write_percent(name, text) for name, text in row.items()}, _COLUMNS) | {
                "index": cells[0]
            }


def _write_percent(name: str, text: str) -> str:
    """A share between 0 and 1 in percent; what is none stays as it is.

    >>> _write_percent("SMACT", "0.871"), _write_percent("SMACT", "N/A"), _write_percent("POWER", "71.2")
    ('87.1', 'N/A', '71.2')
    """
    try:
        return f"{float(text) * PERCENT:.9g}" if name in _OF_ONE else text
    except ValueError:
        return text


SOURCE = make_source("dcgmi", (".log", ".txt"), _RECORD, _read_rows)
