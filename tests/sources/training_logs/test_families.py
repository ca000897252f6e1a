"""Each family's lines become steps, samples, tokens and FLOPs over the time that they took."""

import json
from pathlib import Path

import pytest
from tests.sources.training_logs.logs import add_up, event, megatron_line, read_run, write

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import ReadOptions
from loadfactor.sources.training_logs import SOURCE

BEGAN_MS = 1_778_587_200_000  # 2026-05-12T12:00:00Z
TITAN = "[titan] 2026-05-12 12:00:{:02d},000 - root - INFO - {}\n"


def titan_line(second: int, step: int, rank: str = "") -> str:
    told = (
        f"step: {step:2d}  loss:  7.6  grad_norm: 26.6  memory: 66.9GiB(37.5%)  tps: 8,192  tflops: 300.50  mfu: 30.4%"
    )
    return f"\x1b[31m{rank}" + TITAN.format(second, told).replace("step:", "\x1b[36mstep:")


def span(rows: list[dict[str, object]]) -> tuple[int, int]:
    starts, ends = ([int(row[name]) for row in rows] for name in ("from_utc", "to_utc"))  # type: ignore[call-overload]
    return round((min(starts) - BEGAN_MS) / 1000), round((max(ends) - BEGAN_MS) / 1000)


def test_megatron(tmp_path: Path) -> None:
    """Steps, samples, tokens with padding and skipped steps of Megatron, from the time at which training began."""
    text = "  seq_length ...................................... 2048\nusing world size: 8, data-parallel-size: 1\n"
    text += "[before the start of training step] datetime: 2026-05-12 12:00:00 \n"
    text += megatron_line(10, skipped=2) + megatron_line(20)
    rows, gaps = read_run(write(tmp_path, "run.log", text))
    assert add_up(rows) == {
        ("step", True): 18, ("step", False): 2, ("train_sample", True): 72, ("train_sample", False): 8,
        ("padded_token", True): 72 * 2048, ("padded_token", False): 8 * 2048,
    }  # fmt: skip
    assert {row["cause"] for row in rows if not row["kept"]} == {"loss_scale"}
    assert span(rows) == (0, 40)
    assert gaps == {"times without a zone, taken for UTC; --timezone says otherwise": 1}


@pytest.mark.parametrize(("argument", "share"), [("True", 0.75), ("False", 1.0)])
def test_megatron_deepspeed_counts_recomputed_work(tmp_path: Path, argument: str, share: float) -> None:
    """Its TFLOP/s become model FLOPs, three quarters of them where activations were recomputed."""
    text = f"  checkpoint_activations .......................... {argument}\n"
    text += "".join(megatron_line(step, " samples per second: 2.0 | TFLOPs: 100.00 |") for step in (1, 2))
    rows, _ = read_run(write(tmp_path, "run.log", text), begun_ms=BEGAN_MS, gpus=8)
    assert add_up(rows)["model_flop", True] == pytest.approx(share * 100e12 * 8 * 4)


def test_recomputation_unknown(tmp_path: Path) -> None:
    """Where the log does not say whether activations were recomputed there are no model FLOPs, and that is said."""
    text = "".join(megatron_line(step, " TFLOPs: 100.00 |") for step in (1, 2))
    rows, gaps = read_run(write(tmp_path, "run.log", text), begun_ms=BEGAN_MS, gpus=8)
    assert "model_flop" not in {row["unit"] for row in rows}
    assert gaps["TFLOP/s, not said whether with recomputed work; no model FLOPs"] == 2


def test_megatron_lm_with_a_clock(tmp_path: Path) -> None:
    """Lines of Megatron-LM that carry their time end when they say; TFLOP/s are the model's."""
    lines = [
        f" [2026-05-12 12:00:{2 * i:02d}]" + megatron_line(i, " throughput per GPU (TFLOP/s/GPU): 400.0 |")
        for i in (1, 2, 3)
    ]
    rows, _ = read_run(write(tmp_path, "run.log", "".join(lines)), gpus=2)
    assert add_up(rows)["model_flop", True] == pytest.approx(400e12 * 2 * 6)
    assert span(rows) == (0, 6)


def test_torchtitan(tmp_path: Path) -> None:
    """Ranks that say the same count once, labelled or not; tokens follow from the batch that the log names."""
    begin = TITAN.format(0, "Building 1-D device mesh with ['dp_shard'], [4]")
    begin += TITAN.format(
        0, "Training starts at step 1, with local batch size 1, global batch size 4, sequence length 8192"
    )
    text = begin + "".join(titan_line(s, n, r) for s, n in ((4, 1), (8, 2), (12, 3)) for r in ("[rank0]:", "[rank1]:"))
    rows, _ = read_run(write(tmp_path, "run.log", text))
    unlabelled, _ = read_run(write(tmp_path, "other.log", text.replace("[rank0]:", "").replace("[rank1]:", "")))
    assert rows == unlabelled
    assert add_up(rows) == {
        ("step", True): 3, ("train_sample", True): 12, ("train_token", True): 12 * 8192, ("padded_token", True): 12 * 8192,
        ("model_flop", True): pytest.approx(300.5e12 * 4 * 12),
    }  # fmt: skip


