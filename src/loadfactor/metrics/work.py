"""Metrics of work: FLOPs that networks needed, the share of the peak that they are, and how fast tokens were made.

Time at peak is FLOPs ÷ the dense peak of a GPU in the job's datatype: the seconds that GPU would have needed. MFU is that time ÷
the time held, so that it adds up over jobs and accelerators as activity does.
"""

from typing import Final

from loadfactor.metrics.metric import Better, Count, Kind, Made, Metric, Quantile, Speed, UnitShare
from loadfactor.tables.work import SECTION_KINDS

TRAIN_TOKEN, TRAIN_SAMPLE = "train_token", "train_sample"
MODEL_FLOP: Final = "model_flop"
HARDWARE_FLOP: Final = "hardware_flop"
AT_PEAK: Final = {MODEL_FLOP: "model_peak_s", HARDWARE_FLOP: "hardware_peak_s"}
"""Units of FLOPs and of the GPU-seconds at peak that they are."""
PROMPT, CACHED, OUTPUT = "prompt_token", "cached_prompt_token", "output_token"
SPLIT: Final = {PROMPT: 1.0, CACHED: 0.1, OUTPUT: 4.0}
"""How the cost of serving is split over its tokens: what one counts for, in the manner of price lists of APIs.

A token from a cache is a prompt token, too: it counts what it counts alone, once.
"""
SERVED: Final = "served_token"
"""The unit of tokens that were served, each counted by the split."""
IN_SECTION: Final = {kind: f"{kind}_gpu_s" for kind in SECTION_KINDS}
"""Units of the GPU-seconds that a job held while it did this instead of advancing."""
WORKED_OUT: Final = (MODEL_FLOP, HARDWARE_FLOP, *AT_PEAK.values(), SERVED, *IN_SECTION.values())
"""Units of work that are worked out of tokens, networks, peaks and sections, beside what jobs report."""
OTHER_CAUSE: Final = "other"
LOST_TO: Final = ("restart", "failed_attempt", "preemption", "loss_scale", OTHER_CAUSE)
"""Why work was lost, as far as its source says so; the last one stands for all causes with other names."""

_HELD = "start-up, idle time and lost work included; of jobs whose network and datatype are known"


def _work(name: str, unit: str, title: str, meaning: str, kind: Kind, better: Better = "higher") -> Metric:
    return Metric(name, unit, title, meaning, better, kind, "work")


WORK = (
    _work(
        "mfu", "share", "MFU",
        f"Model FLOPs ÷ what the held GPUs could have done at the dense peak of the job's datatype, {_HELD}.",
        Speed(AT_PEAK[MODEL_FLOP]),
    ),
    _work(
        "hfu", "share", "HFU",
        f"The same with the FLOPs of recomputed activations, {_HELD}; unknown where nobody says what is recomputed.",
        Speed(AT_PEAK[HARDWARE_FLOP]),
    ),
    _work(
        "model_flops", "FLOP", "Model FLOPs",
        "FLOPs that the network needs for what was made, kept or lost: as jobs report them, else tokens × FLOPs per token.",
        Made(MODEL_FLOP),
    ),
    _work(
        "tokens_per_gpu_s", "tokens/s", "Training speed of a GPU",
        "Tokens trained on, kept or lost, ÷ GPU-seconds held by the jobs that did.",
        Speed(TRAIN_TOKEN),
    ),
    _work(
        "cached_prompt_share", "share", "Prompt from a cache", "Prompt tokens that came from a cache ÷ all prompt tokens.",
        UnitShare(CACHED, PROMPT),
    ),
)  # fmt: skip


_QUANTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))


def _wait(name: str, title: str, meaning: str, kind: Quantile) -> Metric:
    return Metric(name, "s", title, meaning, "lower", kind, "queue")


QUEUE = (
    *(
        _wait(f"queue_wait_s_{p}", f"Queue wait {p}", f"{q:.0%} of the jobs that started waited no longer.", Quantile("wait_s", q))
        for p, q in _QUANTILES
    ),
    _wait("queue_wait_s_mean", "Mean queue wait", "Mean wait of jobs that started.", Quantile("wait_s", mean=True)),
    *(
        _wait(
            f"queue_wait_s_{p}_gpu_weighted",
            f"Queue wait {p} by GPU",
            f"{q:.0%} of the GPUs asked for by jobs that started waited no longer.",
            Quantile("wait_s", q, weight="gpus"),
        )
        for p, q in _QUANTILES
    ),
    _wait(
        "queue_wait_s_mean_gpu_weighted", "Mean queue wait by GPU", "Mean wait, each job counted once a GPU.",
        Quantile("wait_s", weight="gpus", mean=True),
    ),
    Metric(
        "queue_waiting", "jobs", "Cancelled or pending",
        "Jobs that were pending at the end of the window or cancelled in it: their waits are longer than known.",
        "lower", Count(), "queue",
    ),
)  # fmt: skip
