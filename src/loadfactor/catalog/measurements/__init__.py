"""Measurements that come with the program: published tables retyped, each row with its source, and what the hardware kit left."""

import csv
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

TRAINING = (
    "megatron_sc21_table1.csv", "korthikanti2022_table5.csv", "korthikanti2022_fig1_memory.csv", "mosaic_mpt_h100.csv",
    "megatron_deepspeed_a100.csv", "adapters_eager.csv",
)  # fmt: skip


@cache
def read_published_rows(name: str) -> tuple[Mapping[str, str], ...]:
    """The rows of one published table.

    >>> read_published_rows("megatron_sc21_table1.csv")[0]["model"]
    '1.7B'
    """
    text = files(__name__).joinpath(name).read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


HARDWARE = ("hardware_h100_2026-11-26.json",)
"""What the hardware kit (docs/hardware.md) measured: a file a machine and day, each with its source."""


@cache
def read_hardware(name: str) -> Mapping[str, Any]:
    """What was measured on one machine.

    >>> read_hardware(HARDWARE[0])["machine"]["device"]
    'NVIDIA H100 80GB HBM3'
    """
    found: Mapping[str, Any] = json.loads(files(__name__).joinpath(name).read_text(encoding="utf-8"))
    return found
