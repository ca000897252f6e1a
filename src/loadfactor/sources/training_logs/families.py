"""Families of training logs as tables of patterns: lines of iterations, values in them, and what is reported of the run."""

import re
from dataclasses import dataclass
from typing import Final, Literal

from loadfactor.base.units import MS_PER_S, S_PER_DAY, S_PER_HOUR, S_PER_MIN

NUMBER: Final = r"([-+]?(?:\d[\d.,_]*\d|\d)(?:[eE][-+]?\d+)?|[-+]?nan|[-+]?inf)"
"""A number as logs write it; see `read_number`."""
_THOUSANDS: Final = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
MESH = re.compile(r"Building \d-D device mesh with .*?\[(?P<sizes>\d+(?:, \d+)*)\]\s*$")
"""The sizes of the device mesh, whose product is the number of GPUs."""
# Hugging Face's Trainer and Accelerate: tqdm's bars, and `{'loss': 2.1, 'epoch': 0.5}` where there are no bars.
# Source: src/transformers/trainer.py and trainer_callback.py (huggingface/transformers).
BAR = re.compile(
    r"(?<!\d)\d{1,3}%\|[^|]*\| (?P<step>\d+)/(?P<total>\d+) \[(?P<elapsed>\d[\d:]*\d)<[^\],]*(?:, [^\]]*)?\]?"
)
DESCRIBED = re.compile(r"\w:\s*$")
"""Text before a bar of something else: `Map: 12%|…`, `Downloading shards: 50%|…`."""
FLAGS = (
    ("recomputes", re.compile(r"\bcheckpoint_activations \.{2,} (True|False)")),
    ("recomputes", re.compile(r"\brecompute_granularity \.{2,} (full|None)")),
    ("packs", re.compile(r"['\"]?\b(?:sample_)?packing['\"]?\s*[=:]\s*([Tt]rue|[Ff]alse)")),
    ("packs", re.compile(r"> building train, validation, and test datasets for (GPT)\b")),
)
"""Arguments that switch: 0 for False or None, else 1. Megatron's datasets for GPT have no padding."""
REPORTED_HINT: Final = re.compile(
    r"world.?size| \.\. ?|\.{3}|padded vocab|batch.?size|num_processes|Num examples|Num Epochs|optimization steps|'loss'|\"loss\""
    r"|train_runtime|train_loss|tokens per iteration|device mesh|sequence length|total steps|gradient_accumulation"
    r"|Total \w+ Batches|packing|datasets for GPT|sequence_len|max_seq_length",
    re.IGNORECASE,
)
"""A line without any of these reports nothing of the run."""
BEGINS: Final = re.compile(
    r"\[before the start of training step\]|\*{3,} Running training \*{3,}|Training starts at step"
    r"|\bBeginning of training\b|^training \.\.\.$"
)
"""A line that a run, or an attempt of it, begins with."""
RESUME_HINT: Final = re.compile(r"load|continuing|resum", re.IGNORECASE)


@dataclass(frozen=True)
class Value:
    """A number of a line: its name (see `iteration.Values`), the text around it, and what it is multiplied by."""

    name: str
    pattern: re.Pattern[str]
    scale: float = 1.0
    hint: str = ""
    """Lower-case text without which a line has it not: most lines have few of the numbers."""


def value(name: str, before: str, scale: float = 1.0, after: str = "") -> Value:
    """A number that stands between these two patterns."""
    return Value(name, re.compile(before + NUMBER + after, re.IGNORECASE), scale, _find_literal(before))


def _find_literal(pattern: str) -> str:
    r"""The longest text that whatever a pattern matches contains, in lower case; empty where there is none.

    >>> _find_literal(r"elapsed time per iteration \(ms\):\s*"), _find_literal(r"\bglobal batch sizes?:?\s+")
    ('elapsed time per iteration', 'global batch size')
    >>> _find_literal(r"(?:and )?total_batch_size="), _find_literal(r"(?:loss|train_loss)': "), _find_literal("one|another")
    ('total_batch_size', '', '')
    """
    plain = re.sub(r"\\.|\[[^\]]*\]", "\0", pattern)
    while (shorter := re.sub(r"\([^()]*\)[?*]?", "\0", plain)) != plain:
        plain = shorter
    plain = re.sub(r".(?:[?*]|\{\d*,?\d*\})", "\0", plain)
    texts = () if "|" in plain.replace("\0|", "") else re.findall(r"[A-Za-z_]+(?: [A-Za-z_]+)*", plain)
    return max(texts, key=len, default="").lower()


