"""The classes of causes: every alert and every finding carries one, the first to ask about where a condition fits several."""

from typing import Final, Literal

Cause = Literal[
    "I/O",
    "model and batch",
    "precision and kernels",
    "communication",
    "scheduling",
    "hardware",
    "user error",
]
CAUSES: Final[dict[Cause, str]] = {
    "I/O": "the GPU waits for data or for files",
    "model and batch": "the work given to the GPU is too small, or does not fit its memory",
    "precision and kernels": "the GPU works, in a slow way, or waits for launches",
    "communication": "GPUs wait for each other or for a link",
    "scheduling": "GPUs are held, kept free or queued for without use",
    "hardware": "a GPU, a node or what measures it does less than it should, or nothing",
    "user error": "what people asked for, entered or planned does not fit what happens",
}

_OF_SIGNALS: Final[dict[str, Cause]] = {
    "pcie_saturation": "I/O",
    "nvlink_saturation": "communication",
    "gpu_util": "I/O",
    "engine_activity": "I/O",
    "sm_activity": "model and batch",
    "sm_occupancy": "model and batch",
    "mem_utilization": "model and batch",
    "mem_utilization_peak": "model and batch",
    "tensor_activity": "precision and kernels",
    "fp32_activity": "precision and kernels",
    "dram_activity": "precision and kernels",
}
_OF_TOPICS: Final[dict[str, Cause]] = {
    "fullness": "scheduling",
    "queue": "scheduling",
    "money": "user error",
    "work": "model and batch",
    "signals": "hardware",
    "energy": "hardware",
}
_OF_FULLNESS: Final[dict[str, Cause]] = {
    "utilization": "I/O",
    "load_factor": "I/O",
    "underused_gpu_hours": "I/O",
    "unobserved_gpu_hours": "hardware",
    "unobserved_share": "hardware",
    "measured_share": "hardware",
    "down_gpu_hours": "hardware",
    "down_share": "hardware",
    "unheld_work_share": "user error",
}


def class_of_metric(name: str, topic: str) -> Cause:
    """The likeliest class where a metric is not as it should be and nobody set one.

    Of low activity it is I/O, as nearly half of 706 cases were (ICSE'24, "An Empirical Study on Low GPU Utilization").

    >>> class_of_metric("temperature_c", "signals"), class_of_metric("idle_cost", "money")
    ('hardware', 'user error')
    """
    return _OF_SIGNALS.get(name) or _OF_FULLNESS.get(name) or _OF_TOPICS[topic]
