"""promtool, which checks rules and plays stories of them through the engine of Prometheus."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="not installed: prometheus (Debian package)"
)


@dataclass(frozen=True)
class Story:
    """Series by minute ("" for the start, then a value or `_` for nothing), and at which minutes the alert fires for whom."""

    series: Mapping[str, Sequence[float | None]]
    alert: str
    firing: Mapping[int, Sequence[Mapping[str, str]]]


def check_rules(path: Path) -> str:
    """What `promtool check rules` says; asserts that it takes them."""
    done = subprocess.run(["promtool", "check", "rules", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def play(folder: Path, rules: Path, stories: Sequence[Story]) -> None:
    """Play the stories; asserts that ALERTS fires at these minutes, for these groups and nobody else."""
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": name, "values": _write(values)} for name, values in story.series.items()],
            "promql_expr_test": [
                {
                    "expr": f"count by ({', '.join(sorted(groups[0])) if groups else ''})"
                    f'(ALERTS{{alertname="{story.alert}",alertstate="firing"}})',
                    "eval_time": f"{minute}m",
                    "exp_samples": [{"labels": _selector(group), "value": 1} for group in groups],
                }
                for minute, groups in story.firing.items()
            ],
        }
        for story in stories
    ]
    content: dict[str, Any] = {"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": tests}
    path = folder / "stories.yml"
    path.write_text(yaml.safe_dump(content))
    done = subprocess.run(["promtool", "test", "rules", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _write(values: Sequence[float | None]) -> str:
    """The values of a series; one that is not scraped any more is marked as gone, as a scrape does."""
    before = [None, *values[:-1]]
    pairs = zip(before, values, strict=True)
    return " ".join(repr(now) if now is not None else "_" if last is None else "stale" for last, now in pairs)


def _selector(group: Mapping[str, str]) -> str:
    inside = ",".join(f'{name}="{value}"' for name, value in group.items())
    return f"{{{inside}}}"
