"""Tests of the callback for Hugging Face's Trainer in a training that is broken off in the middle of an epoch and resumed."""

from pathlib import Path

import pytest
from tests.training.processes import train
from tests.training.truth import check_work


@pytest.mark.parametrize(
    ("ranks", "tokens_seen", "counts"), [(0, "non_padding", "global"), (2, "all", "rank"), (2, "non_padding", "global")]
)
def test_a_training_is_what_its_trainer_counts(tmp_path: Path, ranks: int, tokens_seen: str, counts: str) -> None:
    """Steps, samples, tokens, FLOPs and whole epochs, kept and lost, are what the model was given on all ranks."""
    train(tmp_path, "trainer_loop.py", tokens_seen, counts, ranks=ranks)
    found = check_work(tmp_path)
    assert found.lost["step"] == 5 - 3
    assert {"checkpoint", "evaluation"} <= set(found.words)
