"""Each family's lines become steps, samples, tokens and FLOPs over their time; checkpoints and evaluations over theirs."""

import gzip
import json
import random
from pathlib import Path

import pytest
from tests.sources.reading import read
from tests.sources.training_logs.logs import add_up, event, megatron_line, read_run, write

from loadfactor import Books
from loadfactor.base.errors import LoadfactorError, SourceError
from loadfactor.sources.base import ReadOptions
from loadfactor.sources.training_logs import SOURCE
from loadfactor.sources.training_logs.decoder import NO_TOKENS
from loadfactor.sources.training_logs.families import read_number

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
    speed = " throughput per GPU (TFLOP/s/GPU): 400.0 |"
    lines = [f" [2026-05-12 12:00:{2 * i:02d}]" + megatron_line(i, speed) for i in (1, 2, 3)]
    rows, _ = read_run(write(tmp_path, "run.log", "".join(lines)), gpus=2)
    assert add_up(rows)["model_flop", True] == pytest.approx(400e12 * 2 * 6)
    assert span(rows) == (0, 6)


def test_torchtitan(tmp_path: Path) -> None:
    """Ranks that say the same count once, labelled or not; tokens follow from the batch that the log names."""
    begin = TITAN.format(0, "Building 1-D device mesh with ['dp_shard'], [4]")
    sizes = "with local batch size 1, global batch size 4, sequence length 8192"
    begin += TITAN.format(0, f"Training starts at step 1, {sizes}")
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


ENGINE = "[2026-05-12 12:{:02d}:{:02d},000] [INFO] [timer.py:199:stop] epoch=0/micro_step={}/global_step={}, {}\n"


def engine_lines(minutes: tuple[int, ...], extra_s: int = 0) -> str:
    """Ten steps a minute at 20 samples a second of an engine, whose batch is 128; an evaluation makes the last interval longer."""
    text = ""
    for at in minutes:
        seconds = extra_s if at == minutes[-1] else 0
        text += ENGINE.format(at, seconds, at * 10, at * 10, "RunningAvgSamplesPerSec=21.3, CurrSamplesPerSec=21.31")
    return text


@pytest.mark.parametrize(
    ("more", "gpus", "samples", "is_estimate"),
    [
        ("", None, 50 * 128, True),
        (
            "cmd = deepspeed main.py --per_device_train_batch_size 8 --gradient_accumulation_steps 1\n",
            None,
            50 * 128,
            True,
        ),
        (
            "cmd = deepspeed main.py --per_device_train_batch_size 8 --gradient_accumulation_steps 2\n",
            16,
            50 * 256,
            False,
        ),
        ("[INFO] dist_world_size=16\ncmd = main.py '--per_device_train_batch_size', '8',\n", None, 50 * 128, False),
    ],
)
def test_the_rate_of_an_engine(tmp_path: Path, more: str, gpus: int | None, samples: float, is_estimate: bool) -> None:
    """Steps × batch, where the log says it or the batch of a GPU and --gpus; else the rate says a batch, and amounts are marked.

    Shapes of DeepSpeed-Chat's first step on 16 V100 (opt-1.3b-globalBatchSize128.log, deepspeedai/DeepSpeedExamples), whose 7,360
    steps are 942,080 samples: a rate × wall time counted evaluations as steps.
    """
    path = write(tmp_path, "run.log", more + engine_lines((1, 2, 3, 4, 5), extra_s=40))
    rows, gaps = read_run(path, gpus=gpus)
    assert add_up(rows)["train_sample", True] == samples
    assert {row["known_from"] for row in rows if row["unit"] == "train_sample"} == {"rate" if is_estimate else None}
    assert {row["known_from"] for row in rows if row["unit"] == "step"} == {None}
    assert any("train samples estimated: steps × 128" in what for what in gaps) == is_estimate


def test_the_rate_of_an_engine_beside_its_own_time(tmp_path: Path) -> None:
    """A pipeline engine says how long a step took: its rate × that is the batch, even of a line alone, and no estimate."""
    text = "[2026-05-12 12:00:40,000] [INFO] steps: 10 loss: 6.9 iter time (s): 4.000 samples/sec: 16.002\n"
    rows, gaps = read_run(write(tmp_path, "run.log", text))
    assert add_up(rows) == {("step", True): 1, ("train_sample", True): 64}
    assert not any("estimated" in what for what in gaps)


