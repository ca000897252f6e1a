"""Lines of the nanoGPT speed runs: `step:1530/1530 train_loss:3.2364 train_time:264554ms step_avg:174.05ms`, and of nanoGPT itself.

Sources: train_gpt2.py of KellerJordan/modded-nanogpt, whose timer leaves validation out and starts anew after warm-up; train.py of
karpathy/nanoGPT, `iter 10: loss 9.5, time 240.11ms, mfu 37.2%`, whose iterations count from 0.
"""

import re

from loadfactor.base.units import MS_PER_S
from loadfactor.sources.training_logs.family import LogFamily, StepLine, value

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
SAID = (value("step_tokens", r"^tokens per iteration will be:\s*"),)