@dataclass(frozen=True)
class StepLine:
    """A line of an iteration. `pattern` has the group `step`, or `epoch` where the step follows from it.

    `offset` is added to the step: 1 where steps are numbered from 0 and the line is written after the step. A group `passed` says
    how many epochs were over, where steps are numbered anew in each.
    """

    pattern: re.Pattern[str]
    offset: int = 0


@dataclass(frozen=True)
class LogFamily:
    """Logs of one kind. Of several kinds in one log the one that comes first in `FAMILIES` counts."""

    name: str
    hint: str  # a line of an iteration contains it
    lines: tuple[StepLine, ...]
    values: tuple[Value, ...]
    after: tuple[Value, ...] = ()
    """Values of an iteration on lines behind that of its step, which contain `after_hint`."""
    after_hint: str = ""
    again: Literal["restart", "metric", "rank"] = "restart"
    """Why a number of a step comes again that is not greater: the run was restarted; an equal one is of another metric; or another
    rank writes, and only a line of `BEGINS` is a restart."""


def read_number(text: str) -> float | None:
    """A number as logs of any locale write it; None for nan, inf and what is none.

    >>> read_number("6,104"), read_number("1.485E-04"), read_number("12,5"), read_number("1.234,5"), read_number("nan")
    (6104.0, 0.0001485, 12.5, 1234.5, None)
    """
    plain = text.replace("_", "")
    if _THOUSANDS.fullmatch(plain):
        plain = plain.replace(",", "")
    elif "," in plain:
        plain = plain.replace(".", "").replace(",", ".")
    try:
        number = float(plain)
    except ValueError:
        return None
    return number if abs(number) < float("inf") else None  # NaN is not less


def read_clock_s(text: str) -> float | None:
    """Seconds of `14:31`, `1:02:03` or `1 day, 0:14:31.66`.

    >>> read_clock_s("14:31"), read_clock_s("0:14:31.66"), read_clock_s("?")
    (871.0, 871.66, None)
    """
    days, _, rest = text.rpartition(", ")
    try:
        parts = [float(part) for part in rest.split(":")]
        whole = float(days.split()[0]) if days else 0.0
    except ValueError:
        return None
    if len(parts) not in (2, 3):
        return None
    hours = parts[0] if len(parts) == 3 else 0.0
    return whole * S_PER_DAY + hours * S_PER_HOUR + parts[-2] * S_PER_MIN + parts[-1]


