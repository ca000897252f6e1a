"""What ran is said to fit, and published peaks lie beside predicted ones."""

from pathlib import Path

from loadfactor.planner.validation.request import MemoryValidationRequest
from loadfactor.planner.validation.training_memory import validate_memory

RAN = (
    "megatron_sc21_table1", "megatron_h100_weak_scaling", "mosaic_mpt_training", "nemo_performance", "dgx_cloud_h100",
    "megatron_bridge_2025", "tpu_maxtext", "torchtitan_llama31_8b", "lora",
)  # fmt: skip


def test_published_runs_are_said_to_fit(shared: Path) -> None:
    """Of the runs that ran, 99 % fit by the equations; of what does not, the largest part is named."""
    files = tuple(shared / "truth" / f"{name}.csv" for name in RAN)
    found = validate_memory(MemoryValidationRequest(rows=files))
    assert len(found.rows) > 500
    assert found.fitting / len(found.rows) >= 0.99
    assert {row.largest_part for row in found.rows if not row.fits} <= {"optimizer", "activations", "gathered"}


def test_published_peaks_are_near(shared: Path) -> None:
    """TorchTitan prints the peak of ten runs with and without recomputation: 15 % on average."""
    found = validate_memory(MemoryValidationRequest(rows=(shared / "truth" / "torchtitan_llama31_8b.csv",)))
    errors = [abs(row.error) for row in found.rows if row.error is not None]
    assert len(errors) == 10
    assert sum(errors) / len(errors) < 0.15
