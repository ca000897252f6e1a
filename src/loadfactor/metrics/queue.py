"""Metrics of the queue: how long jobs waited, and how many wait still; who still waits is counted, not dropped."""

from loadfactor.metrics.metric import Count, Metric, Quantile

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
