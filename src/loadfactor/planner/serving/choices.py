"""Names from which a serving plan lets people choose; light, so that help and completion load nothing else."""

from typing import Literal

WeightPrecision = Literal["bf16", "fp16", "fp8", "fp4", "int8", "int4", "fp32"]
Shape = Literal["office", "daily", "flat"]  # of a day and a week
Process = Literal["poisson", "gamma", "bursts"]  # arrivals within the hour
Router = Literal["round-robin", "least-loaded", "prefix-affine", "shared-queue"]
Order = Literal["first-come", "shortest-first"]  # of a queue
