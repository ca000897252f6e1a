"""`loadfactor savings` at the terminal: the contract of its JSON, groups, and mistakes."""

import json
from math import fsum
from pathlib import Path

import pytest
from tests.commands import Run


def test_levers_add_up_and_are_told(run: Run, october: Path) -> None:
    """In JSON `saved_at_most` is the sum of levers and at most what was lost; the page names each."""
    code, out, _ = run("savings", "--by", "team", "--store", october, "--format", "json")
    said = json.loads(out)
    assert code == 0
    assert {"levers", "currency", "lost", "saved_at_most"} <= set(said)
    assert all({"lever", "saved", "gpu_hours", "confidence"} <= set(lever) for lever in said["levers"])
    assert said["levers"]
    assert said["saved_at_most"] == fsum(lever["saved"] for lever in said["levers"])
    assert 0 < said["saved_at_most"] <= said["lost"]
    assert fsum(row["saved"] for row in said["rows"]) == pytest.approx(said["saved_at_most"])
    code, out, _ = run("savings", "--store", october)
    assert code == 0
    assert all(lever["lever"] in out for lever in said["levers"])
    code, _, err = run("savings", "--by", "node", "--store", october)
    assert code == 2
    assert "team or user" in err
