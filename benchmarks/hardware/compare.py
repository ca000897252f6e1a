"""What the kit measured beside what loadfactor says: constants of the catalog, diagnoses, plans.

`python -m benchmarks.hardware.compare DIR` reads the folder that the kit left, on any machine where loadfactor is installed, and
writes comparison.json, comparison.md, training.csv and serving.csv into it.
"""

import csv
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.hardware.compare_diagnoses import diagnose_books, diagnose_traces
from benchmarks.hardware.compare_plans import SERVING_COLUMNS, TRAINING_COLUMNS, compare_serving, compare_training
from benchmarks.hardware.compare_rates import compare_rates, compare_signals, list_readings
from loadfactor.catalog.accelerators import Accelerator, find_accelerator

Row = Mapping[str, Any]


def main() -> None:
    """Compare a folder, print the tables."""
    if len(sys.argv) != 2:
        sys.exit("python -m benchmarks.hardware.compare DIR, where DIR is what the kit left")
    folder = Path(sys.argv[1])
    compared = compare(folder)
    (folder / "comparison.json").write_text(json.dumps(compared, indent=1) + "\n")
    text = write_tables(compared)
    (folder / "comparison.md").write_text(text)
    for name, columns in (("training", TRAINING_COLUMNS), ("serving", SERVING_COLUMNS)):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, columns, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(compared[f"{name}_rows"])
    print(text)


def read(folder: Path, name: str) -> Any:
    """NAME.json of the folder; nothing where a part is missing or failed."""
    path = folder / f"{name}.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    return {} if isinstance(found, dict) and "error" in found else found


def compare(folder: Path) -> dict[str, Any]:
    """Every comparison; what needs an accelerator of the catalog is empty on another one."""
    machine = read(folder, "machine")
    chip = find_accelerator(machine["device"])
    training = read(folder, "training") or []
    parts: dict[str, Callable[[Accelerator], Any]] = {
        "signals": lambda one: compare_signals(read(folder, "nvml"), one),
        "rates": lambda one: compare_rates(read(folder, "rates") or [], one),
        "serving": lambda one: compare_serving(read(folder, "serving"), one),
    }
    compared = {name: part(chip) if chip else [] for name, part in parts.items()}
    rows, plans = compare_training(training, chip, machine) if chip else ([], [])
    return {
        "machine": machine,
        "accelerator": chip.id if chip else None,
        "readings": list_readings(read(folder, "nvml")),
        **compared,
        "training": plans,
        "training_rows": rows,
        "serving_rows": [row["row"] for row in compared["serving"] if row["row"]],
        "traces": diagnose_traces(folder, training, read(folder, "ranks")),
        "books": diagnose_books(folder, training),
    }


TABLES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("readings", "The agent's readings beside nvidia-smi's",
     ("metric", "field", "idle", "idle_smi", "load", "load_smi", "agrees")),
    ("signals", "Signals under known work", ("load", "signal", "work", "expected", "measured")),
    ("rates", "Rates beside constants", ("what", "measured", "of_peak", "constant", "predicted", "error")),
    ("training", "Training steps beside `plan train`",
     ("case", "tokens_per_s", "step_s", "predicted_step_s", "error", "mfu", "predicted_mfu", "peak_gib", "predicted_peak_gib")),
    ("serving", "Prefill and decode beside `plan serve`", ("what", "seconds", "predicted_s", "error", "host_s")),
    ("traces", "Known faults, and what their traces were diagnosed as", ("case", "fault", "expected", "found", "is_right")),
    ("books", "Known faults, and what books say of their telemetry", ("case", "fault", "signals", "expected", "found", "is_right")),
)  # fmt: skip


def write_tables(compared: Mapping[str, Any]) -> str:
    """All tables in Markdown."""
    machine = compared["machine"]
    smi = machine.get("smi", {})
    parts = [
        f"Measured on {machine['measured_on']} on {machine['device']} with PyTorch {machine['torch']}"
        + (f", driver {smi['driver_version']}" if smi.get("driver_version") else "")
        + f"; accelerator of the catalog: {compared['accelerator'] or 'none, so nothing is compared with constants or plans'}.\n"
    ]
    for name, title, columns in TABLES:
        rows: Sequence[Row] = compared[name]
        if rows:
            lines = [f"| {' | '.join(column.replace('_', ' ') for column in columns)} |", "|---" * len(columns) + "|"]
            lines += [f"| {' | '.join(write_cell(column, row.get(column)) for column in columns)} |" for row in rows]
            parts.append(f"## {title}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


SHARES = ("error", "of_peak", "mfu", "predicted_mfu")


def write_cell(column: str, value: Any) -> str:
    """A value in a table: three digits, shares in percent.

    >>> write_cell("error", -0.123), write_cell("seconds", 0.0123456), write_cell("is_right", True), write_cell("fault", None)
    ('-12.3 %', '0.0123', 'yes', '–')
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
