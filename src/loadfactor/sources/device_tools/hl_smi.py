"""What `hl-smi -Q … -f csv` prints of Intel's Gaudi accelerators."""

from collections.abc import Iterator
from typing import Final

from loadfactor.sources.base import Gaps, Input, ReadOptions
from loadfactor.sources.device_tools.readings import Column, Row, drop_zone_name, make_source, read_tables, rename

_RECORD: Final = (
    "hl-smi -Q timestamp,index,uuid,name,utilization.aip,memory.used,memory.total,power.draw,temperature.aip "
    "-f csv -l 30"
)
_COLUMNS: Final = {
    "timestamp": Column("timestamp"),
    "uuid": Column("uuid"),
    "serial": Column("uuid"),
    "index": Column("index"),
    "module_id": Column("index"),
    "bus_id": Column("bus_id"),
    "name": Column("name"),
    "utilization.aip": Column("busy_share", "%"),
    "memory.used": Column("mem_used_bytes", "MiB"),
    "memory.total": Column("mem_total_bytes", "MiB"),
    "power.draw": Column("power_w", "W"),
    "temperature.aip": Column("temperature_c", "C"),
}
_KNOWN_BY: Final = frozenset(_COLUMNS) - {"timestamp", "name"}


def _read_rows(log: Input, _options: ReadOptions, gaps: Gaps) -> Iterator[Row]:
    for _, row in read_tables(log, gaps, _is_heading):
        renamed = rename({name.partition(" [")[0]: text for name, text in row.items()}, _COLUMNS)
        if "timestamp" in renamed:
            renamed["timestamp"] = drop_zone_name(renamed["timestamp"])
        yield renamed


def _is_heading(cells: list[str]) -> bool:
    names = {cell.partition(" [")[0] for cell in cells}
    return len(_KNOWN_BY.intersection(names)) >= min(2, len(cells)) or names == {"timestamp", "power.draw"}


SOURCE = make_source("hl-smi", (".csv", ".log", ".txt"), _RECORD, _read_rows, local_times=True)
