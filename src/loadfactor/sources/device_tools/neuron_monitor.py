"""What neuron-monitor prints of AWS's Trainium and Inferentia: a line of JSON a report. A device is a chip, with several cores."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from loadfactor.base.errors import SourceError
from loadfactor.base.units import MS_PER_S
from loadfactor.sources.base import Gaps, Input, ReadOptions
from loadfactor.sources.device_tools.readings import AT, Row, list_lines, make_source

_RECORD: Final = "neuron-monitor | jq -c '. + {timestamp: now}' >> neuron.json"
_FAMILIES: Final = {
    "trn1": "trainium",
    "trn2": "trainium2",
    "trn3": "trainium3",
    "inf1": "inferentia",
    "inf2": "inferentia2",
}
_DEVICES_MAX: Final = 1024
_RUNTIMES: Final = "neuron_runtime_data"


def _read_rows(log: Input, options: ReadOptions, gaps: Gaps) -> Iterator[Row]:
    clock = _Clock(log.label, options)
    for line, is_whole in list_lines(log):
        try:
            report = json.loads(line)
        except (ValueError, RecursionError):
            report = None
        if not isinstance(report, dict) or _RUNTIMES not in report:
            gaps.add(log.label, "skipped: a line that is no report" if is_whole else "last line, cut off")
            continue
        try:
            yield from _read_report(report, log.label, clock, gaps)
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            gaps.add(log.label, "skipped: a report with values of other kinds")


def _read_report(report: Mapping[str, Any], label: str, clock: "_Clock", gaps: Gaps) -> Iterator[Row]:
    """A row for each chip of the instance."""
    hardware = report.get("neuron_hardware_info") or {}
    instance = report.get("instance_info") or {}
    chips, cores = int(hardware.get("neuron_device_count") or 0), int(hardware.get("neuroncore_per_device_count") or 0)
    at = clock.read(report)
    if not 0 < chips <= _DEVICES_MAX or cores < 1:
        gaps.add(label, "skipped: a report that does not say how many devices there are")
        return
    busy, used = _add_up(report[_RUNTIMES] or [], cores)
    if int(hardware.get("logical_neuroncore_config") or 1) > 1:
        gaps.add(label, "neuroncore_utilization of logical cores, which name no device", chips if busy else 0)
        busy, used = None, None
    elif busy is None:
        gaps.add(label, "a runtime whose cores were not read", chips)
    kind = str(
        hardware.get("neuron_device_type") or _FAMILIES.get(str(instance.get("instance_type")).partition(".")[0], "")
    )
    for chip in range(chips):
        row = {AT: at, "index": str(chip), "name": kind, "hostname": str(instance.get("instance_id") or "")}
        row = {name: text for name, text in row.items() if text}
        if busy is not None:
            row["busy_share"] = f"{busy.get(chip, 0.0) / cores:.6f} %"
        if used is not None:
            row["mem_used_bytes"] = f"{used.get(chip, 0)} B"
        if hardware.get("neuron_device_memory_size"):
            row["mem_total_bytes"] = f"{int(hardware['neuron_device_memory_size'])} B"
        yield row


def _add_up(runtimes: list[Mapping[str, Any]], cores: int) -> tuple[dict[int, float] | None, dict[int, int] | None]:
    """Percents of the cores and bytes of each chip, of all runtimes; None where one of them was not read.

    A core that no runtime uses is idle: neuron-monitor sees all runtimes of the instance.
    """
    busy: dict[int, float] | None = {}
    used: dict[int, int] | None = {}
    for runtime in runtimes:
        report = runtime.get("report") or {}
        counters, memory = report.get("neuroncore_counters") or {}, report.get("memory_used") or {}
        in_use = counters.get("neuroncores_in_use")
        if in_use is None or counters.get("error"):
            busy = None
        elif busy is not None:
            for core, values in in_use.items():
                chip = int(core) // cores
                busy[chip] = busy.get(chip, 0.0) + float(values["neuroncore_utilization"])
        breakdown = (memory.get("neuron_runtime_used_bytes") or {}).get("usage_breakdown") or {}
        by_core = breakdown.get("neuroncore_memory_usage")
        if by_core is None or memory.get("error"):
            used = None
        elif used is not None:
            for core, parts in by_core.items():
                chip = int(core) // cores
                used[chip] = used.get(chip, 0) + sum(int(part) for part in parts.values())
    return busy, used


class _Clock:
    """Times of reports: their own, else those that follow from --at by the period that each report says it covers."""

    def __init__(self, label: str, options: ReadOptions) -> None:
        self._label, self._options = label, options
        self._next_s = None if options.at_ms is None else options.at_ms / MS_PER_S

    def read(self, report: Mapping[str, Any]) -> str:
        """Seconds since 1970, as text."""
        if "timestamp" in report:
            return str(float(report["timestamp"]))
        if self._next_s is None:
            raise SourceError(
                f"{self._label}: its reports have no time; record with {_RECORD}, or say when it began with --at"
            )
        at_s = self._next_s
        step_s = self._options.step_s or _find_period(report)
        if step_s is None:
            raise SourceError(
                f"{self._label}: its reports have no period; say how many seconds lie between them with --step"
            )
        self._next_s = at_s + step_s
        return str(at_s)


def _find_period(report: Mapping[str, Any]) -> float | None:
    groups = [*(report.get("system_data") or {}).values()]
    groups += [group for runtime in report[_RUNTIMES] or [] for group in (runtime.get("report") or {}).values()]
    periods = [group["period"] for group in groups if isinstance(group, dict) and group.get("period")]
    return float(max(periods)) if periods else None


SOURCE = make_source("neuron-monitor", (".json", ".jsonl", ".log", ".txt"), _RECORD, _read_rows)