# Megatron-LM, Megatron-DeepSpeed and GPT-NeoX: `iteration 10/ 1000 | … | elapsed time per iteration (ms): … |`.
# Sources: training_log() in megatron/training/training.py (NVIDIA/Megatron-LM) and in megatron/training.py and utils.py
# (microsoft/Megatron-DeepSpeed, bigscience-workshop/Megatron-DeepSpeed); megatron/logging.py (EleutherAI/gpt-neox).
MEGATRON = LogFamily(
    "Megatron",
    "iteration",
    (StepLine(re.compile(r"(?<!after )(?<!at )\biteration:?\s+(?P<step>\d+)\s*/\s*\d+\s*\|.*elapsed time")),),
    (
        value("step_s", r"elapsed time per iteration \(ms\):\s*", 1 / MS_PER_S),
        value("step_s", r"elapsed time per iteration \(s\):\s*"),
        value("samples", r"consumed (?:train )?samples:\s*"),
        value("tokens", r"consumed (?:train )?tokens:\s*"),
        value("step_samples", r"global batch size:\s*"),
        value("tflops", r"throughput(?: per GPU)? \(TFLOP/s/GPU\):\s*"),
        value("megatron_tflops", r"\|\s*TFLOPs:\s*"),
        value("megatron_tflops", r"approx flops per GPU:\s*", after="TFLOPS"),
        value("samples_per_s", r"\bsamples(?: per second|/sec):\s*"),
        value("skipped", r"number of skipped iterations:\s*"),
    ),
)
# NeMo: `… global_step: 9 | … | train_step_timing in s: 1.2 | consumed_samples: 80`, or the same in a bar with `=`. Steps count
# from 0. Source: nemo/lightning/pytorch/callbacks/progress_printer.py (NVIDIA-NeMo/NeMo).
NEMO = LogFamily(
    "NeMo",
    "train_step_timing",
    (StepLine(re.compile(r"\bglobal_step[=:]\s*(?P<step>\d+)(?!\d).*train_step_timing in s[=:]"), 1),),
    (
        value("step_s", r"\btrain_step_timing in s[=:]\s*"),
        value("samples", r"\bconsumed_samples[=:]\s*"),
        value("step_samples", r"\bglobal_batch_size[=:]\s*"),
    ),
    again="metric",
)
# torchtitan: `step: 10  loss: 7.2  memory: 47GiB  tps: 6,104  tflops: 350.1  mfu: 35.41%`; tps are of one GPU, tflops the model's,
# without recomputation. Source: torchtitan/components/metrics.py and train.py (pytorch/torchtitan).
TORCHTITAN = LogFamily(
    "torchtitan",
    "step:",
    (StepLine(re.compile(r"\bstep:\s*(?P<step>\d+)\s+(?:loss|global_avg_loss):")),),
    (
        value("gpu_tokens_per_s", r"\b(?:tps|wps):\s*"),
        value("tflops", r"\btflops:\s*"),
        value("step_s", r"\bend_to_end(?:\(s\))?:\s*"),
    ),
)
# The nanoGPT speed runs: `step:1530/1530 train_loss:3.2364 train_time:264554ms step_avg:174.05ms`; train_gpt2.py of
# KellerJordan/modded-nanogpt, whose timer leaves validation out and starts anew after warm-up. nanoGPT itself:
# `iter 10: loss 9.5, time 240.11ms, mfu 37.2%`; train.py of karpathy/nanoGPT, whose iterations count from 0.
SPEED_RUN = LogFamily(
    "nanoGPT speed run",
    "train_time:",
    (StepLine(re.compile(r"\bstep:(?P<step>\d+)/\d+ (?!val_loss)(?:train_loss:\S+ )?train_time:")),),
    (value("elapsed_s", r"train_time:", 1 / MS_PER_S, "ms"), value("elapsed_s", r"train_time:", 1.0, r"s\b")),
)
NANOGPT = LogFamily(
    "nanoGPT",
    "iter ",
    (StepLine(re.compile(r"\biter (?P<step>\d+): loss "), 1),),
    (value("step_s", r"\btime ", 1 / MS_PER_S, "ms"),),
)
# llm.c: its console `step 1/19560 | loss … | 3456.78 ms | … tok/s`, and its log `s:0 trl:10.96`, which has no times. It counts
# from 0. Sources: train_gpt2.cu, train_gpt2.py and llmc/logger.h (karpathy/llm.c).
LLM_C = LogFamily(
    "llm.c",
    "step",
    (StepLine(re.compile(r"\bstep\s+(?P<step>\d+)\s*/\s*\d+\s*\| (?:train )?loss\b")),),
    (value("step_s", r"\|\s*\(?", 1 / MS_PER_S, r" ms\b"), value("tokens_per_s", r"\|\s*", after=r" tok/s")),
)
LLM_C_LOG = LogFamily(
    "llm.c log",
    "s:",
    (StepLine(re.compile(r"^s:(?P<step>\d+) trl:"), 1), StepLine(re.compile(r"^s:(?P<step>\d+) (?:tel|eval):"))),
    (),
    again="metric",
)
# OpenRLHF: `✨ Global step 1: {'response_length': 40.375, 'rollout/num_samples': 16.0, 'timing/generation': 2.95, …}`. Source:
# openrlhf/trainer/ppo_trainer.py and ppo_trainer_async.py (OpenRLHF/OpenRLHF).
OPENRLHF = LogFamily(
    "OpenRLHF",
    "lobal step",
    (StepLine(re.compile(r"\bGlobal step (?P<step>\d+): \{'")),),
    (
        value("step_s", r"'timing/step_total': "),
        value("generation_s", r"'timing/generation': "),
        value("line_samples", r"'rollout/num_samples': "),
    ),
)
# torchtune's DiskLogger: `Step 1 | loss:1.23 lr:2e-05 tokens_per_second_per_gpu:1234.5 peak_memory_active:20.1`, without times.
# Source: torchtune/training/metric_logging.py (pytorch/torchtune).
TORCHTUNE = LogFamily(
    "torchtune",
    "Step ",
    (StepLine(re.compile(r"^Step (?P<step>\d+) \| .*\bloss:")),),
    (value("gpu_tokens_per_s", r"\btokens_per_second_per_gpu:"),),
)
# LLaMA-Factory's trainer_log.jsonl: `{"current_steps": 5, "total_steps": 93, "loss": 5.7, …, "elapsed_time": "0:02:03", …,
# "total_tokens": 1614784}`. Source: src/llamafactory/train/callbacks.py (hiyouga/LLaMA-Factory).
LLAMA_FACTORY = LogFamily(
    "LLaMA-Factory",
    '"current_steps"',
    (
        StepLine(
            re.compile(r'"current_steps": (?P<step>\d+), "total_steps": \d+, .*"elapsed_time": "(?P<elapsed>[^"]+)"')
        ),
    ),
    (value("epoch", r'"epoch": '), value("padded_tokens", r'"total_tokens": ')),
    again="metric",
)
# TRL and Axolotl write totals into the same lines. Axolotl's total is that of all positions of its batches.
_HUGGING_FACE: Final = (
    value("tokens", r"'num_tokens': '?"),
    value("padded_tokens", r"'(?:num_input_tokens_seen|tokens/total)': '?"),
)
BARS = LogFamily(
    "Hugging Face bars", "%|", (StepLine(BAR),), (), after=_HUGGING_FACE, after_hint="tokens", again="rank"
)
EPOCHS = LogFamily(
    "Hugging Face epochs",
    "'epoch'",
    (StepLine(re.compile(r"\{'(?:loss|train_runtime)': .*'epoch': '?(?P<epoch>[\d.]+)'?")),),
    (value("elapsed_s", r"'train_runtime': '?"), *_HUGGING_FACE),
    again="rank",
)
# DeepSpeed: `step=10, skipped=0, lr=…`, `global_step=10, RunningAvgSamplesPerSec=…`, `steps: 10 loss: …`.
# Sources: deepspeed/runtime/engine.py, runtime/pipe/engine.py and utils/timer.py (deepspeedai/DeepSpeed).
DEEPSPEED = LogFamily(
    "DeepSpeed",
    "step",
    (
        StepLine(re.compile(r"\bstep=(?P<step>\d+), skipped=")),
        StepLine(re.compile(r"\bglobal_step=(?P<step>\d+),.*SamplesPerSec=")),
        StepLine(re.compile(r"\]\s+\d+/(?P<step>\d+), SamplesPerSec=")),
        StepLine(re.compile(r"\bsteps: (?P<step>\d+) loss: .*iter time \(s\):")),
    ),
    (
        value("skipped_total", r"\bskipped="),
        value("engine_samples_per_s", r"\b(?:CurrSamplesPerSec|samples/sec)[=:]\s*"),
        value("engine_samples_per_s", r"(?<!RunningAvg)\bSamplesPerSec="),
        value("step_s", r"iter time \(s\):\s*"),
    ),
)
# DeepSpeed-Chat's third step, of which each iteration generates, then trains two engines: `epoch: 0|step: 9|ppo_ep: 1|act_loss: …`,
# and behind it `|E2E latency=3.88s |Gather latency=… |Generate time=2.54s … |CurSamplesPerSec=16.50 |…`, today
# `End-to-End => Latency: 3.88s, …, Samples/sec: 16.50, …, Batch Size: 64, …` and `Generation => Latency: 2.54s, …`. Its engines'
# lines say less. Sources: step3_rlhf_finetuning/main.py and dschat/utils/perf.py (deepspeedai/DeepSpeedExamples).
DEEPSPEED_CHAT = LogFamily(
    "DeepSpeed-Chat",
    "tep: ",
    (
        StepLine(re.compile(r"\bepoch: (?P<passed>\d+)\|step: (?P<step>\d+)\|ppo_ep: "), 1),
        StepLine(re.compile(r"\bEpoch: (?P<passed>\d+) \| Step: (?P<step>\d+) \| PPO Epoch: "), 1),
    ),
    (),
    after=(
        value("step_s", r"\|E2E latency="),
        value("step_s", r"\bEnd-to-End => Latency:\s*"),
        value("generation_s", r"\|Generate time="),
        value("generation_s", r"\bGeneration => Latency:\s*"),
        value("line_samples", r"\bBatch Size:\s*"),
        value("engine_samples_per_s", r"\|CurSamplesPerSec="),
    ),
    after_hint="atency",
)
# verl: `step:1 - actor/pg_loss:0.1 - … - timing_s/gen:16.2 - … - timing_s/step:48.7 - perf/total_num_tokens:159906 - …`; its steps
# generate and train; times of a step hold those of its tests and checkpoints. Source: verl/utils/tracking.py (LocalLogger),
# verl/trainer/ppo/metric_utils.py and ray_trainer.py (verl-project/verl).
VERL = LogFamily(
    "verl",
    "timing_s/",
    (StepLine(re.compile(r"\bstep:(?P<step>\d+) - .*\btiming_s/step:")),),
    (
        value("step_s", r"\btiming_s/step:(?:np\.float\d+\()?"),
        value("generation_s", r"\btiming_s/gen:(?:np\.float\d+\()?"),
        value("evaluation_s", r"\btiming_s/testing:(?:np\.float\d+\()?"),
        value("checkpoint_s", r"\btiming_s/save_checkpoint:(?:np\.float\d+\()?"),
        value("line_tokens", r"\bperf/total_num_tokens:(?:np\.\w+\()?"),
    ),
)
FAMILIES: Final = (
    MEGATRON, NEMO, TORCHTITAN, SPEED_RUN, LLM_C, NANOGPT, VERL, OPENRLHF, LLAMA_FACTORY, BARS, DEEPSPEED_CHAT, DEEPSPEED, EPOCHS,
    TORCHTUNE, LLM_C_LOG,
)  # fmt: skip
"""Of several kinds in one log the one that comes first counts."""
REPORTED: Final = (
    # Megatron
    value("gpus", r"using world size:\s*"),
    value("gpus", r"\bworld_size \.{2,} "),
    value("seq", r"\bseq_length \.{2,} "),
    value("log_interval", r"\blog_interval \.{2,} "),
    value("step_samples", r"\bglobal_batch_size \.{2,} "),
    value("hidden", r"\bhidden_size \.{2,} "),
    value("layers", r"\bnum_layers \.{2,} "),
    value("vocabulary", r"padded vocab \(size: \d+\) with \d+ dummy tokens \(new size: ", after=r"\)"),
    # DeepSpeed
    value("step_samples", r"\btrain_batch_size \.{2,} "),
    value("log_interval", r"\bsteps_per_print \.{2,} "),
    value("gpus", r"\bworld_size \.{2,} "),
    value("gpus", r"\bdist_world_size="),
    value("device_samples", r"\b(?:train_micro_batch_size_per_gpu \.{2,} |per_device_train_batch_size[ =',]+)"),
    value("accumulation", r"\bgradient_accumulation_steps(?: \.{2,} |[ =',]+)"),
    value("epoch_steps", r"\bTotal Generation Batches "),
    # llm.c
    value("step_tokens", r"^\| total_batch_size\s*\|\s*"),
    value("step_tokens", r"\b(?:and )?total_batch_size="),
    value("step_tokens", r"total desired batch size:\s*"),
    value("gpus", r"^\| (?:num_processes|world_size)\s*\|\s*"),
    value("gpus", r"\bnum_processes="),
    # nanoGPT
    value("step_tokens", r"^tokens per iteration will be:\s*"),
    # torchtitan
    value("step_samples", r"\bglobal batch size:?\s+"),
    value("seq", r"\bsequence length:?\s+"),
    value("steps", r"\btotal steps:?\s+"),
    value("gpus", r"\bworld[_ ]size[:=]\s*"),
    # Hugging Face
    value("examples", r"\bNum examples = "),
    value("epochs", r"\bNum Epochs = "),
    value("step_samples", r"\bTotal train batch size \(w\. parallel, distributed & accumulation\) = "),
    value("steps", r"\bTotal optimization steps = "),
    value("longest", r"\b(?:sequence_len|max_seq_length)['\"]?\s*[=:]\s*"),
    value("trains", r"['\"](?:loss|train_runtime|train_loss)['\"]: '?"),
)
"""Values that a log reports of its run."""
RESUMES: Final = (
    value("step", r"successfully loaded checkpoint from .* at iteration\s+"),
    value("step", r"Continuing training from global step "),
    value("step", r"Loading (?:the )?checkpoint (?:at|from) (?:\S*[/_])?step[ -]"),
    value("step", r"Resuming (?:training )?(?:from|at) (?:global )?(?:step|iteration):?\s+"),
)
"""Lines that say of which step the checkpoint is that an attempt began with."""
