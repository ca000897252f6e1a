"""Restarts from a checkpoint: steps that were done again are lost the first time, within a log and across logs."""

from pathlib import Path

import pytest
from tests.sources.training_logs.logs import add_up, megatron_line, read_run, write

BEGAN_MS = 1_778_587_200_000  # 2026-05-12T12:00:00Z
BEGINS = "[before the start of training step] datetime: 2026-05-12 {} \n"
LOADED = "  successfully loaded checkpoint from /ckpt at iteration {}\n"


def lines(first: int, last: int, prefix: str = "", every: int = 1) -> str:
    return "".join(prefix + megatron_line(step) for step in range(first, last + 1, every))


def steps(rows: list[dict[str, object]]) -> tuple[float, float]:
    """Steps kept and lost."""
    total = add_up(rows)
    return total["step", True], total["step", False]


@pytest.mark.parametrize("said", [BEGINS.format("12:10:00"), LOADED.format(5), ""])
def test_steps_again(tmp_path: Path, said: str) -> None:
    """Eight steps, then from the sixth on again up to ten: ten are kept and three were lost, however the restart is said."""
    text = BEGINS.format("12:00:00") + lines(1, 8) + said + lines(6, 10)
    rows, _ = read_run(write(tmp_path, "run.log", text))
    assert steps(rows) == (10, 3)
    assert {row["cause"] for row in rows if not row["kept"]} == {"restart"}


def test_a_checkpoint_between_two_lines(tmp_path: Path) -> None:
    """A line of ten steps is kept up to the checkpoint, and lost after it."""
    text = BEGINS.format("12:00:00") + lines(10, 40, every=10)
    text += LOADED.format(25) + BEGINS.format("12:10:00") + lines(30, 50, every=10)
    rows, _ = read_run(write(tmp_path, "run.log", text))
    assert steps(rows) == (50, 15)
    assert add_up(rows)["train_sample", False] == 60


def test_restarts_twice(tmp_path: Path) -> None:
    """What was done a third time was lost twice."""
    text = BEGINS.format("12:00:00") + lines(1, 4) + lines(2, 4) + lines(3, 6)
    rows, _ = read_run(write(tmp_path, "run.log", text))
    assert steps(rows) == (6, 3 + 2)


def test_a_log_of_each_attempt(tmp_path: Path) -> None:
    """Logs are put in the order of their times, whatever their names say."""
    second = write(tmp_path, "a.log", LOADED.format(5) + BEGINS.format("12:10:00") + lines(6, 10))
    first = write(tmp_path, "b.log", BEGINS.format("12:00:00") + lines(1, 8))
    rows, _ = read_run(second, first)
    assert steps(rows) == (10, 3)
    assert min(int(str(row["from_utc"])) for row in rows) == BEGAN_MS


def test_logs_without_times_follow_each_other(tmp_path: Path) -> None:
    """Without times logs are of the order in which they are named, which is said."""
    one, other = write(tmp_path, "a.log", lines(1, 8)), write(tmp_path, "b.log", lines(6, 10))
    rows, gaps = read_run(one, other, begun_ms=BEGAN_MS)
    assert steps(rows) == (10, 3)
    assert gaps == {"start without a time, dated right after the attempt before it": 1}


def test_a_log_of_each_rank(tmp_path: Path) -> None:
    """Logs of several ranks of one attempt count once."""
    text = BEGINS.format("12:00:00") + "".join(
        f"[2026-05-12 12:00:{2 * i:02d}]" + megatron_line(i) for i in range(1, 9)
    )
    paths = [write(tmp_path, f"rank{i}.log", text) for i in range(3)]
    rows, gaps = read_run(*paths)
    assert steps(rows) == (8, 0)
    assert gaps["log of the same steps at the same time as another one (of another rank); left out"] == 2


def test_skipped_steps_that_are_done_again(tmp_path: Path) -> None:
    """A step that changed nothing and was done again after a restart is lost once."""
    text = BEGINS.format("12:00:00") + megatron_line(1) + megatron_line(2, skipped=1) + megatron_line(3)
    rows, _ = read_run(write(tmp_path, "run.log", text + lines(2, 3)))
    assert steps(rows) == (3, 2)
    assert {row["cause"] for row in rows} == {None, "restart"}
