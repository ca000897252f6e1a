"""The hardware kit on a processor, beside a driver that is none: every part leaves its file, and all of it can be compared."""

import json
import subprocess
import sys
from pathlib import Path

from fake_driver import FakeDriver, needs_compiler
from tests.training.processes import PYTHON, ROOT

PARTS = ("machine", "agent", "nvml", "rates", "serving", "training", "ranks")
KIT = "benchmarks.hardware"


@needs_compiler
def test_the_kit_measures_and_compares(tmp_path: Path) -> None:
    """Readings, rates, training with faults, decode and ranks are there; a loader that starves the loop is found in its trace."""
    folder = tmp_path / "measured"
    environment = {**FakeDriver(tmp_path).environment, "PYTHONPATH": "packages/agent/src", "OMP_NUM_THREADS": "1"}
    said = subprocess.run(
        [PYTHON, "-m", KIT, folder, "--minutes", "0.8", "--agent-python", sys.executable],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr[-2000:]
    found = {name: json.loads((folder / f"{name}.json").read_text()) for name in PARTS}
    assert found["agent"] == {"is_watched": True, "notices": []}
    read = [
        row for load in found["nvml"]["loads"] for row in load["readings"] if row["metric"] == "DCGM_FI_DEV_FB_TOTAL"
    ]
    assert 81559.0 in {row.get("least") for row in read}
    assert all("seconds" in rate for rate in found["rates"] if rate.get("kernel") != "cudnn")
    assert all(row["seconds"] > 0 for row in found["serving"]["rows"] if "left_out" not in row)
    assert not any("error" in case for case in found["training"])
    done = {case["case"]: case for case in found["training"] if "step_s" in case}
    assert {"medium-compiled", "medium-fp32", "medium-starved"} <= set(done)
    assert done["medium-starved"]["step_s"] > 1.3 * done["medium-eager"]["step_s"]
    assert (found["ranks"]["ranks"], found["ranks"]["problems"]) == (2, [])

    compared = subprocess.run(
        [sys.executable, "-m", f"{KIT}.compare", folder], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert compared.returncode == 0, compared.stderr[-2000:]
    measured = json.loads((folder / "measured.json").read_text())
    assert measured["causes"]["medium-starved"][0][0] == "input_pipeline"
    assert "| medium-starved | starved by its own thread | input_pipeline |" in compared.stdout
    assert "none, so nothing is compared with constants or plans" in compared.stdout
