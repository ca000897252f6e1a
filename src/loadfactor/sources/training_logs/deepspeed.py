"""Lines of DeepSpeed: `step=10, skipped=0, lr=…`, `global_step=10, RunningAvgSamplesPerSec=…`, `steps: 10 loss: …`.

Sources: deepspeed/runtime/engine.py, runtime/pipe/engine.py and utils/timer.py (deepspeedai/DeepSpeed).
"""

import re

from loadfactor.sources.training_logs.family import LogFamily, StepLine, value

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
        value("samples_per_s", r"\b(?:CurrSamplesPerSec|samples/sec)[=:]\s*"),
        value("samples_per_s", r"(?<!RunningAvg)\bSamplesPerSec="),
        value("step_s", r"iter time \(s\):\s*"),
    ),
)
SAID = (
    value("step_samples", r"\btrain_batch_size \.{2,} "),
    value("log_interval", r"\bsteps_per_print \.{2,} "),
    value("gpus", r"\bworld_size \.{2,} "),
)