def test_deepspeed(tmp_path: Path) -> None:
    """Both lines of a step are one; steps without an update are lost; samples by the batch size of the configuration."""
    text = "[2026-05-12 12:00:00,000] [INFO] [config.py:1] train_batch_size ............. 16\n"
    for step, skipped in ((10, 1), (20, 3)):
        at = f"[2026-05-12 12:00:{step},500]"
        text += f"{at} [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, skipped={skipped}, lr=[1e-05], mom=[[0.9, 0.95]]\n"
        text += f"{at} [INFO] [timer.py:215:stop] epoch=0/micro_step={step}/global_step={step}, RunningAvgSamplesPerSec=7.86\n"
    rows, _ = read_run(write(tmp_path, "run.log", text))
    assert add_up(rows) == {
        ("step", True): 17, ("step", False): 3, ("train_sample", True): 17 * 16, ("train_sample", False): 3 * 16,
    }  # fmt: skip


def test_llm_c(tmp_path: Path) -> None:
    """Steps and tokens of llm.c's console."""
    text = "| total_batch_size      | 524288                                             |\n"
    text += "".join(
        f"step {i:4d}/19560 | loss 10.99 (+nanz)| norm 15.3 (+nanz)| lr 4.29e-07 | 500.00 ms | 57.7% bf16 MFU | 1048576 tok/s\n"
        for i in (1, 2, 3)
    )
    rows, _ = read_run(write(tmp_path, "run.log", text), begun_ms=BEGAN_MS)
    assert add_up(rows) == {("step", True): 3, ("train_token", True): 3 * 524288}
    assert rows[-1]["to_utc"] == BEGAN_MS + 1500


def test_llm_c_log_counts_from_zero(tmp_path: Path) -> None:
    """The log of llm.c has a step a line, from 0; seconds of a step come from --step."""
    text = "s:0 tel:10.9\ns:0 trl:10.9\ns:1 trl:10.8\ns:2 trl:10.5\ns:3 tel:9.9\n"
    path = write(tmp_path, "main.log", text)
    rows, _ = read_run(path, begun_ms=BEGAN_MS, step_s=2.0)
    assert add_up(rows) == {("step", True): 3}
    assert span(rows) == (0, 6)
    with pytest.raises(SourceError, match=r"--step"):
        read_run(path, begun_ms=BEGAN_MS)


def test_speed_run_timer_starts_anew(tmp_path: Path) -> None:
    """The timer of a speed run starts anew after warm-up; its steps took the time before and after."""
    text = "Tue May 12 12:00:00 2026       \nstep:0/4 val_loss:10.8 train_time:0ms step_avg:nanms\n"
    for step, ms in ((1, 4000), (2, 5000), (3, 1000), (4, 2000)):
        text += f"step:{step}/4 train_loss:6.45 train_time:{ms}ms step_avg:nanms\n"
    text += "step:4/4 val_loss:3.27 train_time:2001ms step_avg:1000.00ms\n"
    rows, _ = read_run(write(tmp_path, "run.log", text))
    assert add_up(rows) == {("step", True): 4}
    assert span(rows) == (0, 7)


def test_nanogpt_and_nemo(tmp_path: Path) -> None:
    """Lines of nanoGPT and of NeMo, whose steps count from 0."""
    text = "tokens per iteration will be: 491,520\n" + "".join(
        f"iter {i}: loss 9.5, time 240.00ms, mfu 37.2%\n" for i in range(4)
    )
    rows, _ = read_run(write(tmp_path, "a.log", text), begun_ms=BEGAN_MS)
    assert add_up(rows) == {("step", True): 4, ("train_token", True): 4 * 491520}
    text = "".join(
        f"Training epoch 0, iteration {i}/99 | lr: 2e-05 | global_batch_size: 8 | global_step: {i} | reduced_train_loss: 11.0"
        f" | train_step_timing in s: 1.5 | consumed_samples: {8 * (i + 1)}\n"
        for i in range(4)
    )
    rows, _ = read_run(write(tmp_path, "b.log", text), begun_ms=BEGAN_MS)
    assert add_up(rows) == {("step", True): 4, ("train_sample", True): 32}


def test_hugging_face_bars(tmp_path: Path) -> None:
    """Bars of training drawn over themselves by two ranks, others among them; the last batch of an epoch is smaller."""
    text = "Map: 100%|█████| 9000/9000 [00:09<00:00, 1000it/s]\n"
    text += "[INFO|trainer.py:1143] 2026-05-12 12:00:00,000 >> ***** Running training *****\n  Num examples = 100\n"
    text += "  Num Epochs = 1\n  Total train batch size (w. parallel, distributed & accumulation) = 32\n"
    text += "  Total optimization steps = 4\n"
    for done in range(5):
        text += f"\r {25 * done}%|██▌   | {done}/4 [00:{10 * done:02d}<11:15, 10.0s/it]" * 2
        text += "\r 10%|█    | 1/10 [00:01<00:09,  1.00it/s]"
    text += "\n{'train_runtime': 40.0, 'train_samples_per_second': 2.5, 'train_loss': 1.0, 'epoch': 1.0}\n"
    rows, _ = read_run(write(tmp_path, "run.out", text))
    assert add_up(rows) == {("step", True): 4, ("train_sample", True): 100}
    assert span(rows) == (0, 40)


def test_no_time(tmp_path: Path) -> None:
    """A log without a time is refused in one line that names the option."""
    path = write(tmp_path, "run.log", megatron_line(1) + megatron_line(2))
    with pytest.raises(SourceError, match=r"run\.log: no line says a time; .*--start 2026-05-01T12:00:00Z$"):
        read_run(path)
    with pytest.raises(SourceError, match="--job"):
        list(SOURCE.read((path,), ReadOptions()))


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
