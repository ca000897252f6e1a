"""Checkpoints and evaluations of which a log says how long they took, and steps that a log puts into one second."""

import gzip
import json
import random
from pathlib import Path

import pytest
from tests.sources.reading import read
from tests.sources.training_logs.logs import add_up, event, megatron_line, read_run, write

from loadfactor import Books
from loadfactor.base.errors import LoadfactorError
from loadfactor.sources.base import ReadOptions
from loadfactor.sources.training_logs import SOURCE
from loadfactor.sources.training_logs.families import read_number

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


BEGAN_MS = 1_778_587_200_000  # 2026-05-12T12:00:00Z
BEGINS = "[before the start of training step] datetime: 2026-05-12 {} \n"
LOADED = "  successfully loaded checkpoint from /ckpt at iteration {}\n"


def lines(first: int, last: int, prefix: str = "", every: int = 1) -> str:
    return "".join(prefix + megatron_line(step) for step in range(first, last + 1, every))


def steps(rows: list[dict[str, object]]) -> tuple[float, float]:
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


PLAIN = "[before the start of training step] datetime: 2026-05-12 12:00:00 \n" + "".join(
    megatron_line(step) for step in range(1, 6)
)


@pytest.mark.parametrize(
    "prefix", ["[default7]: ", "0: ", "[rank0]:", "[Rank 3] ", "2026-05-12T12:00:00.1Z ", "\x1b[32m"]
)
def test_prefixes(tmp_path: Path, prefix: str) -> None:
    """Prefixes of launchers and of container logs, and colours, change nothing."""
    text = "".join(prefix + line + "\n" for line in PLAIN.splitlines())
    rows, _ = read_run(write(tmp_path, "run.log", text))
    assert add_up(rows) == {("step", True): 5, ("train_sample", True): 20}


def test_interleaved_ranks(tmp_path: Path) -> None:
    """Ranks that write the same steps between each other, one behind the others, count once."""
    text = PLAIN.splitlines()[0] + "\n"
    for step in range(1, 8):
        text += "[rank1]:" + megatron_line(step)
        text += "[rank0]:" + megatron_line(step)
        text += "[rank2]:" + megatron_line(max(1, step - 2)) if step != 2 else ""
    rows, _ = read_run(write(tmp_path, "run.log", text))
    assert add_up(rows)["step", True] + add_up(rows)["step", False] == 7


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "latin-1"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    """UTF-16 as PowerShell writes it, a byte order mark, and bytes that are no UTF-8."""
    path = tmp_path / "run.log.gz"
    path.write_bytes(gzip.compress(("Überschrift: Größe\r\n" + PLAIN.replace("\n", "\r\n")).encode(encoding)))
    rows, _ = read_run(path)
    assert add_up(rows)["step", True] == 5


def test_the_last_line_is_cut(tmp_path: Path) -> None:
    """A last line that was cut counts as far as it goes."""
    whole = write(tmp_path, "run.log", PLAIN[:-150])
    rows, _ = read_run(whole)
    assert add_up(rows)["step", True] == 5
    rows, _ = read_run(write(tmp_path, "other.log", PLAIN[:-260]))
    assert add_up(rows)["step", True] in (4, 5)


@pytest.mark.parametrize(
    ("text", "number"),
    [("1234", 1234), ("6,104", 6104), ("1,234,567.5", 1234567.5), ("12,5", 12.5), ("1.234,5", 1234.5), ("1_000", 1000)],
)
def test_numbers_of_other_locales(text: str, number: float) -> None:
    """A comma is a thousands separator before three digits, else the decimal point."""
    assert read_number(text) == number


def test_damaged_logs_are_read_or_refused(tmp_path: Path) -> None:
    """Logs with bytes and lines changed, doubled, cut and mixed are read, or refused in one line; amounts stay finite."""
    seed = PLAIN + "step=10, skipped=0, lr=\n{'loss': 1, 'epoch': '0.5'}\nstep:3/4 train_time:nanms step_avg:nanms\n"
    seed += (
        " 25%|██▌| 1/4 [00:03<00:09, 3.0s/it]\nstep: 10  loss: 7.6 tps: 6,104\ns:0 trl:1\niter 0: loss 1, time 1ms\n"
    )
    events = b"".join(event(BEGAN_MS / 1000 + i, i, "train/loss", 1.0) for i in range(20))
    state = b'{"log_history": [{"step": 5, "loss": 1, "epoch": 0.5}, {"step": 10, "train_runtime": 5, "epoch": 1}]}'
    refused = []
    for number in range(400):
        chance = random.Random(number)
        data = bytearray(chance.choice((seed.encode(), events, state)))
        for _ in range(chance.randint(1, 8)):
            at, what = chance.randrange(len(data)), chance.randrange(4)
            if what == 0:
                data[at] = chance.randrange(256)
            elif what == 1:
                data[at:at] = data[chance.randrange(len(data)) :][: chance.randrange(200)]
            elif what == 2:
                del data[at : at + chance.randrange(100)]
            else:
                data[at:at] = bytes(chance.choice(b"0123456789.,-eE\r\n/") for _ in range(12))
        path = tmp_path / f"{number}.log"
        path.write_bytes(data)
        try:
            rows, _ = read_run(path, begun_ms=BEGAN_MS, step_s=1.0)
        except LoadfactorError as error:
            refused.append(str(error))
            continue
        assert all(float(str(row["amount"])) < float("inf") for row in rows)
    assert not [said for said in refused if "\n" in said]
