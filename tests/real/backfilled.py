"""A Prometheus with a history: series of a fleet with known faults, minute by minute, written as blocks of its database."""

import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
from tests.real.components import Component, write_scrapes

from loadfactor.base.units import MS_PER_MIN, MS_PER_S, S_PER_MIN
from loadfactor.interfaces.gauges.exposition import MetricFamily

Labels = tuple[tuple[str, str], ...]
Series = dict[tuple[str, Labels], dict[int, float]]
"""Values by name and labels, and by time in ms."""
SHORT_LOOKBACK = "59s"
"""Blocks have no marks of series that ended: what has no sample in this minute is not there."""


def add_families(series: Series, families: Iterable[MetricFamily], at_ms: int) -> None:
    """Keep the samples of a scrape."""
    for family in families:
        for labels, value in family.samples:
            series.setdefault((family.name, tuple(sorted(labels.items()))), {})[at_ms] = value


def write_openmetrics(series: Series, path: Path) -> None:
    """The series as OpenMetrics with times."""
    by_name: dict[str, list[tuple[Labels, dict[int, float]]]] = {}
    for (name, labels), values in series.items():
        by_name.setdefault(name, []).append((labels, values))
    with path.open("w") as file:
        for name, rows in by_name.items():
            file.write(f"# TYPE {name} gauge\n")
            for labels, values in rows:
                inside = ",".join(f'{key}="{_escape(value)}"' for key, value in labels)
                file.writelines(f"{name}{{{inside}}} {v!r} {at / MS_PER_S:.3f}\n" for at, v in sorted(values.items()))
        file.write("# EOF\n")


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def add_blocks(folder: Path, *arguments: str) -> None:
    """Have promtool write blocks into the database in this folder, where it runs."""
    done = subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", *arguments, *(["data"] if "openmetrics" in arguments else [])],
        capture_output=True, text=True, check=False, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def serve_history(folder: Path) -> Iterator[Component]:
    """A Prometheus that scrapes nothing and has the blocks in this folder."""
    config = (
        write_scrapes(folder / "config", {}) if not (folder / "config").exists() else folder / "config" / "scrapes.yml"
    )
    arguments = [
        f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}", "--log.level=warn",
        "--storage.tsdb.retention.time=100y", f"--query.lookback-delta={SHORT_LOOKBACK}",
    ]  # fmt: skip
    with Component(folder, "prometheus", arguments, "--web.listen-address=", "/-/ready") as server:
        yield server


def find_offset(server: Component, recorded: str, at_ms: int) -> int:
    """How long after full minutes a series was recorded, ms: promtool evaluates a group at a moment that its file and name tell."""
    asked = {"query": f"{recorded}[1h]", "time": str(at_ms / MS_PER_S)}
    found = httpx.get(f"{server.url}/api/v1/query", params=asked, timeout=60).json()["data"]["result"]
    return round(float(found[0]["values"][0][0]) * MS_PER_S) % MS_PER_MIN


def ask_minutes(
    server: Component, expression: str, span: tuple[int, int], offset_ms: int = 0
) -> dict[Labels, set[int]]:
    """At which minutes of a span, in ms, an expression answers, so long after them, by labels."""
    start, end = (str((at + offset_ms) / MS_PER_S) for at in span)
    asked = {"query": expression, "start": start, "end": end, "step": str(S_PER_MIN)}
    answer = httpx.post(f"{server.url}/api/v1/query_range", data=asked, timeout=120)
    assert answer.status_code == httpx.codes.OK, f"{expression}: {answer.text}"
    found: dict[Labels, set[int]] = {}
    for one in answer.json()["data"]["result"]:
        labels = tuple(sorted((k, v) for k, v in one["metric"].items() if k not in ("__name__", "rule")))
        found.setdefault(labels, set()).update(round(float(at) * MS_PER_S) - offset_ms for at, _ in one["values"])
    return found


def find_firing(active: Mapping[Labels, set[int]], for_s: float) -> dict[Labels, list[int]]:
    """When a rule begins to fire whose expression answers at these minutes: each time it has done so for long enough."""
    found: dict[Labels, list[int]] = {}
    for labels, minutes in active.items():
        begun = fired = -1
        for at in sorted(minutes):
            if at - MS_PER_MIN not in minutes:
                begun, fired = at, -1
            if fired < 0 and at - begun >= for_s * MS_PER_S:
                fired = at
                found.setdefault(labels, []).append(at)
    return found
