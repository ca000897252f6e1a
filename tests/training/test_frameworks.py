"""Real training, killed and resumed: plain PyTorch, Lightning, Transformers, and traces of torch.profiler."""

import json
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.training.processes import LOOPS, TrainingProcess, train, wait_until

import loadfactor
from loadfactor.books.books import Books

UNITS = {"samples": "train_sample", "tokens": "train_token", "padded_tokens": "padded_token", "flops": "model_flop"}


@dataclass
class Work:
    """What was kept and what was lost, by unit, and how often each kind of section came."""

    kept: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    lost: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    words: Counter[str] = field(default_factory=Counter)


def read_counted(folder: Path) -> Work:
    """Of all ranks together: a step is kept as it was made last, and lost as it was made before."""
    lines: list[tuple[int, int, dict[str, float]]] = []
    work = Work()
    for path in sorted(folder.glob("counted-*.txt")):
        attempt, rank = map(int, path.stem.split("-")[1:])
        for line in path.read_text().splitlines():
            if "=" in line:
                parts = (part.split("=") for part in line.split())
                lines.append((attempt, rank, {name: float(value) for name, value in parts}))
            elif rank == 0:
                work.words[line] += 1
    last: dict[float, int] = {}
    for attempt, _, line in lines:
        last[line["step"]] = max(attempt, last.get(line["step"], attempt))
    for attempt, rank, line in lines:
        amounts = work.kept if attempt == last[line["step"]] else work.lost
        for name, unit in UNITS.items():
            if name in line:
                amounts[unit] += line[name]
        if rank == 0 and line["done"]:
            amounts["step"] += 1
    return work


def read_books(folder: Path) -> Work:
    """What the books say of a fresh store after `loadfactor import progress`."""
    store = folder / "books"
    start = [sys.executable, "-c", "from loadfactor.interfaces.cli import main; main()"]
    said = subprocess.run(
        [*start, "import", "progress", str(folder / "progress"), "--store", str(store)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    books, work = Books(store), Work()
    for row in books.table("progress").execute().itertuples():
        amounts = work.kept if row.kept else work.lost
        amounts[row.unit] += row.amount
        assert row.kept or row.cause == "restart"
    work.words.update(books.table("job_sections").execute()["kind"])
    return work


def check_work(folder: Path) -> Work:
    """The books say what the script counted, no more and no less. What they say."""
    counted, found = read_counted(folder), read_books(folder)
    assert found.kept.pop("epoch", 0) == counted.words["epoch"]
    found.lost.pop("epoch", None)  # one that came again
    assert found.kept == counted.kept
    assert found.lost == counted.lost
    return found


def count_written(folder: Path) -> float:
    """How many samples there are in the files that the tracker has written by now."""
    lines = [json.loads(line) for path in folder.rglob("*.jsonl") for line in path.read_text().splitlines()]
    work = [line for line in lines if line["kind"] == "work"]
    return sum(
        sum(line["samples"]) if isinstance(line["samples"], list) else line["samples"] * max(1, line["steps"])
        for line in work
    )


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
