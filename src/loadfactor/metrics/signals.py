"""Metrics of signals: what held GPUs did. Each signal under its own name, over the time in which it was measured."""

from loadfactor.ledger.columns import HELD
from loadfactor.metrics.metric import Better, Coverage, Metric, Part, Quantile, Ratio, Sum


def _measured(column: str, states: tuple[str, ...] = HELD) -> Coverage:
    return Coverage(known=Part((column,), states), needed=Part(("gpu_s",), states))


def _mean(weighted: str, measured: str) -> Ratio:
    """A time-weighted mean over the held seconds in which the signal was measured."""
    coverage = _measured(measured)
    return Ratio(Sum(Part((weighted,), HELD), coverage=coverage), Sum(Part((measured,), HELD), coverage=coverage))


def _of_peak(link: str) -> Ratio:
    """Traffic of a link over what its peak allows, over the held seconds in which both are known."""
    coverage = _measured(f"{link}_peak_measured_s")
    return Ratio(
        Sum(Part((f"{link}_of_peak_bytes",), HELD), coverage=coverage),
        Sum(Part((f"{link}_peak_bytes",), HELD), coverage=coverage),
    )


def _share(name: str, title: str, meaning: str, better: Better, kind: Ratio | Quantile) -> Metric:
    return Metric(name, "share", title, meaning, better, kind, "signals")


_POWER_OF_THROTTLED = Coverage(Part(("throttled_energy_measured_s",), HELD), Part(("throttled_s",), HELD))

SIGNALS = (
    _share(
        "gpu_util", "GPU_UTIL", "Time with any kernel resident: optimistic, 100 % on a nearly empty chip.", "higher",
        _mean("busy_s", "busy_measured_s"),
    ),
    _share(
        "engine_activity", "Engine active", "Time with the compute or graphics engine active: optimistic too.", "higher",
        _mean("engine_active_s", "engine_active_measured_s"),
    ),
    _share(
        "sm_activity", "SM active", "Cycles in which a multiprocessor had work, mean over multiprocessors.", "higher",
        _mean("sm_active_s", "sm_active_measured_s"),
    ),
    _share(
        "tensor_activity", "Tensor active", "Cycles in which a tensor pipe was active.", "higher",
        _mean("tensor_active_s", "tensor_active_measured_s"),
    ),
    _share(
        "dram_activity", "DRAM active", "Cycles in which the memory interface moved data; 0.8 is a practical peak.", "neither",
        _mean("dram_active_s", "dram_active_measured_s"),
    ),
    _share(
        "fp32_activity", "FP32 active", "Cycles in which an FP32 pipe was active.", "neither",
        _mean("fp32_active_s", "fp32_active_measured_s"),
    ),
    _share(
        "sm_occupancy", "SM occupancy", "Warps on a multiprocessor ÷ the most it holds, mean over multiprocessors.", "neither",
        _mean("sm_occupancy_s", "sm_occupancy_measured_s"),
    ),
    _share(
        "pcie_saturation", "PCIe saturation", "Traffic of the busier direction ÷ the PCIe peak of the accelerator.", "neither",
        _of_peak("pcie"),
    ),
    _share(
        "nvlink_saturation", "NVLink saturation", "Traffic ÷ the NVLink peak of the accelerator, both directions.", "neither",
        _of_peak("nvlink"),
    ),
    _share(
        "mem_utilization", "Memory in use", "Device memory in use ÷ what there is, over time; says nothing of speed.", "neither",
        Ratio(
            Sum(Part(("mem_used_byte_s",), HELD), coverage=_measured("mem_measured_s")),
            Sum(Part(("mem_total_byte_s",), HELD), coverage=_measured("mem_measured_s")),
        ),
    ),
    _share(
        "mem_utilization_peak", "Peak memory in use", "Highest share of device memory seen in a sample while held.", "neither",
        Quantile("mem_peak_share", 1.0),
    ),
    _share(
        "throttled_share", "Throttled", "Held time with a clock event reason that slows the GPU down.", "lower",
        _mean("throttled_s", "throttle_measured_s"),
    ),
    Metric(
        "throttled_power_w", "W", "Power while throttled",
        "Mean power of a held GPU in the time in which a clock event reason slowed it down.", "neither",
        Ratio(
            Sum(Part(("throttled_energy_j",), HELD), coverage=_POWER_OF_THROTTLED),
            Sum(Part(("throttled_energy_measured_s",), HELD), coverage=_POWER_OF_THROTTLED),
        ),
        "signals",
    ),
    Metric(
        "power_w", "W", "Power", "Mean power of a held GPU, where it was measured.", "neither",
        _mean("energy_j", "energy_measured_s"), "signals",
    ),
    Metric(
        "temperature_c", "°C", "Temperature", "Mean temperature of held GPUs, where it was measured.", "lower",
        _mean("temperature_c_s", "temperature_c_measured_s"), "signals",
    ),
    Metric(
        "temperature_c_max", "°C", "Highest temperature", "Highest temperature seen in a sample, held or not.", "lower",
        Quantile("temperature_peak_c", 1.0), "signals",
    ),
)  # fmt: skip
