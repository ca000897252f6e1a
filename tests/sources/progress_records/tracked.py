"""What an import makes of the files of tracked runs."""

from collections import defaultdict
from pathlib import Path
from typing import Any

from loadfactor.sources.base import Gap, ReadOptions, Rows
from loadfactor.sources.progress_records import SOURCE


def read_rows(folder: Path) -> tuple[dict[str, list[dict[str, Any]]], list[Gap]]:
    """Rows by table, and gaps, that an import of a folder makes."""
    rows: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    gaps = []
    for item in SOURCE.read(SOURCE.files((folder,)), ReadOptions()):
        if isinstance(item, Rows):
            rows[item.table] += item.data.to_pylist()
        else:
            gaps.append(item)
    return rows, gaps


def total(rows: list[dict[str, Any]], unit: str, kept: bool = True) -> float:
    """How much of a unit was kept, or lost."""
    return sum(row["amount"] for row in rows if row["unit"] == unit and row["kept"] is kept)
