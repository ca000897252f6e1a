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


def run_loop(code: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script that has imported the tracker, as `loadfactor`, in a clean environment; it writes to a folder."""
    environment = {name: os.environ[name] for name in KNOWN if name in os.environ}
    environment |= {"PYTHONPATH": os.pathsep.join(map(str, SOURCES)), "LOADFACTOR_PROGRESS": str(folder), **variables}
    script = f"import os, sys, time, loadfactor_track as loadfactor\n{code}"
    return subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def read_lines(folder: Path) -> list[dict[str, Any]]:
    """Every line of the files in a folder, file by file."""
    return [json.loads(line) for path in sorted(folder.rglob("*.jsonl")) for line in path.read_text().splitlines()]
