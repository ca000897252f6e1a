"""TensorBoard's event files, Hugging Face's trainer_state.json and Megatron's golden values."""

import json
from pathlib import Path

import pytest
from tests.sources.training_logs.logs import add_up, event, read_run, write

from loadfactor.base.errors import SourceError

BEGAN_S = 1_778_587_200


def events(folder: Path, name: str, steps: range, at_s: int) -> Path:
    """An event file of these steps, two seconds each, with a loss, an evaluation and sizes of batches."""
    data = event(at_s, 0)
    for i, step in enumerate(steps):
        data += event(at_s + 2 * i + 2, step, "lm-loss-training/lm loss", 2.5)
        data += event(at_s + 2 * i + 2, step * 32, "lm-loss-training/lm loss vs samples", 2.5)
        data += event(at_s + 2 * i + 2, step, "batch-size/batch-size", 32)
        data += event(at_s + 2 * i + 2, step, "iteration-time/iteration-time", 2.0)
        data += event(at_s + 2 * i + 3, step, "eval/loss", 2.5)
    path = folder / f"events.out.tfevents.{at_s}.{name}.0"
    path.write_bytes(data)
    return path


def test_event_files_of_a_restarted_run(tmp_path: Path) -> None:
    """A folder of event files: steps that a later file repeats are lost in the earlier one."""
    events(tmp_path, "node-a", range(1, 9), BEGAN_S)
    events(tmp_path, "node-b", range(6, 11), BEGAN_S + 600)
    rows, gaps = read_run(tmp_path)
    assert add_up(rows) == {
        ("step", True): 10, ("step", False): 3, ("train_sample", True): 320, ("train_sample", False): 96,
    }  # fmt: skip
    assert not gaps


def test_an_event_file_that_is_written_or_damaged(tmp_path: Path) -> None:
    """A last record that was being written is left out; after a damaged one nothing is read, and that is said."""
    path = events(tmp_path, "node", range(1, 9), BEGAN_S)
    data = path.read_bytes()
    path.write_bytes(data[:-3])
    rows, gaps = read_run(path)
    assert (add_up(rows)["step", True], dict(gaps)) == (8, {})
    path.write_bytes(data[: len(data) // 2] + b"\xff\xff" + data[len(data) // 2 + 2 :])
    rows, gaps = read_run(path)
    assert add_up(rows)["step", True] < 8
    assert gaps == {"damaged record; what comes after it is not in": 1}


def test_keras_numbers_some_tags_by_epochs(tmp_path: Path) -> None:
    """Steps are those of batches; a file with tags by epochs alone says no step."""
    data = b"".join(event(BEGAN_S + i, i, "batch_loss", 2.5) for i in range(1, 21))
    epochs = b"".join(event(BEGAN_S + 10 * i, i, "epoch_loss", 2.5) for i in range(1, 3))
    path = tmp_path / "events.out.tfevents.1.node.0"
    path.write_bytes(data + epochs)
    assert add_up(read_run(path)[0])["step", True] == 20
    path.write_bytes(epochs)
    rows, gaps = read_run(path)
    assert (rows, gaps) == ([], {"no line of a training step in it": 1})


def test_trainer_state(tmp_path: Path) -> None:
    """Steps, samples, epochs, tokens and FLOPs, over as long as the training took."""
    state = {
        "log_history": [
            {"step": 10, "loss": 2.0, "epoch": 0.5, "num_input_tokens_seen": 5000},
            {"step": 20, "loss": 1.0, "epoch": 1.0, "num_input_tokens_seen": 10000},
            {"step": 20, "eval_loss": 1.0, "eval_runtime": 3.0},
            {"step": 20, "train_runtime": 40.0, "train_samples_per_second": 8.0, "total_flos": 1e15, "epoch": 1.0},
        ]
    }
    path = write(tmp_path, "trainer_state.json", json.dumps(state))
    rows, _ = read_run(path, begun_ms=BEGAN_S * 1000)
    assert add_up(rows) == {
        ("step", True): 20, ("train_sample", True): 320, ("epoch", True): 1.0, ("padded_token", True): 10000,
        ("model_flop", True): 1e15,
    }  # fmt: skip
    assert max(int(str(row["to_utc"])) for row in rows) == (BEGAN_S + 40) * 1000
    with pytest.raises(SourceError, match="--start"):
        read_run(path)


def test_golden_values(tmp_path: Path) -> None:
    """Steps between those that were timed took as long as the others."""
    times = {"start_step": 1, "end_step": 10, "step_interval": 5, "values": {"1": "nan", "5": "nan", "10": 0.5}}
    path = write(tmp_path, "golden.json", json.dumps({"iteration-time": times}))
    rows, _ = read_run(path, begun_ms=BEGAN_S * 1000)
    assert add_up(rows)["step", True] == 10
    assert max(int(str(row["to_utc"])) for row in rows) == BEGAN_S * 1000 + 5000
