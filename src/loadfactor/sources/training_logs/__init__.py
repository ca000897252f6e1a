"""Logs that training writes anyway: Megatron, DeepSpeed, llm.c, nanoGPT, torchtitan, Hugging Face, TensorBoard."""

import re

from loadfactor.sources.base import Source
from loadfactor.sources.files import find_with, read_with
from loadfactor.sources.training_logs.decoder import decode_training_logs

SOURCE = Source(
    "training-log",
    find_with(
        (".log", ".out", ".txt", ".err", ".json"), "training log", rotated=True, without_ending=re.compile(r"tfevents")
    ),
    read_with(decode_training_logs),
    grows=True,
    uses=("job", "timezone", "step", "begun", "gpus"),
)
