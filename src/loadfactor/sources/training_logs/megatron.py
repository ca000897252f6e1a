"""Lines of Megatron-LM, Megatron-DeepSpeed and GPT-NeoX: `iteration 10/ 1000 | … | elapsed time per iteration (ms): … |`.

Sources: training_log() in megatron/training/training.py (NVIDIA/Megatron-LM) and in megatron/training.py and utils.py
(microsoft/Megatron-DeepSpeed, bigscience-workshop/Megatron-DeepSpeed); megatron/logging.py (EleutherAI/gpt-neox).
"""

import re

from loadfactor.base.units import MS_PER_S
from loadfactor.sources.training_logs.family import LogFamily, StepLine, Value, value
from loadfactor.sources.training_logs.iteration import Values

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


def _argument(name: str, argument: str) -> Value:
    return value(name, rf"\b{argument} \.{{2,}} ")


SAID = (
    value("gpus", r"using world size:\s*"),
    _argument("gpus", "world_size"),
    _argument("seq", "seq_length"),
    _argument("log_interval", "log_interval"),
    _argument("step_samples", "global_batch_size"),
    _argument("hidden", "hidden_size"),
    _argument("layers", "num_layers"),
    value("vocabulary", r"padded vocab \(size: \d+\) with \d+ dummy tokens \(new size: ", after=r"\)"),
)
FLAGS = (
    ("recomputes", re.compile(r"\bcheckpoint_activations \.{2,} (True|False)")),
    ("recomputes", re.compile(r"\brecompute_granularity \.{2,} (full|None)")),
)
"""Arguments that switch: 1 for True or full, 0 for False or None."""


def model_share(said: Values) -> float | None:
    """Model FLOPs ÷ the FLOPs that Megatron-DeepSpeed reports; None where the log does not say whether activations are recomputed.

    It reports 24·c·B·s·l·h²(1 + s/6h + V/16lh), with c = 4 where activations are recomputed and 3 where not. Of the terms the last,
    the logits, is right at c = 4 and is not recomputed (arXiv:2104.04473 §5.1).

    >>> round(model_share({"recomputes": 1, "hidden": 14336, "layers": 70, "seq": 2048, "vocabulary": 250880}), 4)
    0.7538
    >>> model_share({"recomputes": 1}), model_share({"recomputes": 0}), model_share({})
    (0.75, 1.0, None)
    """
    recomputes = said.get("recomputes")
    if recomputes is None:
        return None
    counted = 1.0 if recomputes else 0.75
    hidden, layers, seq, vocabulary = (said.get(k) for k in ("hidden", "layers", "seq", "vocabulary"))
    if not (hidden and layers and seq and vocabulary):
        return 0.75 / counted
    blocks, logits = 1 + seq / (6 * hidden), vocabulary / (16 * layers * hidden)
    return (0.75 * blocks + logits) / (counted * (blocks + logits))
