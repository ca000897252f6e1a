"""Long runs are read in bounded memory, whichever file keeps them."""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.sources.training_logs.logs import event
from tests.sources.training_logs.test_run_folders import BEGAN_S, history, part, wandb_file

MOST_MIB = 250
READ = """
import re, sys
from collections import Counter
from pathlib import Path
from loadfactor.sources.base import ReadOptions, Rows
from loadfactor.sources.training_logs import SOURCE
made = Counter()
options = ReadOptions(held_by="j", begun_ms=1767225600000, step_s=0.5)
for found in SOURCE.read((Path(sys.argv[1]),), options):
    if isinstance(found, Rows) and found.table == "progress":
        for unit, amount in zip(found.data["unit"].to_pylist(), found.data["amount"].to_pylist()):
            made[unit] += amount
# the peak of getrusage begins with that of the process that started this one
peak_kib = int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
print(round(made["step"]), peak_kib // 1024)
"""


def write_csv(steps: int) -> Iterator[bytes]:
    yield b"epoch,step,train_loss,consumed_tokens\n"
    yield from (b"0,%d,2.5,%d\n" % (i, 4096 * (i + 1)) for i in range(steps))


def write_lines(steps: int) -> Iterator[bytes]:
    for i in range(1, steps + 1):
        at = f"{i // 7200}:{i // 120 % 60:02}:{i // 2 % 60:02}"
        yield f'{{"current_steps": {i}, "total_steps": {steps}, "loss": 5.7, "epoch": 0.1, "elapsed_time": "{at}"}}\n'.encode()


def write_state(steps: int) -> Iterator[bytes]:
    yield b'{"global_step": %d, "log_history": [\n' % steps
    for i in range(1, steps + 1):
        entry = {"epoch": i / steps, "loss": 2.5, "step": i, "num_input_tokens_seen": 4096 * i}
        yield json.dumps(entry).encode() + (b",\n" if i < steps else b"\n]}")


def write_events(steps: int) -> Iterator[bytes]:
    yield from (event(BEGAN_S + i / 2, i, "train/loss", 2.5) for i in range(1, steps + 1))


def write_wandb(steps: int) -> Iterator[bytes]:
    rows = ({"loss": 2.5, "num_tokens": 4096 * i, "_timestamp": BEGAN_S + i / 2} for i in range(1, steps + 1))
    yield wandb_file([part(21, b"\x08\x01"), *(history(row, i) for i, row in enumerate(rows, 1))])


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "write", "steps"),
    [
        ("metrics.csv", write_csv, 1_000_000),
        ("trainer_log.jsonl", write_lines, 150_000),
        ("trainer_state.json", write_state, 150_000),
        ("events.out.tfevents.1.host", write_events, 150_000),
        ("run-1.wandb", write_wandb, 150_000),
        ("mlflow.db", None, 150_000),
    ],
)
def test_a_long_run_takes_little_memory(
    tmp_path: Path, name: str, write: Callable[[int], Iterator[bytes]] | None, steps: int
) -> None:
    """Every step is counted, and no more than 250 MiB are used; as objects 100,000 rows took 260, and a million 2 GiB."""
    path = tmp_path / name
    if write is not None:
        with path.open("wb") as file:
            file.writelines(write(steps))
    else:
        database = sqlite3.connect(path)
        database.execute("CREATE TABLE runs (run_uuid, name, start_time, lifecycle_stage)")
        database.execute("INSERT INTO runs VALUES ('r', 'run', 1, 'active')")
        database.execute("CREATE TABLE metrics (key, value, timestamp, run_uuid, step, is_nan)")
        points = (((BEGAN_S * 1000) + 500 * i, i) for i in range(1, steps + 1))
        database.executemany("INSERT INTO metrics VALUES ('loss', 1.0, ?, 'r', ?, 0)", points)
        database.commit()
    done = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True)
    counted, peak_mib = map(int, done.stdout.split())
    assert counted == steps
    assert peak_mib <= MOST_MIB
