"""Lines of torchtitan: `step: 10  loss: 7.2  memory: 47GiB  tps: 6,104  tflops: 350.1  mfu: 35.41%`; tps are of one GPU.

Source: torchtitan/components/metrics.py and train.py (pytorch/torchtitan). tflops are the model's, without recomputation.
"""

import re

from loadfactor.sources.training_logs.family import LogFamily, StepLine, value

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
SAID = (
    value("step_samples", r"\bglobal batch size:?\s+"),
    value("seq", r"\bsequence length:?\s+"),
    value("steps", r"\btotal steps:?\s+"),
    value("gpus", r"\bworld[_ ]size[:=]\s*"),
)
MESH = re.compile(r"Building \d-D device mesh with .*?\[(?P<sizes>\d+(?:, \d+)*)\]\s*$")
"""The sizes of the device mesh, whose product is the number of GPUs."""
