"""A folder that the kit left as one record small enough to keep: rates, readings, levels of signals, and causes found in traces."""

import gzip
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loadfactor.insight.traces.diagnose import diagnose_captures
from loadfactor.sources.traces.read import read_trace

Row = dict[str, Any]
LOADED = "bf16 products"
MASK = "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"
_NOT_KEPT = ("at_ms", "calls", "trace", "trace_bytes", "readings", "smi", "dmon")


def gather(folder: Path) -> Row:
    """The record. Parts that are missing or failed are empty."""
    machine = _read(folder, "machine")
    nvml, training, ranks = _read(folder, "nvml"), _read(folder, "training") or [], _read(folder, "ranks")
    looks = _read_telemetry(folder / "telemetry.jsonl.gz")
    traces = {case["case"]: [folder / case["trace"]] for case in training if "trace" in case}
    traces["slow-rank"] = sorted((folder / "traces").glob("slow-rank-*.json.gz"))
    driver = machine.get("smi", {}).get("driver_version")
    return {
        "source": f"hardware kit, {machine['measured_on']}, {machine['device']}, PyTorch {machine['torch']}"
        + (f", driver {driver}" if driver else ""),
        "machine": machine,
        "readings": _list_readings(nvml.get("loads", ())),
        "loads": [_shorten(load) for load in nvml.get("loads", ())],
        "rates": [_shorten(rate) for rate in _read(folder, "rates") or []],
        "training": [{**_shorten(case), **_measure_levels(case, looks)} for case in training],
        "serving": [_shorten(row) for row in _read(folder, "serving").get("rows", ())],
        "served": _read(folder, "serving").get("shape", {}),
        "ranks": _shorten(ranks),
        "causes": {
            case: _find_causes(paths) for case, paths in traces.items() if paths and all(map(Path.exists, paths))
        },
    }


def _read(folder: Path, name: str) -> Any:
    path = folder / f"{name}.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    return {} if isinstance(found, dict) and "error" in found else found


def _read_telemetry(path: Path) -> list[Row]:
    if not path.exists():
        return []
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]


def _shorten(row: Mapping[str, Any]) -> Row:
    """A row without times of its own, numbers to five digits."""
    return {name: _round(value) for name, value in row.items() if name not in _NOT_KEPT}


def _round(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {name: _round(one) for name, one in value.items()}
    return value


def _find_causes(paths: Sequence[Path]) -> list[list[Any]]:
    """Causes and their shares of the time, the largest first."""
    diagnosis = diagnose_captures(capture for path in paths for capture in read_trace(path))
    return sorted(([one.cause, round(one.share, 4)] for one in diagnosis.findings), key=lambda pair: -pair[1])


def _measure_levels(case: Mapping[str, Any], looks: Sequence[Row]) -> Row:
    """Means of what the agent read of GPU 0 while a case ran; of a mask what it was most of the time. And of its node."""
    inside = [look for look in looks if "at_ms" in case and case["at_ms"][0] <= look["at_ms"] <= case["at_ms"][1]][1:]
    values = [found for look in inside if (found := _values(look))]
    if len(values) < 2:
        return {}
    levels = {}
    for metric in sorted(set.intersection(*(set(one) for one in values))):
        seen = [one[metric] for one in values]
        levels[metric] = Counter(seen).most_common(1)[0][0] if metric == MASK else _round(sum(seen) / len(seen))
    first, last = (
        {labels["mode"]: found["node_cpu_seconds_total"] for labels, found in look["series"] if "mode" in labels}
        for look in (inside[0], inside[-1])
    )
    passed = {mode: last[mode] - first[mode] for mode in last}
    whole, waiting = sum(passed.values()) or 1.0, passed.get("iowait", 0.0)
    busy = 1 - (passed.get("idle", 0.0) + waiting) / whole
    return {"levels": levels, "node": {"cpu_busy_share": _round(busy), "io_wait_share": _round(waiting / whole)}}


def _values(look: Row) -> dict[str, float]:
    return next((values for labels, values in look["series"] if labels.get("gpu") == "0" and len(values) > 1), {})


def _list_readings(loads: Sequence[Row]) -> list[Row]:
    """Every metric of the agent, idle and loaded, beside the field of nvidia-smi that is the same."""
    by_load = {load["load"]: {row["metric"]: row for row in load["readings"]} for load in loads}
    found = []
    for metric, idle in by_load.get("nothing", {}).items():
        loaded = by_load.get(LOADED, {}).get(metric, {})
        agrees = [by[metric]["agrees"] for by in by_load.values() if by.get(metric, {}).get("agrees") is not None]
        found.append(
            {
                "metric": metric,
                "field": idle.get("smi_field"),
                "idle": _write_range(idle),
                "idle_smi": idle.get("smi_text"),
                "load": _write_range(loaded),
                "load_smi": loaded.get("smi_text"),
                "agrees": all(agrees) if agrees else None,
            }
        )
    return found


def _write_range(row: Mapping[str, Any]) -> str | None:
    if "least" not in row:
        return None
    least, most = f"{row['least']:.6g}", f"{row['most']:.6g}"
    return least if least == most else f"{least} to {most}"
