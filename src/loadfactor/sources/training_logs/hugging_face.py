"""Lines of Hugging Face's Trainer and Accelerate: tqdm's bars, and `{'loss': 2.1, 'epoch': 0.5}` where there are no bars.

Source: src/transformers/trainer.py and trainer_callback.py (huggingface/transformers).
"""

import re

from loadfactor.sources.training_logs.family import LogFamily, StepLine, value

BAR = re.compile(
    r"(?<!\d)\d{1,3}%\|[^|]*\| (?P<step>\d+)/(?P<total>\d+) \[(?P<elapsed>\d[\d:]*\d)<[^\],]*(?:, [^\]]*)?\]?"
)
DESCRIBED = re.compile(r"\w:\s*$")
"""What stands before a bar of something else: `Map: 12%|…`, `Downloading shards: 50%|…`."""

BARS = LogFamily("Hugging Face bars", "%|", (StepLine(BAR),), (), again="rank")
EPOCHS = LogFamily(
    "Hugging Face epochs",
    "'epoch'",
    (StepLine(re.compile(r"\{'(?:loss|train_runtime)': .*'epoch': '?(?P<epoch>[\d.]+)'?")),),
    (
        value("elapsed_s", r"'train_runtime': '?"),
        value("padded_tokens", r"'num_input_tokens_seen': '?"),
    ),
    again="rank",
)
SAID = (
    value("examples", r"\bNum examples = "),
    value("epochs", r"\bNum Epochs = "),
    value("step_samples", r"\bTotal train batch size \(w\. parallel, distributed & accumulation\) = "),
    value("steps", r"\bTotal optimization steps = "),
    value("trains", r"['\"](?:loss|train_runtime|train_loss)['\"]: '?"),
)
