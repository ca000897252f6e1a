"""Consoles as they are: prefixes, colours, carriage returns, locales, cut lines, bytes that are no text, and garbage."""

import gzip
import random
from pathlib import Path

import pytest
from tests.sources.training_logs.logs import add_up, event, megatron_line, read_run, write

from loadfactor.base.errors import LoadfactorError
from loadfactor.sources.training_logs.families import read_number

BEGAN_MS = 1_778_587_200_000
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
