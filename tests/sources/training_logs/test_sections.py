"""Checkpoints and evaluations of which a log says how long they took, and steps that a log puts into one second."""

import json
from pathlib import Path

import pytest
from tests.sources.reading import read
from tests.sources.training_logs.logs import add_up, megatron_line, read_run, write
from tests.sources.training_logs.test_restarts import BEGAN_MS, BEGINS

from loadfactor import Books
from loadfactor.sources.base import ReadOptions
from loadfactor.sources.training_logs import SOURCE

TWO_STEPS_MS = 4_000
ONE_SECOND = [
    (1, 1, 0),
    (1, 2, 1),
    (1, 3, 0),
    (1, 4, 1),
    (1, 3, 0),
    (1, 4, 0),
    (2, 5, 0),
    (2, 4, 0),
    (2, 5, 1),
    (2, 6, 0),
]
"""Seconds at which steps were written, their numbers, and how many were skipped: two restarts among them."""


def list_sections(path: Path, begun_ms: int | None = None) -> list[tuple[str, int, int]]:
    """Kinds of sections, since when (ms since the run began) and for how long (ms)."""
    reading = read(SOURCE, path, options=ReadOptions(held_by="run", begun_ms=begun_ms))
    rows = reading.tables["job_sections"].to_pylist()
    return [(row["kind"], row["from_utc"] - BEGAN_MS, row["to_utc"] - row["from_utc"]) for row in rows]


@pytest.mark.parametrize(
    ("line", "kind", "length_ms"),
    [
        ("time (ms) | save-checkpoint: 9123.45", "checkpoint", 9123),
        ("    save-checkpoint ................................: (1234.56, 1235.60)", "checkpoint", 1236),
        ("    evaluate .......................................: (1234.56, 2000.00)", "evaluation", 2000),
        ("Finished saving the checkpoint (or staging if async is enabled) in 12.50 seconds.", "checkpoint", 12500),
        ("{'eval_loss': 1.2, 'eval_runtime': 3.5, 'epoch': 1.0}", "evaluation", 3500),
    ],
)
def test_a_section_after_two_steps(tmp_path: Path, line: str, kind: str, length_ms: int) -> None:
    """What took time after a step is a section that begins when the step was over; other ranks say the same again."""
    text = BEGINS.format("12:00:00") + megatron_line(1) + megatron_line(2) + f"{line}\n[default1]: {line}\n"
    assert list_sections(write(tmp_path, "run.log", text + megatron_line(3))) == [(kind, TWO_STEPS_MS, length_ms)]


def test_a_line_that_says_when_it_was_over(tmp_path: Path) -> None:
    """A section ends at the time of its line."""
    text = BEGINS.format("12:00:00") + megatron_line(1) + "[2026-05-12 12:01:00] | save-checkpoint: 5000\n"
    assert list_sections(write(tmp_path, "run.log", text)) == [("checkpoint", 55_000, 5_000)]


def test_evaluations_of_a_trainer_state(tmp_path: Path) -> None:
    """Two evaluations after one step are one section, as long as both."""
    history = [
        {"step": 10, "loss": 2.0},
        {"step": 10, "eval_a_loss": 1.0, "eval_runtime": 3.0},
        {"step": 10, "eval_b_loss": 1.0, "eval_runtime": 2.0},
        {"step": 20, "train_runtime": 40.0},
    ]
    path = write(tmp_path, "trainer_state.json", json.dumps({"log_history": history}))
    assert list_sections(path, BEGAN_MS) == [("evaluation", 20_000, 5_000)]


def test_steps_within_one_second(tmp_path: Path) -> None:
    """Steps that a log puts into one second, kept, skipped and lost ones, all enter the books."""
    lines = "".join(f"[2026-05-12 12:00:0{at}]" + megatron_line(step, skipped=n) for at, step, n in ONE_SECOND)
    text = BEGINS.format("12:00:00") + lines.replace("iteration (ms): 2000.0 |", "iteration |")
    path = write(tmp_path, "run.log", text)
    rows, _ = read_run(path)
    books = Books(tmp_path / "store")
    books.add("training-log", [path], ReadOptions(held_by="run"))
    assert add_up(books.table("progress").to_pyarrow().to_pylist()) == add_up(rows)
    assert add_up(rows)["step", True] + add_up(rows)["step", False] == len(ONE_SECOND)
