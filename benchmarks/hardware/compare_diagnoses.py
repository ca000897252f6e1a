"""Known faults beside what loadfactor says: of their traces, and of their telemetry in books.

Books want a quarter of an hour of a symptom, and a case lasts seconds: the levels of its signals are repeated for an hour.
"""

import csv
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from loadfactor.base.units import MS_PER_MIN, MS_PER_S, PERCENT, S_PER_HOUR
from loadfactor.books.books import Books
from loadfactor.insight.diagnosis.diagnose import diagnose_jobs
from loadfactor.tables.schema import ALWAYS

Row = Mapping[str, Any]
STEP_S = 30
TOTALS = ("_VOL_TOTAL", "_AGG_TOTAL", "ENERGY_CONSUMPTION", "XID", "REPLAY")
"""Parts of names of metrics that are totals or codes: an hour of one level of them would say something else."""
SHOWN = {
    "engine": "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "SM": "DCGM_FI_PROF_SM_ACTIVE", "occupancy": "DCGM_FI_PROF_SM_OCCUPANCY",
    "tensor": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "FP32": "DCGM_FI_PROF_PIPE_FP32_ACTIVE", "DRAM": "DCGM_FI_PROF_DRAM_ACTIVE",
}  # fmt: skip
WATTS, MASK = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"


def judge_traces(measured: Row) -> list[Row]:
    """Each case with a trace, and the ranks: what was found, by share of the time, the largest first."""
    cases, ranks = {case["case"]: case for case in measured["training"]}, measured["ranks"]
    slow = f"rank {ranks.get('slow_rank')} of {ranks.get('ranks')} late, {ranks.get('backend')}"
    cases["slow-rank"] = {"case": "slow-rank", "fault": slow, "expected_of_trace": ["comm_wait_straggler"]}
    return [judge(cases[name], "expected_of_trace", causes) for name, causes in measured["causes"].items()]


def judge(case: Row, key: str, causes: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Right where the first cause is one of those expected; where nothing is wrong, where no cause is found, or computing alone."""
    names = [name for name, _ in causes]
    is_well = names[:1] == ["compute"] or not names
    return {
        "case": case["case"],
        "fault": case["fault"],
        "expected": list(case[key]),
        "found": [f"{name} {share:.0%}" for name, share in causes],
        "is_right": bool(set(names[:1]) & set(case[key])) if case["fault"] else is_well,
    }


def diagnose_books(measured: Row) -> list[Row]:
    """Each case that telemetry watched, as a job of an hour in books of its own."""
    watched = [case for case in measured["training"] if "levels" in case]
    if not watched:
        return []
    found = []
    with tempfile.TemporaryDirectory() as place:
        store = Path(place) / "books"
        _fill_books(Path(place), store, watched, measured["machine"]["device"])
        books = Books(store)
        for diagnosis, case in zip(diagnose_jobs(books, [c["case"] for c in watched], ALWAYS), watched, strict=True):
            causes = [(one.cause, one.share.high) for one in diagnosis.findings]
            found.append({**judge(case, "expected_of_books", causes), "signals": _describe_signals(case)})
    return found


def _describe_signals(case: Row) -> str:
    levels = case["levels"]
    words = [f"{name} {PERCENT * levels[metric]:.0f}" for name, metric in SHOWN.items() if metric in levels]
    words += [f"{levels[WATTS]:.0f} W"] if WATTS in levels else []
    words += [f"mask {levels[MASK]:.0f}"] if levels.get(MASK) else []
    return ", ".join([*words, f"processors {PERCENT * case['node']['cpu_busy_share']:.0f}"])


def _fill_books(place: Path, store: Path, cases: Sequence[Row], device: str) -> None:
    """An hour of scrapes for each case, one after the other on one GPU, and what its node did."""
    tables = place / "tables"
    tables.mkdir()
    start_ms = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * MS_PER_S)
    with (place / "scrapes.prom").open("w") as scrapes, (tables / "node_samples.csv").open("w", newline="") as nodes:
        writer = csv.writer(nodes)
        writer.writerow(["node", "from_utc", "to_utc", "cpu_busy_share", "io_wait_share"])
        for case in cases:
            labels = f'gpu="0",UUID="GPU-0",modelName="{device}",Hostname="node",hpc_job="{case["case"]}"'
            levels = {name: value for name, value in case["levels"].items() if not any(part in name for part in TOTALS)}
            for at_ms in range(start_ms, start_ms + S_PER_HOUR * MS_PER_S, STEP_S * MS_PER_S):
                for metric, value in levels.items():
                    scrapes.write(f"{metric}{{{labels}}} {value} {at_ms + STEP_S * MS_PER_S}\n")
            for minute in range(start_ms, start_ms + S_PER_HOUR * MS_PER_S, MS_PER_MIN):
                writer.writerow(["node", minute, minute + MS_PER_MIN, *case["node"].values()])
            start_ms += S_PER_HOUR * MS_PER_S
    _run("import", "dcgm", str(place / "scrapes.prom"), "--store", str(store))
    _run("import", "tables", str(tables), "--store", str(store))


def _run(*arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", "loadfactor", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"loadfactor {' '.join(arguments[:2])}: {done.stderr.strip()}")
