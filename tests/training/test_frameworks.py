"""Real training, killed and resumed: plain PyTorch, Lightning, Transformers, and traces of torch.profiler."""

import json
from pathlib import Path

import pytest
from tests.training.processes import LOOPS, TrainingProcess, train, wait_until
from tests.training.truth import check_work, count_written, read_counted

import loadfactor

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


@pytest.mark.parametrize(("ranks", "counts"), [(1, "global"), (2, "global"), (2, "rank")])
def test_a_fit_is_what_its_module_counts(tmp_path: Path, ranks: int, counts: str) -> None:
    """Steps, samples and whole epochs, kept and lost, are what the module was given on all ranks, whoever started these."""
    train(tmp_path, "lightning_loop.py", ranks, counts)
    found = check_work(tmp_path)
    assert found.lost["step"] == 5 - 3
    assert {"checkpoint", "evaluation"} <= set(found.words)


@pytest.mark.parametrize(
    ("ranks", "tokens_seen", "counts"), [(0, "non_padding", "global"), (2, "all", "rank"), (2, "non_padding", "global")]
)
def test_a_training_is_what_its_trainer_counts(tmp_path: Path, ranks: int, tokens_seen: str, counts: str) -> None:
    """Steps, samples, tokens, FLOPs and whole epochs, kept and lost, are what the model was given on all ranks."""
    train(tmp_path, "trainer_loop.py", tokens_seen, counts, ranks=ranks)
    found = check_work(tmp_path)
    assert found.lost["step"] == 5 - 3
    assert {"checkpoint", "evaluation"} <= set(found.words)


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