CHAT_OLD = (
    "epoch: {0}|step: {1}|ppo_ep: 1|act_loss: 0.15|cri_loss: 0.14|unsuper_loss: 0.0\naverage reward score: -0.5\n"
    "|E2E latency=3.88s |Gather latency=0.00s (0.00%) |Generate time=2.54s (65.36%) |Training time=1.12s (28.89%)"
    " |Others=0.22 (5.75%)|CurSamplesPerSec=16.50 |AvgSamplesPerSec=15.06\n"
)
CHAT_NEW = (
    "Epoch: {0} | Step: {1} | PPO Epoch: 1 | Actor Loss: 0.1 | Critic Loss: 0.2 | Unsupervised Loss: 0.0\n"
    "End-to-End => Latency: 3.88s, TFLOPs: 20.1, Samples/sec: 16.50, Time/seq 0.06s, Batch Size: 64, Total Seq. Length: 512\n"
    "Generation => Latency: 2.54s, Per-token Latency 9.92 ms, TFLOPs: 5.1, BW: 200.1 GB/sec, Answer Seq. Length: 256\n"
    "Training   => Latency: 1.12s, TFLOPs: 60.2\n"
)


@pytest.mark.parametrize("form", [CHAT_OLD, CHAT_NEW])
def test_deepspeed_chat(tmp_path: Path, form: str) -> None:
    """Steps of RLHF by their own lines, 64 samples each, not by an engine's rate; generating is a section of its own.

    Shapes of actor_opt-1.3b_critic_opt-350m_globalBatchSize64.log (deepspeedai/DeepSpeedExamples): 477 steps of 64; 163,216 samples
    came out of the rate of its actor, which trains for 1.1 of 3.8 seconds.
    """
    text = "Beginning of Epoch 1/2, Total Generation Batches 2\n"
    for number in range(4):
        text += ENGINE.format(0, 4 * number, number, number, "RunningAvgSamplesPerSec=86.0, CurrSamplesPerSec=83.3")
        text += form.format(number // 2, number % 2)
    path = write(tmp_path, "run.log", text)
    rows, _ = read_run(path)
    assert add_up(rows) == {("step", True): 4, ("train_sample", True): 256}
    assert {row["known_from"] for row in rows} == {None}
    assert [(kind, length) for kind, _, length in list_sections(path)] == [("generation", 2540)] * 4


def test_verl(tmp_path: Path) -> None:
    """Steps and tokens of verl; generating, tests and checkpoints are sections within the step, in this order.

    Figures of a line of char_count's GRPO on a console and of one on a GH200 (verl-project/verl#1208).
    """
    text = "(TaskRunner pid=16292) step:0 - val-core/openai/gsm8k/reward/mean@1:0.03\n"
    text += (
        "(TaskRunner pid=16292) step:1 - global_seqlen/min:538646.000 - actor/lr:0.000 - timing_s/gen:74.020 - timing_s/adv:1.167"
        " - timing_s/update_actor:14.302 - timing_s/step:96.551 - perf/total_num_tokens:2188762.000 - perf/throughput:5667.36\n"
        "(TaskRunner pid=16292) step:2 - training/global_step:2 - timing_s/gen:np.float64(5.458) - timing_s/testing:21.206"
        " - timing_s/save_checkpoint:2.0 - timing_s/step:np.float64(30.030) - perf/total_num_tokens:np.int64(18603)\n"
    )
    path = write(tmp_path, "run.log", text)
    rows, _ = read_run(path, begun_ms=BEGAN_MS)
    assert add_up(rows) == {("step", True): 2, ("train_token", True): 2188762 + 18603}
    assert list_sections(path, BEGAN_MS) == [
        ("generation", 0, 74_020),
        ("generation", 96_551, 5_458),
        ("evaluation", 96_551 + 30_030 - 23_206, 21_206),
        ("checkpoint", 96_551 + 28_030, 2_000),
    ]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("> building train, validation, and test datasets for GPT ...\n  seq_length ........ 2048\n", 80 * 2048),
        ('  "sample_packing": true,\n  "sequence_len": 4096,\n', 80 * 4096),
        ("SFTConfig(max_seq_length=1024, packing=False,)\n", None),
        ("  seq_length ........ 2048\n", None),
    ],
)
def test_samples_that_are_packed(tmp_path: Path, text: str, tokens: float | None) -> None:
    """Samples × sequence length are tokens where the log says that samples are packed; else it is said why there are none."""
    path = write(tmp_path, "run.log", text + megatron_line(10) + megatron_line(20))
    rows, _ = read_run(path, begun_ms=BEGAN_MS)
    assert add_up(rows).get(("train_token", True)) == tokens
    said = [gap.what for gap in read(SOURCE, path, options=ReadOptions(held_by="run", begun_ms=BEGAN_MS)).gaps]
    assert any(what.startswith(NO_TOKENS) for what in said) == (tokens is None)


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
    text = "tokens per iteration will be: 491,520\n"
    text += "".join(f"iter {i}: loss 9.5, time 240.00ms, mfu 37.2%\n" for i in range(4))
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


