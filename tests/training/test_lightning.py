"""Tests of the callback for PyTorch Lightning in a fit that is broken off in the middle of an epoch and resumed."""

from pathlib import Path

import pytest
from tests.training.processes import train
from tests.training.truth import check_work


@pytest.mark.parametrize(("ranks", "counts"), [(1, "global"), (2, "global"), (2, "rank")])
def test_a_fit_is_what_its_module_counts(tmp_path: Path, ranks: int, counts: str) -> None:
    """Steps, samples and whole epochs, kept and lost, are what the module was given on all ranks, whoever started these."""
    train(tmp_path, "lightning_loop.py", ranks, counts)
    found = check_work(tmp_path)
    assert found.lost["step"] == 5 - 3
    assert {"checkpoint", "evaluation"} <= set(found.words)
