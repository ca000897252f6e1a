"""Lines of llm.c: its console `step 1/19560 | loss … | 3456.78 ms | … tok/s`, and its log `s:0 trl:10.96`, which has no times.

Sources: train_gpt2.cu, train_gpt2.py and llmc/logger.h (karpathy/llm.c). Steps of the log count from 0.
"""

import re

from loadfactor.base.units import MS_PER_S
from loadfactor.sources.training_logs.family import LogFamily, StepLine, value

LLM_C = LogFamily(
    "llm.c",
    "step",
    (StepLine(re.compile(r"\bstep\s+(?P<step>\d+)\s*/\s*\d+\s*\| (?:train )?loss\b")),),
    (
        value("step_s", r"\|\s*\(?", 1 / MS_PER_S, r" ms\b"),
        value("tokens_per_s", r"\|\s*", after=r" tok/s"),
    ),
)
LLM_C_LOG = LogFamily(
    "llm.c log",
    "s:",
    (StepLine(re.compile(r"^s:(?P<step>\d+) trl:"), 1), StepLine(re.compile(r"^s:(?P<step>\d+) (?:tel|eval):"))),
    (),
    again="metric",
)
SAID = (
    value("step_tokens", r"^\| total_batch_size\s*\|\s*"),
    value("step_tokens", r"\b(?:and )?total_batch_size="),
    value("step_tokens", r"total desired batch size:\s*"),
    value("gpus", r"^\| (?:num_processes|world_size)\s*\|\s*"),
    value("gpus", r"\bnum_processes="),
)
