"""What the kit measured beside what loadfactor says: constants of the catalog, diagnoses, plans.

`python -m benchmarks.hardware.compare DIR` reads the folder that the kit left, on any machine where loadfactor is installed, and
writes into it measured.json, which is kept in catalog/measurements, training.csv and serving.csv, which `loadfactor validate`
reads, and comparison.md. It takes a measured.json instead of a folder, and then only prints.
"""

import csv
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.hardware.compare_diagnoses import diagnose_books, judge_traces
from benchmarks.hardware.compare_plans import (
    SERVING_COLUMNS,
    TRAINING_COLUMNS,
    compare_serving,
    compare_training,
    list_serving_rows,
    list_training_rows,
)
from benchmarks.hardware.compare_rates import compare_rates, compare_signals
from benchmarks.hardware.gather import gather
from loadfactor.catalog.accelerators import find_accelerator

Row = Mapping[str, Any]


def main() -> None:
    """Compare, print the tables."""
    if len(sys.argv) != 2:
        sys.exit("python -m benchmarks.hardware.compare DIR, where DIR is what the kit left")
    path = Path(sys.argv[1])
    measured = json.loads(path.read_text()) if path.is_file() else gather(path)
    text = write_tables(measured, compare(measured))
    if path.is_dir():
        (path / "measured.json").write_text(json.dumps(measured, indent=1) + "\n")
        (path / "comparison.md").write_text(text)
        _write_rows(path / "training.csv", TRAINING_COLUMNS, list_training_rows(measured))
        _write_rows(path / "serving.csv", SERVING_COLUMNS, list_serving_rows(measured))
    print(text)


def _write_rows(path: Path, columns: Sequence[str], rows: Sequence[Row]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def compare(measured: Row) -> dict[str, Sequence[Row]]:
    """The rows of every table; what needs an accelerator of the catalog has none on another one."""
    chip = find_accelerator(measured["machine"]["device"])
    return {
        "readings": measured["readings"],
        "signals": compare_signals(measured["loads"], chip) if chip else [],
        "rates": compare_rates(measured["rates"], chip) if chip else [],
        "training": compare_training(measured["training"], chip) if chip else [],
        "serving": compare_serving(measured["serving"], chip) if chip else [],
        "traces": judge_traces(measured),
        "books": diagnose_books(measured),
    }


TABLES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("readings", "The agent's readings beside nvidia-smi's",
     ("metric", "field", "idle", "idle_smi", "load", "load_smi", "agrees")),
    ("signals", "Signals under known work", ("load", "signal", "work", "expected", "measured")),
    ("rates", "Rates beside constants", ("what", "measured", "of_peak", "constant", "predicted", "error")),
    ("training", "Training steps beside `plan train`",
     ("case", "fault", "tokens_per_s", "step_s", "predicted_step_s", "error", "mfu", "predicted_mfu", "peak_gib",
      "predicted_peak_gib")),
    ("serving", "Prefill and decode beside `plan serve`", ("what", "seconds", "predicted_s", "error", "host_s")),
    ("traces", "Known faults, and what their traces were diagnosed as", ("case", "fault", "expected", "found", "is_right")),
    ("books", "Known faults, and what books say of their telemetry", ("case", "fault", "signals", "expected", "found", "is_right")),
)  # fmt: skip


def write_tables(measured: Row, compared: Mapping[str, Sequence[Row]]) -> str:
    """All tables in Markdown."""
    chip = find_accelerator(measured["machine"]["device"])
    known = chip.id if chip else "none, so nothing is compared with constants or plans"
    parts = [f"Measured: {measured['source']}. Accelerator of the catalog: {known}.\n"]
    for name, title, columns in TABLES:
        if rows := compared[name]:
            lines = [f"| {' | '.join(column.replace('_', ' ') for column in columns)} |", "|---" * len(columns) + "|"]
            lines += [f"| {' | '.join(write_cell(column, row.get(column)) for column in columns)} |" for row in rows]
            parts.append(f"## {title}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


SHARES = ("of_peak", "mfu", "predicted_mfu")


def write_cell(column: str, value: Any) -> str:
    """A value in a table: four digits, shares in percent.

    >>> write_cell("error", -0.123), write_cell("seconds", 0.0123456), write_cell("is_right", True), write_cell("fault", None)
    ('-12.3 %', '0.01235', 'yes', '–')
    """
    if value is None or value in ("", []):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "**no**"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if isinstance(value, float):
        return (
            f"{100 * value:+.1f} %"
            if column == "error"
            else f"{100 * value:.1f} %"
            if column in SHARES
            else f"{value:,.4g}"
        )
    return str(value)


if __name__ == "__main__":
    main()
