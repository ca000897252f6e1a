"""Runs in the files of loggers: W&B, MLflow, CSV, and what trainers write beside; mutants of each are read or refused.

Shapes: wandb 0.2x offline and MLflow 3 files, written by those packages and typed anew; Axolotl, OpenRLHF, LLaMA-Factory, TRL from
lines that people published (axolotl-ai-cloud/axolotl, OpenRLHF/OpenRLHF, hiyouga/LLaMA-Factory, huggingface/trl).
"""

import gzip
import json
import random
import sqlite3
import struct
import zlib
from pathlib import Path

import pytest
from tests.sources.training_logs.logs import add_up, event, read_run, write

from loadfactor.base.errors import LoadfactorError, SourceError
from loadfactor.sources.training_logs import SOURCE

BEGAN_S = 1_778_587_200


def varint(number: int) -> bytes:
    out = b""
    while number >= 0x80:
        out, number = out + bytes([number & 0x7F | 0x80]), number >> 7
    return out + bytes([number])


def part(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def history(values: dict[str, object], row: int) -> bytes:
    """A record of W&B with a row of its history; names with a dot are nested."""
    items = b""
    for name, value in {**values, "_step": row}.items():
        named = b"".join(part(2, of.encode()) for of in name.split(".")) if "." in name else part(1, name.encode())
        items += part(1, named + part(16, json.dumps(value).encode()))
    return b"\x08" + varint(row + 1) + part(2, items + part(2, b"\x08" + varint(row)))


def wandb_file(records: list[bytes]) -> bytes:
    """Records in blocks of 32 KiB, each with its checksum; long ones in several parts."""
    out = bytearray(b":W&B" + struct.pack("<HB", 0xBEE1, 0))
    for record in records:
        rest, first = record, True
        while first or rest:
            room = 32768 - len(out) % 32768
            if room < 7:
                out += bytes(room)
                continue
            piece, rest = rest[: room - 7], rest[room - 7 :]
            kind = {(True, True): 1, (True, False): 2, (False, False): 3, (False, True): 4}[first, not rest]
            out += struct.pack("<IHB", zlib.crc32(piece, zlib.crc32(bytes([kind]))), len(piece), kind) + piece
            first = False
    return bytes(out)


def wandb_rows(steps: int) -> list[bytes]:
    rows: list[dict[str, object]] = [
        {
            "train/loss": 2.0,
            "train/global_step": 10 * i,
            "train/num_tokens": 40960 * i,
            "_timestamp": BEGAN_S + 5.0 * i,
            "a.b": "x" * 900,
        }
        for i in range(1, steps + 1)
    ]
    return [part(21, b"\x08\x01"), *(history(row, i) for i, row in enumerate(rows))]


def test_wandb(tmp_path: Path) -> None:
    """Rows of W&B's history by their global step, over blocks; a damaged record is left out and counted."""
    data = wandb_file(wandb_rows(200))
    path = tmp_path / "run-1.wandb"
    path.write_bytes(data)
    rows, gaps = read_run(tmp_path)
    assert add_up(rows) == {("step", True): 2000, ("train_token", True): 200 * 40960}
    assert (max(int(str(row["to_utc"])) for row in rows), gaps) == ((BEGAN_S + 1000) * 1000, {})
    path.write_bytes(data[:90_000] + b"\xff" + data[90_001:])
    rows, gaps = read_run(path)
    assert add_up(rows) == {("step", True): 2000, ("train_token", True): 200 * 40960}
    assert gaps == {"damaged or very large record of W&B; left out": 1}


def test_mlflow(tmp_path: Path) -> None:
    """The folder of a run of MLflow; what machines did lies beside it, and counts no steps."""
    run = tmp_path / "mlruns" / "0" / ("ab12" * 8)
    (run / "metrics" / "train").mkdir(parents=True)
    (run / "meta.yaml").write_text("run_id: x\n")
    lines = [f"{(BEGAN_S + 2 * i) * 1000} {{}} {5 * i}\n" for i in range(1, 21)]
    write(run / "metrics", "train_loss", "".join(line.format(2.5) for line in lines))
    write(
        run / "metrics" / "train", "epoch", "".join(line.format(i / 20) for i, line in enumerate(lines, 1)) + "half a"
    )
    rows, gaps = read_run(run)
    assert add_up(rows) == {("step", True): 100, ("epoch", True): pytest.approx(1)}
    assert gaps == {"line that is no `timestamp value step`": 1}
    (run / "metrics" / "system").mkdir()
    samples = "".join(f"{(BEGAN_S + i) * 1000} 97.5 {i}\n" for i in range(500))
    write(run / "metrics" / "system", "gpu_0_utilization_percentage", samples)
    assert add_up(read_run(run)[0]) == add_up(rows)


def open_mlflow(path: Path, *runs: tuple[str, str, str]) -> sqlite3.Connection:
    """A database with the tables of runs and metrics of MLflow's schema of today; eight steps a run, and its machine."""
    database = sqlite3.connect(path)
    database.executescript(
        """
        CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY);
        CREATE TABLE runs (run_uuid VARCHAR(32) NOT NULL PRIMARY KEY, name VARCHAR(250), source_type VARCHAR(20),
          user_id VARCHAR(256), status VARCHAR(9), start_time BIGINT, end_time BIGINT, lifecycle_stage VARCHAR(20),
          artifact_uri VARCHAR(200), experiment_id INTEGER, deleted_time BIGINT,
          CHECK (lifecycle_stage IN ('active', 'deleted')));
        CREATE TABLE metrics (key VARCHAR(250) NOT NULL, value FLOAT NOT NULL, timestamp BIGINT NOT NULL,
          run_uuid VARCHAR(32) NOT NULL, step BIGINT DEFAULT '0' NOT NULL, is_nan BOOLEAN DEFAULT '0' NOT NULL,
          CONSTRAINT metric_pk PRIMARY KEY (key, timestamp, step, run_uuid, value, is_nan),
          FOREIGN KEY(run_uuid) REFERENCES runs (run_uuid), CHECK (is_nan IN (0, 1)));
        """
    )
    for of, name, stage in runs:
        database.execute(
            "INSERT INTO runs (run_uuid, name, start_time, lifecycle_stage) VALUES (?, ?, ?, ?)",
            (of, name, BEGAN_S * 1000, stage),
        )
        rows = [("loss", 1.0, (BEGAN_S + i) * 1000, of, i) for i in range(1, 9)]
        rows += [("system/gpu_0_power_usage_watts", 300.0, (BEGAN_S + i) * 1000, of, i) for i in range(300)]
        database.executemany("INSERT INTO metrics (key, value, timestamp, run_uuid, step) VALUES (?, ?, ?, ?, ?)", rows)
    database.commit()
    return database


def test_mlflows_database(tmp_path: Path) -> None:
    """The only run that was not deleted; of several the one that the job names; samples of machines are no steps."""
    path = tmp_path / "mlflow.db"
    database = open_mlflow(path, ("a" * 32, "brave-owl-7", "active"), ("b" * 32, "calm-fox-1", "deleted"))
    assert add_up(read_run(path)[0]) == {("step", True): 8}
    database.execute(
        "INSERT INTO metrics VALUES (CAST(x'ff0aff' AS TEXT), 1.0, 1, ?, 9, 0)", ("a" * 32,)
    )  # a hostile name, at no time
    database.execute("UPDATE runs SET lifecycle_stage = 'active'")
    database.commit()
    with pytest.raises(
        SourceError, match=r"2 runs of MLflow \('brave-owl-7', 'calm-fox-1'\).*give --job the name or id"
    ):
        read_run(path)
    database.execute("UPDATE runs SET name = 'run' WHERE run_uuid = ?", ("a" * 32,))  # as the job is called
    database.commit()
    assert add_up(read_run(path)[0]) == {("step", True): 8}


@pytest.mark.parametrize("mark", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_csv_of_lightning(tmp_path: Path, mark: str, end: str) -> None:
    """Lightning's steps count from 0; rows of validation say nothing; the throughput monitor says the time."""
    head = mark.join(("batches", "epoch", "lengths", "samples", "step", "time", "train_loss", "val_loss"))
    rows = [
        mark.join((str(i * 10), "0", str(i * 40960), str(i * 80), str(i * 10 - 1), str(2.5 * i), "1.5", ""))
        for i in (1, 2, 3)
    ]
    rows.insert(2, mark.join(("", "0", "", "", "19", "", "", "1.2")))
    text = "\ufeff" + end.join([head, *rows]) + end
    amounts, gaps = read_run(write(tmp_path, "metrics.csv", text), begun_ms=BEGAN_S * 1000)
    assert add_up(amounts) == {("step", True): 30, ("train_sample", True): 240, ("padded_token", True): 3 * 40960}
    assert max(int(str(row["to_utc"])) for row in amounts) == (BEGAN_S + 7.5) * 1000
    assert not gaps


def test_csv_of_litgpt(tmp_path: Path) -> None:
    """Rows of micro-batches: the last of a step says the tokens until then."""
    rows = [f"{i},{1.5},{(i + 1) // 2},0.25,{i * 2048}" for i in range(1, 9)]
    path = write(tmp_path, "metrics.csv", "\n".join(["iter,loss,step,iter_time,total_tokens", *rows]))
    amounts, _ = read_run(path, begun_ms=BEGAN_S * 1000, step_s=0.5)
    assert add_up(amounts) == {("step", True): 4, ("train_token", True): 8 * 2048}


STATE = {
    "global_step": 40,
    "num_input_tokens_seen": 655360,
    "log_history": [
        *({"step": s, "loss": 1.0, "epoch": s / 40, "num_tokens": s * 16384.0} for s in (10, 20, 30)),
        {"step": 40, "train_runtime": 400.0, "train_samples_per_second": 0.8, "epoch": 1.0},
    ],
}


def test_trainer_states(tmp_path: Path) -> None:
    """TRL's num_tokens are tokens, and steps without are said; num_input_tokens_seen of the end is padded; Axolotl's total, too."""
    path = write(tmp_path, "trainer_state.json", "\ufeff" + json.dumps(STATE))
    rows, gaps = read_run(path, begun_ms=BEGAN_S * 1000)
    assert add_up(rows) == {
        ("step", True): 40, ("train_sample", True): 320, ("epoch", True): 1.0, ("train_token", True): 30 * 16384,
        ("padded_token", True): 655360,
    }  # fmt: skip
    assert gaps == {"steps of which the log says no tokens: cost_per_token is too high by their share": 10}
    long = {"log_history": [{"step": 10, "loss": 1, "tokens/total": 512.0}, {"step": 20, "train_runtime": 86_400.0}]}
    long["log_history"][1] |= {"train_samples_per_second": 1.235, "tokens/total": 1024.0}
    rows, gaps = read_run(write(tmp_path, "trainer_state.json", json.dumps(long)), begun_ms=BEGAN_S * 1000)
    assert add_up(rows)["train_sample", True] == pytest.approx(1.235 * 86_400)
    assert add_up(rows)["padded_token", True] == 1024
    assert any(what.startswith("train samples estimated: a reported rate") for what in gaps)


@pytest.mark.parametrize(
    ("text", "amounts", "options"),
    [
        (
            "ppo_trainer.py:547] ✨ Global step 1: {'response_length': 40.375, 'rollout/num_samples': 16.0, 'loss': 0.0,"
            " 'timing/generation': 2.95, 'timing/ppo_train': 5.04, 'timing/step_total': 8.5}\n"
            "ppo_trainer.py:547] ✨ Global step 2: {'rollout/num_samples': 16.0, 'timing/step_total': 6.1}\n",
            {("step", True): 2, ("train_sample", True): 32},
            {},
        ),
        (
            '{"current_steps": 5, "total_steps": 93, "loss": 5.7013, "lr": 1.0e-06, "epoch": 0.16, "elapsed_time": "0:02:03",'
            ' "remaining_time": "0:36:15", "throughput": 13061.0, "total_tokens": 1614784}\n'
            '{"current_steps": 10, "total_steps": 93, "loss": 4.169, "lr": 2.2e-06, "epoch": 0.33, "elapsed_time": "0:04:02",'
            ' "remaining_time": "0:33:29", "throughput": 13174.21, "total_tokens": 3189568}\n',
            {("step", True): 10, ("padded_token", True): 3189568, ("epoch", True): pytest.approx(0.33)},
            {},
        ),
        (
            "Step 1 | loss:1.23 lr:2e-05 tokens_per_second_per_gpu:1000.0 peak_memory_active:20.1\n"
            "Step 2 | loss:1.22 lr:2e-05 tokens_per_second_per_gpu:3000.0 peak_memory_active:20.1\n",
            {("step", True): 2, ("train_token", True): 16_000},
            {"step_s": 2.0, "gpus": 2},
        ),
        (
            "[2026-05-12 12:00:00,000] [INFO] ***** Running training *****\n  Num examples = 64\n  Num Epochs = 1\n"
            "  Total train batch size (w. parallel, distributed & accumulation) = 32\n  Total optimization steps = 2\n"
            " 50%|██▌   | 1/2 [00:10<00:10, 10.0s/it]\n{'loss': '0.7', 'tokens/total': 512, 'epoch': '0.5'}\n"
            "100%|█████| 2/2 [00:20<00:00, 10.0s/it]\n{'loss': '0.7', 'tokens/total': 1024, 'epoch': '1'}\n",
            {("step", True): 2, ("train_sample", True): 64, ("padded_token", True): 1024},
            {},
        ),
    ],
    ids=["OpenRLHF", "LLaMA-Factory", "torchtune", "Axolotl"],
)  # fmt: skip
def test_lines_of_trainers(
    tmp_path: Path, text: str, amounts: dict[tuple[str, bool], float], options: dict[str, float]
) -> None:
    """Lines of OpenRLHF, LLaMA-Factory, torchtune and Axolotl."""
    rows, _ = read_run(write(tmp_path, "run.jsonl", text), begun_ms=BEGAN_S * 1000, **options)
    assert add_up(rows) == amounts


def test_verl_on_tensorboard(tmp_path: Path) -> None:
    """The same tags in an event file: tokens of each step, and generating apart."""
    names = {"actor/pg_loss": 0.5, "perf/total_num_tokens": 4096.0, "timing_s/step": 8.0, "timing_s/gen": 6.0}
    data = b"".join(event(BEGAN_S + 10 * i, i, tag, number) for i in range(1, 6) for tag, number in names.items())
    path = tmp_path / "events.out.tfevents.1.node.0"
    path.write_bytes(data)
    rows, _ = read_run(path)
    assert add_up(rows) == {("step", True): 5, ("train_token", True): 5 * 4096}


VERL = "(TaskRunner pid=7) step:{0} - timing_s/gen:5.0 - timing_s/step:8.0 - perf/total_num_tokens:{1}\n"
FORMS = {
    "verl.log": VERL.format(1, 1000) + VERL.format(2, 1200) + VERL.format(3, 900),
    "trainer_log.jsonl": "".join(
        f'{{"current_steps": {n}, "total_steps": 9, "loss": 5, "elapsed_time": "0:0{n}:00", "total_tokens": {n * 99}}}\n'
        for n in (1, 2, 3)
    ),
    "metrics.csv": "step,train_loss,total_tokens\n" + "".join(f"{n},1.5,{4096 * (n + 1)}\n" for n in range(3)),
    "trainer_state.json": json.dumps(STATE, indent=2) + "\n",
    "torchtune.txt": "".join(f"Step {n} | loss:1.2 lr:2e-05 tokens_per_second_per_gpu:1000.0\n" for n in (1, 2, 3)),
}


@pytest.mark.parametrize("name", FORMS)
def test_the_same_in_other_clothes(tmp_path: Path, name: str) -> None:
    """Line ends of Windows, a byte order mark and gzip change no sum; what was written twice is kept once."""
    text, options = FORMS[name], {"begun_ms": BEGAN_S * 1000, "step_s": 2.0, "gpus": 1}
    expected = add_up(read_run(write(tmp_path, name, text), **options)[0])
    for other in (text.replace("\n", "\r\n"), "\ufeff" + text, text.rstrip("\n")):
        assert add_up(read_run(write(tmp_path, name, other), **options)[0]) == expected
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert add_up(read_run(packed, **options)[0]) == expected
    if not name.endswith(".json"):
        twice = add_up(read_run(write(tmp_path, name, text + text), **options)[0])
        assert {unit: amount for unit, amount in twice.items() if unit[1]} == expected


@pytest.mark.parametrize("name", [name for name in FORMS if not name.endswith(".json")])
def test_lines_out_of_order_are_restarts_that_are_named(tmp_path: Path, name: str) -> None:
    """A step that comes after a later one is made again, as after a restart: no amount is added in silence, and none is lost."""
    options = {"begun_ms": BEGAN_S * 1000, "step_s": 2.0, "gpus": 1}
    lines, headings = FORMS[name].splitlines(), int(name == "metrics.csv")
    plain = add_up(read_run(write(tmp_path, name, FORMS[name]), **options)[0])
    rows, gaps = read_run(write(tmp_path, name, "\n".join([*lines[:headings], *lines[headings:][::-1], ""])), **options)
    kept = {unit: amount for unit, amount in add_up(rows).items() if unit[1]}
    assert all(amount <= plain[unit] for unit, amount in kept.items())
    assert any("attempt before it" in what for what in gaps)


def test_a_table_of_another_locale_has_the_same_sums(tmp_path: Path) -> None:
    """Semicolons between cells and commas before decimals, as workbooks of many countries save CSV."""
    text, options = FORMS["metrics.csv"], {"begun_ms": BEGAN_S * 1000, "step_s": 2.0, "gpus": 1}
    other = text.replace(",", ";").replace(".", ",")
    expected = add_up(read_run(write(tmp_path, "metrics.csv", text), **options)[0])
    assert add_up(read_run(write(tmp_path, "metrics.csv", other), **options)[0]) == expected


def test_mutants(tmp_path: Path) -> None:
    """Files that were cut, doubled, changed and mixed are read, or refused in one line; amounts stay finite and never negative."""
    csv = "step,loss,time,samples,batches\n" + "".join(f"{i},1.0,{i},{8 * i},{i}\n" for i in range(20))
    seeds = (wandb_file(wandb_rows(40)), csv.encode(), json.dumps(STATE).encode(), b"SQLite format 3\0" + bytes(200))
    refused = []
    for number in range(200):
        chance = random.Random(number)
        data = bytearray(chance.choice(seeds))
        for _ in range(chance.randint(1, 6)):
            at, what = chance.randrange(len(data)), chance.randrange(4)
            if what == 0:
                data[at] = chance.randrange(256)
            elif what == 1:
                data[at:at] = data[chance.randrange(len(data)) :][: chance.randrange(500)]
            elif what == 2:
                del data[at : at + chance.randrange(300)]
            else:
                data[at:at] = bytes(chance.choice(b"0123456789.,;-eE\r\n\0\xff") for _ in range(12))
            data = data or bytearray(b"\n")
        path = tmp_path / f"{number}.wandb"
        path.write_bytes(data)
        try:
            rows, _ = read_run(path, begun_ms=BEGAN_S * 1000, step_s=1.0)
        except LoadfactorError as error:
            refused.append(str(error))
            continue
        assert all(0 <= float(str(row["amount"])) < float("inf") for row in rows)

    assert not [said for said in refused if "\n" in said]


def test_the_source_finds_them(tmp_path: Path) -> None:
    """In a folder files of all these kinds are found; a table of something else is no log of training."""
    for name in ("run-1.wandb", "metrics.csv", "trainer_log.jsonl", "events.out.tfevents.1.x", "other.csv"):
        (tmp_path / name).write_text("timestamp,utilization.gpu\n1,2\n")
    assert {path.name for path in SOURCE.files((tmp_path,))} == {
        "run-1.wandb", "metrics.csv", "trainer_log.jsonl", "events.out.tfevents.1.x",
    }  # fmt: skip
    assert read_run(tmp_path / "other.csv", begun_ms=0)[1] == {"no line of a training step in it": 1}
