"""What an H100 measured, beside what is said of it: docs/hardware.md has the tables."""

import pytest
from benchmarks.hardware.compare_diagnoses import diagnose_books
from benchmarks.hardware.compare_plans import compare_serving, compare_training

from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.measurements import HARDWARE, read_hardware

MEASURED = read_hardware(HARDWARE[0])


@pytest.mark.long
def test_books_judge_signals_that_were_measured_on_an_h100() -> None:
    """Runs without a fault have none, though they work at the limit of their power; products in 32 bits are found beside attention
    that uses tensor cores; what waits for data behind idle processors still reads as waiting for the host."""
    said = {row["case"]: [cause.split()[0] for cause in row["found"]] for row in diagnose_books(MEASURED)}
    healthy = {case["case"] for case in MEASURED["training"] if not case["fault"]}
    assert {case: said[case] for case in healthy} == {case: [] for case in healthy}
    assert said["medium-fp32"] == ["no_mixed_precision"]
    assert said["medium-starved-cpu"] == ["input_pipeline"]
    assert said["medium-small-batch"] == said["medium-starved"] == said["medium-starved-far"] == ["launch_bound"]


def test_plans_foretell_steps_that_were_measured_on_an_h100() -> None:
    """Training steps without a fault within 13 %, decoding as a graph within a ninth, of what no constant was fitted to."""
    chip = accelerator("h100-sxm")
    errors = {row["case"]: row["error"] for row in compare_training(MEASURED["training"], chip) if not row["fault"]}
    assert len(errors) == 6
    assert max(map(abs, errors.values())) < 0.13, errors
    decoding = [row for row in compare_serving(MEASURED["serving"], chip) if row["what"].endswith("one graph")]
    assert all(abs(row["error"]) < 0.111 for row in decoding), decoding
