"""Names of serving engines that plans let people choose; light, so that help and completion load nothing else."""

from typing import Literal

EngineName = Literal["vllm", "trtllm", "tensorrt-llm", "sglang"]  # two names of one engine
