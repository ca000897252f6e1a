"""What rocm-smi prints as JSON or CSV: one reading of every GPU a call, without a time."""

import re
from collections.abc import Iterator
from typing import Final

from loadfactor.sources.base import Gaps, Input, ReadOptions
from loadfactor.sources.device_tools.amd_smi import read_documents
from loadfactor.sources.device_tools.readings import Column, Row, begins_json, make_source, read_tables, rename

_RECORD: Final = "amd-smi metric --watch 30 --csv, which writes times"
_COLUMNS: Final = {
    "Unique ID": Column("uuid"),
    "device": Column("index"),
    "Card Series": Column("name"),
    "Card series": Column("name"),
    "Card Model": Column("name"),
    "Card model": Column("name"),
    "Device Name": Column("name"),
    "GPU use (%)": Column("busy_share", "%"),
    "VRAM Total Used Memory (B)": Column("mem_used_bytes", "B"),
    "VRAM Total Memory (B)": Column("mem_total_bytes", "B"),
    "Average Graphics Package Power (W)": Column("power_w", "W"),
    "Current Socket Graphics Package Power (W)": Column("power_w", "W"),
    "sclk clock speed:": Column("sm_clock_hz", "MHz"),
    "Temperature (Sensor junction) (C)": Column("temperature_c", "C"),
    "Temperature (Sensor edge) (C)": Column("temperature_c", "C"),
}
_MEASURED: Final = frozenset(_COLUMNS) - {
    "Unique ID",
    "device",
    "Card Series",
    "Card series",
    "Card Model",
    "Card model",
    "Device Name",
}
_CARD: Final = re.compile(r"card(\d+)")
_PRODUCT: Final = re.compile(r"\[(.+)\]")


def _read_rows(log: Input, _options: ReadOptions, gaps: Gaps) -> Iterator[Row]:
    for row in _read_json(log, gaps) if begins_json(log, _is_heading) else _merge_blocks(log, gaps):
        if not _MEASURED.isdisjoint(row):
            card = _CARD.fullmatch(row["device"])
            clock = row.get("sclk clock speed:", "").strip("()").replace("Mhz", " MHz")
            renamed = rename({**row, "device": card[1] if card else row["device"]}, _COLUMNS)
            product = _PRODUCT.search(renamed.get("name", ""))
            if product:
                renamed["name"] = product[1]
            if renamed.get("uuid", "N/A") == "N/A":
                renamed.pop("uuid", None)
            if clock:
                renamed["sm_clock_hz"] = clock
            yield renamed


def _read_json(log: Input, gaps: Gaps) -> Iterator[Row]:
    for document in read_documents(log, gaps):
        for card, values in document.items() if isinstance(document, dict) else ():
            if _CARD.fullmatch(card) and isinstance(values, dict):
                yield {"device": card, **{name: str(value) for name, value in values.items()}}


def _merge_blocks(log: Input, gaps: Gaps) -> Iterator[Row]:
    """Rows of CSV; blocks under other headings, which one call prints one after the other, are of the same reading."""
    found: dict[str, Row] = {}
    read: set[tuple[str, tuple[str, ...]]] = set()
    for names, row in read_tables(log, gaps, _is_heading):
        card = row[names[0]]
        if (card, names) in read:
            yield from found.values()
            found, read = {}, set()
        read.add((card, names))
        found.setdefault(card, {}).update({**row, "device": card})
    yield from found.values()


def _is_heading(cells: list[str]) -> bool:
    return bool(cells) and cells[0].lower() == "device"


SOURCE = make_source("rocm-smi", (".csv", ".json", ".log", ".txt"), _RECORD, _read_rows)
