"""Training loops as processes of their own, and what their files say."""

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from loadfactor.sources.base import Gap, ReadOptions, Rows
from loadfactor.sources.progress_records import SOURCE

SRC = Path(__file__).resolve().parents[3] / "src"
KNOWN = ("PATH", "HOME", "PYTHONHOME", "LD_LIBRARY_PATH")


def run_loop(code: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script that has imported `loadfactor` in a clean environment; it writes to a folder."""
    environment = {name: os.environ[name] for name in KNOWN if name in os.environ}
    environment |= {"PYTHONPATH": str(SRC), "LOADFACTOR_PROGRESS": str(folder), **variables}
    script = f"import os, sys, time, loadfactor\n{code}"
    return subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def read_lines(folder: Path) -> list[dict[str, Any]]:
    """Every line of the files in a folder, file by file."""
    return [json.loads(line) for path in sorted(folder.rglob("*.jsonl")) for line in path.read_text().splitlines()]


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
