"""Equations of kernels, links and checkpoints that the planners share."""

from typing import Literal

EngineName = Literal["vllm", "trtllm", "tensorrt-llm", "sglang"]  # two names of one engine
