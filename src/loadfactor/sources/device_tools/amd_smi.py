"""What amd-smi prints: `metric` and `monitor`, as CSV or JSON, once or watched."""

import json
from collections.abc import Iterator
from typing import Any, Final

from loadfactor.sources.base import Gaps, Input, ReadOptions
from loadfactor.sources.device_tools.readings import (
    AT,
    JSON_LIMIT_BYTES,
    Column,
    Row,
    begins_json,
    make_source,
    read_tables,
    rename,
)
from loadfactor.sources.parsing.text_blocks import join_pieces, split_blocks

_RECORD: Final = "amd-smi metric --usage --power --clock --temperature --mem-usage --watch 30 --csv"
_COLUMNS: Final = {
    "timestamp": Column(AT),
    "gpu": Column("index"),
    "gfx_activity": Column("busy_share", "%"),
    "gfx": Column("busy_share", "%"),  # of monitor
    "used_vram": Column("mem_used_bytes", "MB"),  # called MB, counted as MiB
    "vram_used": Column("mem_used_bytes", "MB"),
    "total_vram": Column("mem_total_bytes", "MB"),
    "vram_total": Column("mem_total_bytes", "MB"),
    "socket_power": Column("power_w", "W"),
    "average_socket_power": Column("power_w", "W"),
    "current_socket_power": Column("power_w", "W"),
    "power_usage": Column("power_w", "W"),
    "gfx_0_clk": Column("sm_clock_hz", "MHz"),
    "gfx_clk": Column("sm_clock_hz", "MHz"),
    "hotspot": Column("temperature_c", "C"),
    "hotspot_temperature": Column("temperature_c", "C"),
    "edge": Column("temperature_c", "C"),
}
_MEASURED: Final = frozenset(_COLUMNS) - {"timestamp", "gpu"}
_PARTITION: Final = "xcp"


def _read_rows(log: Input, _options: ReadOptions, gaps: Gaps) -> Iterator[Row]:
    for row in _read_json(log, gaps) if begins_json(log, _is_heading) else _read_csv(log, gaps):
        if row.get(_PARTITION, "0") not in ("0", "N/A", ""):
            gaps.add(log.label, "skipped: a partition, whose values are those of its GPU")
        else:
            yield rename(row, _COLUMNS)


def _read_csv(log: Input, gaps: Gaps) -> Iterator[Row]:
    for _, row in read_tables(log, gaps, _is_heading):
        yield row


def _is_heading(cells: list[str]) -> bool:
    return "gpu" in cells and not _MEASURED.isdisjoint(cells)


def _read_json(log: Input, gaps: Gaps) -> Iterator[Row]:
    for document in read_documents(log, gaps):
        entries = document.get("gpu_data", [document]) if isinstance(document, dict) else document
        for entry in entries if isinstance(entries, list) else []:
            row = _flatten(entry) if isinstance(entry, dict) else {}
            if "gpu" in row and not _MEASURED.isdisjoint(row):
                yield row


def _flatten(entry: dict[str, Any]) -> Row:
    """An entry under the names of the CSV: those of groups fall away, names below are joined.

    >>> _flatten({"gpu": 0, "clock": {"gfx_0": {"clk": {"value": 132, "unit": "MHz"}}}, "power": "N/A"})
    {'gpu': '0', 'power': 'N/A', 'gfx_0_clk': '132 MHz'}
    """
    row: Row = {}
    todo: list[tuple[str, Any, int]] = [(name, value, 0) for name, value in entry.items()]
    for name, value, depth in todo:
        if not isinstance(value, dict):
            row[name] = str(value)
        elif "value" in value:
            row[name] = f"{value['value']} {value.get('unit', '')}".strip()
        else:
            todo += [(inner if depth == 0 else f"{name}_{inner}", of, depth + 1) for inner, of in value.items()]
    return row


def read_documents(log: Input, gaps: Gaps) -> Iterator[Any]:
    """The JSON documents of a log, one after the other; what is none is passed over up to the next line that begins one.

    Raises SourceError when the log is larger than 64 MiB.
    """
    text = join_pieces(
        log.label, (block.data for block in split_blocks(log)), JSON_LIMIT_BYTES, "split it, or record as CSV"
    ).decode()
    decode, at = json.JSONDecoder().raw_decode, 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        try:
            document, at = decode(text, at)
        except (ValueError, RecursionError):
            is_document = text[at] in "{["
            gaps.add(
                log.label, "skipped: a document of broken JSON" if is_document else "skipped: lines that are no JSON"
            )
            starts = [i for i in (text.find("\n{", at + 1), text.find("\n[", at + 1)) if i >= 0]
            at = min(starts, default=len(text))
            continue
        yield document


SOURCE = make_source("amd-smi", (".csv", ".json", ".log", ".txt"), _RECORD, _read_rows)
