"""Logs that training writes anyway: Megatron, DeepSpeed, verl, torchtitan, Hugging Face, TensorBoard, W&B, MLflow and others."""

import re
from pathlib import Path

from loadfactor.sources.base import Source
from loadfactor.sources.files import find_with, read_with
from loadfactor.sources.training_logs.decoder import decode_training_logs

_find_logs = find_with(
    (".log", ".out", ".txt", ".err", ".json", ".jsonl", ".wandb", "metrics.csv"),
    "training log",
    rotated=True,
    without_ending=re.compile(r"tfevents"),
)


def _find(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    """The files of these paths; of the folder of one of MLflow's runs, those of its metrics."""
    found: list[Path] = []
    for path in paths:
        metrics = path / "metrics"
        if (path / "meta.yaml").is_file() and metrics.is_dir():
            found += sorted(file for file in metrics.rglob("*") if file.is_file())
        else:
            found += _find_logs((path,))
    return tuple(found)


SOURCE = Source(
    "training-log",
    _find,
    read_with(decode_training_logs),
    grows=True,
    uses=("job", "timezone", "step", "begun", "gpus"),
)