def test_epochs_without_steps(tmp_path: Path) -> None:
    """Where the Trainer's console says epochs alone the refusal names the file that has its steps, and how to import it."""
    text = "".join(f"{{'loss': 1.2, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': {i / 10}}}\n" for i in (1, 2))
    _, gaps = read_run(write(tmp_path, "run.log", text), begun_ms=BEGAN_MS)
    (what,) = gaps
    assert what.endswith("`loadfactor import training-log checkpoint-N/trainer_state.json --job run`")
    known = "  Num Epochs = 1\n  Total optimization steps = 100\n" + text
    rows, _ = read_run(write(tmp_path, "run.log", known), begun_ms=BEGAN_MS, step_s=1.0)
    assert add_up(rows)["step", True] == 20


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


TWO_STEPS_MS = 4_000
ONE_SECOND = [
    *((1, 1, 0), (1, 2, 1), (1, 3, 0), (1, 4, 1), (1, 3, 0), (1, 4, 0)),
    *((2, 5, 0), (2, 4, 0), (2, 5, 1), (2, 6, 0)),
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


def test_a_last_number_that_may_be_cut(tmp_path: Path) -> None:
    """A file that ends behind a digit, not behind a line, is taken as it is, and the receipt says that digits may be missing."""
    line = "step:{} - timing_s/gen:13.0 - timing_s/step:55.0 - perf/total_num_tokens:{}"
    text = line.format(1, 67965) + "\n" + line.format(2, 6796)
    cut = {"the file ends inside a line; its last record may be cut": 1}
    rows, gaps = read_run(write(tmp_path, "verl.log", text), begun_ms=BEGAN_MS)
    assert (add_up(rows)["train_token", True], gaps) == (67965 + 6796, cut)
    for whole in (text + "\n", text + " - done", PLAIN.rstrip("\n")):
        _, gaps = read_run(write(tmp_path, "whole.log", whole), begun_ms=BEGAN_MS)
        assert not gaps.keys() & cut.keys()


@pytest.mark.parametrize(
    ("text", "number"),
    [("1234", 1234), ("6,104", 6104), ("1,234,567.5", 1234567.5), ("12,5", 12.5), ("1.234,5", 1234.5), ("1_000", 1000)],
)
def test_numbers_of_other_locales(text: str, number: float) -> None:
    """A comma is a thousands separator before three digits, else the decimal point."""
    assert read_number(text) == number


@pytest.mark.long
def test_damaged_logs_are_read_or_refused(tmp_path: Path) -> None:
    """Logs with bytes and lines changed, doubled, cut and mixed are read, or refused in one line; amounts stay finite."""
    seed = PLAIN + "step=10, skipped=0, lr=\n{'loss': 1, 'epoch': '0.5'}\nstep:3/4 train_time:nanms step_avg:nanms\n"
    seed += (
        " 25%|██▌| 1/4 [00:03<00:09, 3.0s/it]\nstep: 10  loss: 7.6 tps: 6,104\ns:0 trl:1\niter 0: loss 1, time 1ms\n"
    )
    seed += (
        CHAT_OLD.format(0, 1)
        + CHAT_NEW.format(0, 2)
        + engine_lines((1, 2, 3))
        + "step:1 - timing_s/gen:1 - timing_s/step:2\n"
    )
    seed += "Global step 1: {'timing/step_total': 2.0}\nStep 1 | loss:1 tokens_per_second_per_gpu:5\n"
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
