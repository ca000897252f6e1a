"""What `npu-smi info watch` prints of Huawei's Ascend processors: a table that goes on, without times."""

import re
from collections.abc import Iterator
from typing import Final

from loadfactor.sources.base import Gaps, Input, ReadOptions
from loadfactor.sources.device_tools.readings import Column, Row, make_source, read_tables, rename

_RECORD: Final = "npu-smi info watch -d 30, and say when it began with --at and --step 30"
_COLUMNS: Final = {
    "AI Core(%)": Column("busy_share", "%"),
    "Memory BW(%)": Column("dram_active_share", "%"),
    "Pwr(W)": Column("power_w", "W"),
    "Temp(C)": Column("temperature_c", "C"),
}
_NPU: Final = ("NpuID(Idx)", "NpuID")
_CHIP: Final = ("ChipId(Idx)", "ChipID")
_WIDE: Final = re.compile(r"\s{2,}|\t|(?<=\))\s")  # names of columns hold single blanks


def _read_rows(log: Input, _options: ReadOptions, gaps: Gaps) -> Iterator[Row]:
    def is_heading(cells: list[str]) -> bool:
        return cells[0] in _NPU

    for _, row in read_tables(log, gaps, is_heading, str.split, lambda line: _WIDE.split(line.strip())):
        npu = next(row[name] for name in _NPU if name in row)
        chip = next((row[name] for name in _CHIP if name in row), "0")
        named = {"index": npu} if chip == "0" else {"bus_id": f"{npu}.{chip}"}
        if npu.isdigit():
            yield {**rename(row, _COLUMNS), **named}
        else:
            gaps.add(log.label, "skipped: a line that is no row of its heading")


SOURCE = make_source("npu-smi", (".log", ".txt"), _RECORD, _read_rows)
