"""Every family of logs, the most telling first, and what logs say of a run, whichever family they are of."""

import re
from typing import Final

from loadfactor.sources.training_logs import deepspeed, hugging_face, llm_c, megatron, nanogpt, nemo, torchtitan
from loadfactor.sources.training_logs.family import value

FAMILIES: Final = (
    megatron.MEGATRON,
    nemo.NEMO,
    torchtitan.TORCHTITAN,
    nanogpt.SPEED_RUN,
    llm_c.LLM_C,
    nanogpt.NANOGPT,
    hugging_face.BARS,
    deepspeed.DEEPSPEED,
    hugging_face.EPOCHS,
    llm_c.LLM_C_LOG,
)
SAID: Final = (*megatron.SAID, *deepspeed.SAID, *llm_c.SAID, *nanogpt.SAID, *torchtitan.SAID, *hugging_face.SAID)
FLAGS: Final = megatron.FLAGS
SAID_HINT: Final = re.compile(
    r"world.?size| \.\. ?|\.{3}|padded vocab|batch.?size|num_processes|Num examples|Num Epochs|optimization steps|'loss'|\"loss\""
    r"|train_runtime|train_loss|tokens per iteration|device mesh|sequence length|total steps",
    re.IGNORECASE,
)
"""A line without any of these says nothing of the run."""

BEGINS: Final = re.compile(
    r"\[before the start of training step\]|\*{3,} Running training \*{3,}|Training starts at step"
    r"|\bBeginning of training\b|^training \.\.\.$"
)
"""A line that a run, or an attempt of it, begins with."""
RESUMES: Final = (
    value("step", r"successfully loaded checkpoint from .* at iteration\s+"),
    value("step", r"Continuing training from global step "),
    value("step", r"Loading (?:the )?checkpoint (?:at|from) (?:\S*[/_])?step[ -]"),
    value("step", r"Resuming (?:training )?(?:from|at) (?:global )?(?:step|iteration):?\s+"),
)
"""Lines that say of which step the checkpoint is that an attempt began with."""
RESUME_HINT: Final = re.compile(r"load|continuing|resum", re.IGNORECASE)
