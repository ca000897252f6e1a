"""Lines of NeMo: `… global_step: 9 | … | train_step_timing in s: 1.2 | consumed_samples: 80`, or the same in a bar with `=`.

Source: nemo/lightning/pytorch/callbacks/progress_printer.py (NVIDIA-NeMo/NeMo). Steps count from 0.
"""

import re

from loadfactor.sources.training_logs.family import LogFamily, StepLine, value

NEMO = LogFamily(
    "NeMo",
    "train_step_timing",
    (StepLine(re.compile(r"\bglobal_step[=:]\s*(?P<step>\d+)(?!\d).*train_step_timing in s[=:]"), 1),),
    (
        value("step_s", r"\btrain_step_timing in s[=:]\s*"),
        value("samples", r"\bconsumed_samples[=:]\s*"),
        value("step_samples", r"\bglobal_batch_size[=:]\s*"),
    ),
    again="metric",
)
