"""The command line in the process of a test, and the small fleet that many tests of it ask."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from loadfactor.interfaces.cli import main

Run = Callable[..., tuple[int, str, str]]
"""Runs the command line: exit code, standard output, standard error."""
FROM, TO = "2026-03-01T00:00:00Z", "2026-03-01T01:15:00Z"


def make_run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *behind: object) -> Run:
    """A function that runs a command in this process; `behind` are words that stand behind every command."""

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["loadfactor", *map(str, (*words, *behind))])
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capsys.readouterr()
        return int(left.value.code or 0), out, err

    return run


def worked_example(folder: Path, **columns: str) -> Path:
    """8 GPUs × 1.25 h at $8, utilization 0.6, 200,000 samples, as CSV files of our own tables; `columns` replaces whole files."""
    folder.mkdir()
    gpus = [f"gpu{i}" for i in range(8)]
    files = {
        "devices": "device_id,from_utc,to_utc\n" + "".join(f"{g},{FROM},{TO}\n" for g in gpus),
        "allocations": "job_id,team,device_id,from_utc,to_utc\n"
        + "".join(f"run-1,vision,{g},{FROM},{TO}\n" for g in gpus),
        "samples": "device_id,from_utc,to_utc,sm_active_share\n" + "".join(f"{g},{FROM},{TO},0.6\n" for g in gpus),
        "progress": f"job_id,from_utc,to_utc,unit,amount\nrun-1,{FROM},{TO},train_sample,200000\n",
        "prices": "basis,price_per_gpu_hour\ncontracted,8\n",
    } | columns
    for name, text in files.items():
        (folder / f"{name}.csv").write_text(text)
    return folder


COMMAND_LINE = re.compile(r"  (\[\d+\] )?loadfactor ")
"""A command in a line of its own is as long as it is: the terminal wraps it, and it is copied whole."""


def measure_width(text: str) -> int:
    """The longest line of a page but for commands."""
    return max(len(line) for line in text.splitlines() if not COMMAND_LINE.match(line))
