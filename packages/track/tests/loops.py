"""Training loops as processes of their own, and the lines of their files."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SOURCES = (Path(__file__).resolve().parents[1] / "src", Path(__file__).resolve().parents[3] / "src")
"""Of the tracker, and of loadfactor in a checkout of both."""
KNOWN = ("PATH", "HOME", "PYTHONHOME", "LD_LIBRARY_PATH")
LONGEST_S = 240.0
"""For anything that is waited for: so long a slow machine with other things to do may take."""
BEGIN = f"""
import json, os, sys, time, loadfactor_track as loadfactor
from pathlib import Path
from loadfactor_track import recorder, sender
recorder.END_S = sender.TIMEOUT_S = {LONGEST_S}

def wait_until(holds):
    end = time.monotonic() + {LONGEST_S}
    while not holds():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)

def count_written():  # steps in the files of this folder
    texts = [path.read_text() for path in Path(os.environ["LOADFACTOR_PROGRESS"]).rglob("*.jsonl")]
    lines = [json.loads(line) for text in texts for line in text.splitlines(keepends=True) if line.endswith("\\n")]
    return sum(line["steps"] for line in lines if line["kind"] == "work")
"""


def run_loop(code: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script that begins with BEGIN in a clean environment; it writes to a folder."""
    environment = {name: os.environ[name] for name in KNOWN if name in os.environ}
    environment |= {"PYTHONPATH": os.pathsep.join(map(str, SOURCES)), "LOADFACTOR_PROGRESS": str(folder), **variables}
    return subprocess.run(
        [sys.executable, "-c", f"{BEGIN}{code}"],
        env=environment, capture_output=True, text=True, timeout=3 * LONGEST_S, check=False,
    )  # fmt: skip


def read_lines(folder: Path) -> list[dict[str, Any]]:
    """Every line of the files in a folder, file by file."""
    return [json.loads(line) for path in sorted(folder.rglob("*.jsonl")) for line in path.read_text().splitlines()]
