"""Traces of torch.profiler from real training on the CPU."""

import json
from pathlib import Path

import pytest
from tests.training.processes import train

import loadfactor

STARVED_S, FED_S = 0.02, 0.0


def test_a_starved_data_loader_is_found_as_its_share_of_the_steps(tmp_path: Path) -> None:
    """The share that the loop counted itself, from a trace without a GPU, of which nothing else is judged."""
    train(tmp_path, "profiled_loop.py", STARVED_S)
    counted = json.loads((tmp_path / "counted.json").read_text())["share"]
    found = loadfactor.diagnose(trace=[tmp_path / "rank0.pt.trace.json"]).data
    assert [finding.cause for finding in found.findings] == ["input_pipeline"]
    assert counted > 0.3
    assert found.findings[0].share == pytest.approx(counted, abs=0.05)
    assert not any(report.can_judge for report in found.traces)


def test_a_loop_that_is_fed_waits_for_less(tmp_path: Path) -> None:
    """Without sleep the same loop is said to wait for as little as it does."""
    train(tmp_path, "profiled_loop.py", FED_S)
    counted = json.loads((tmp_path / "counted.json").read_text())["share"]
    found = loadfactor.diagnose(trace=[tmp_path / "rank0.pt.trace.json"]).data
    assert sum(finding.share for finding in found.findings) == pytest.approx(counted, abs=0.05)
    assert counted < 0.3
