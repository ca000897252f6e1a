"""Tests of tracking two ranks of plain PyTorch, killed twice in the middle of a step and resumed from a checkpoint."""

from pathlib import Path

import pytest
from tests.training.processes import LOOPS, TrainingProcess, train, wait_until
from tests.training.truth import check_work, count_written, read_counted

RANKS, STEPS = 2, 20
KILLED_IN = (11, 15)
"""Steps; a checkpoint is written after every fourth one."""
NEVER = 0


@pytest.mark.parametrize("counts", ["global", "rank"])
def test_two_ranks_that_are_killed_and_resumed(tmp_path: Path, counts: str) -> None:
    """Kept and lost steps, samples and tokens are what the ranks counted together, each once, whichever way they are said."""
    for attempt, stop in enumerate((*KILLED_IN, NEVER)):
        ranks = [
            TrainingProcess(tmp_path, f"rank-{rank}", LOOPS / "torch_loop.py", tmp_path, attempt, rank, stop, counts)
            for rank in range(RANKS)
        ]
        if stop == NEVER:
            for process in ranks:
                process.finish()
        else:
            wait_until(ranks, tmp_path, lambda attempt=attempt: all_wait(tmp_path, attempt))
            wait_until(ranks, tmp_path, lambda: count_written(tmp_path) == count_samples(tmp_path))
            for process in ranks:
                process.kill()
    found = check_work(tmp_path)
    assert (found.kept["step"], found.lost["step"]) == (STEPS, 10 - 8 + 14 - 12)
    assert found.words["checkpoint"] > 0


def test_accelerate_says_when_a_step_is_over(tmp_path: Path) -> None:
    """With `done=accelerator.sync_gradients` two ranks of Accelerate under torchrun are counted as they count themselves."""
    train(tmp_path, "accelerate_loop.py", ranks=RANKS)
    assert check_work(tmp_path).kept["step"] == 8


def all_wait(folder: Path, attempt: int) -> bool:
    """Whether all ranks wait for the kill."""
    files = list(folder.glob(f"counted-{attempt}-*.txt"))
    return len(files) == RANKS and all(path.read_text().endswith("waiting\n") for path in files)


def count_samples(folder: Path) -> float:
    """How many samples all ranks made by now."""
    counted = read_counted(folder)
    return counted.kept["train_sample"] + counted.lost["train_sample"]
