"""Known faults beside what loadfactor says: of their traces, and of their telemetry in books.

Books want a quarter of an hour of a symptom, and a case lasts seconds: its looks are repeated for an hour, as if it went on.
"""

import csv
import gzip
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from loadfactor.insight.traces.diagnose import diagnose_captures
from loadfactor.sources.traces.read import read_trace

Row = dict[str, Any]
STEP_S = 10
HOUR_S = 3600
RATES = ("_TOTAL", "TOTAL_ENERGY_CONSUMPTION", "XID")
"""Parts of names of metrics that cannot be repeated: totals."""
SHOWN = {
    "GPU_UTIL": "DCGM_FI_DEV_GPU_UTIL", "engine": "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "SM": "DCGM_FI_PROF_SM_ACTIVE",
    "occupancy": "DCGM_FI_PROF_SM_OCCUPANCY", "tensor": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "FP32": "DCGM_FI_PROF_PIPE_FP32_ACTIVE",
    "DRAM": "DCGM_FI_PROF_DRAM_ACTIVE",
}  # fmt: skip


def diagnose_traces(folder: Path, cases: Sequence[Mapping[str, Any]], ranks: Mapping[str, Any]) -> list[Row]:
    """Each case whose trace is there, and the ranks: what was found, by share of the time, the largest first."""
    found: list[Row] = []
    for case in cases:
        path = folder / case.get("trace", "traces/none")
        if path.exists():
            found.append(judge(case, "expected_of_trace", _find_causes([path])))
    paths = sorted((folder / "traces").glob("slow-rank-*.json.gz"))
    if paths:
        slow = {
            "case": "slow-rank",
            "fault": f"rank {ranks.get('slow_rank')} of {len(paths)} late, {ranks.get('backend')}",
        }
        found.append(
            judge({**slow, "expected_of_trace": ["comm_wait_straggler"]}, "expected_of_trace", _find_causes(paths))
        )
    return found


def _find_causes(paths: Sequence[Path]) -> list[tuple[str, float]]:
    diagnosis = diagnose_captures(capture for path in paths for capture in read_trace(path))
    return sorted(((one.cause, one.share) for one in diagnosis.findings), key=lambda pair: -pair[1])


def judge(case: Mapping[str, Any], key: str, causes: Sequence[tuple[str, float]]) -> Row:
    """Right where the first cause is one of those expected; where nothing is wrong, where no cause is found, or computing alone."""
    expected = list(case[key])
    names = [name for name, _ in causes]
    is_right = (names[:1] == ["compute"] or not names) if not case["fault"] else bool(set(names[:1]) & set(expected))
    return {
        "case": case["case"],
        "fault": case["fault"],
        "expected": expected,
        "found": [f"{name} {share:.0%}" for name, share in causes],
        "is_right": is_right,
    }


def diagnose_books(folder: Path, cases: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Each case whose telemetry is there, as a job of an hour in books of its own."""
    path = folder / "telemetry.jsonl.gz"
    if not path.exists():
        return []
    with gzip.open(path, "rt") as file:
        looks = [json.loads(line) for line in file]
    watched = {}
    for case in cases:
        inside = [look for look in looks if "at_ms" in case and case["at_ms"][0] <= look["at_ms"] <= case["at_ms"][1]]
        if len(inside) > 2:
            watched[case["case"]] = inside[1:]
    if not watched:
        return []
    found = []
    with tempfile.TemporaryDirectory() as place:
        store = Path(place) / "books"
        _fill_books(Path(place), store, watched)
        for case in cases:
            if case["case"] not in watched:
                continue
            answer = json.loads(_run("diagnose", "--store", str(store), "--job", case["case"], "--json"))
            causes = [(one["cause"], one["share"]["high"]) for one in answer["jobs"][0]["findings"]]
            row = judge(case, "expected_of_books", causes)
            found.append({**row, "signals": _describe_signals(watched[case["case"]])})
    return found


def _describe_signals(looks: Sequence[Mapping[str, Any]]) -> str:
    values = [_values(look) for look in looks]
    words = []
    for name, metric in SHOWN.items():
        seen = [one[metric] for one in values if metric in one]
        if seen:
            mean = sum(seen) / len(seen)
            words.append(f"{name} {mean if name == 'GPU_UTIL' else 100 * mean:.0f}")
    busy, waiting = measure_node(looks)
    return ", ".join([*words, f"processors {100 * busy:.0f}", f"waiting for disks {100 * waiting:.0f}"])


def _values(look: Mapping[str, Any]) -> dict[str, float]:
    return next((values for labels, values in look["series"] if labels.get("gpu") == "0" and len(values) > 1), {})


def measure_node(looks: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Shares of processor time that were busy, and waiting for disks."""
    first, last = (
        {labels["mode"]: values["node_cpu_seconds_total"] for labels, values in look["series"] if "mode" in labels}
        for look in (looks[0], looks[-1])
    )
    passed = {mode: last[mode] - first[mode] for mode in last}
    whole = sum(passed.values()) or 1.0
    waiting = passed.get("iowait", 0.0)
    return 1 - (passed["idle"] + waiting) / whole, waiting / whole


def _fill_books(place: Path, store: Path, watched: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """An hour of scrapes for each case, the second after the first, and what its node did."""
    tables = place / "tables"
    tables.mkdir()
    start_ms = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)
    with (place / "scrapes.prom").open("w") as scrapes, (tables / "node_samples.csv").open("w", newline="") as nodes:
        writer = csv.writer(nodes)
        writer.writerow(["node", "from_utc", "to_utc", "cpu_busy_share", "io_wait_share"])
        for job, looks in watched.items():
            labels = next(
                labels for labels, values in looks[0]["series"] if labels.get("gpu") == "0" and len(values) > 1
            )
            named = {**{key: labels[key] for key in ("gpu", "UUID", "modelName", "Hostname")}, "hpc_job": job}
            text = ",".join(f'{key}="{value}"' for key, value in named.items())
            for number in range(HOUR_S // STEP_S):
                at_ms = start_ms + (number + 1) * STEP_S * 1000
                for metric, value in _values(looks[number % len(looks)]).items():
                    if not any(part in metric for part in RATES) or metric.endswith("FB_TOTAL"):
                        scrapes.write(f"{metric}{{{text}}} {value} {at_ms}\n")
            busy, waiting = measure_node(looks)
            for number in range(HOUR_S // 60):
                minute = start_ms + number * 60_000
                writer.writerow([labels["Hostname"], minute, minute + 60_000, round(busy, 4), round(waiting, 4)])
            start_ms += HOUR_S * 1000
    _run("import", "dcgm", str(place / "scrapes.prom"), "--store", str(store))
    _run("import", "tables", str(tables), "--store", str(store))


def _run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", "loadfactor", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"loadfactor {' '.join(arguments[:2])}: {done.stderr.strip()}")
    return done.stdout
