"""Signals beside the work that was done, and rates beside constants of the catalog."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from loadfactor.base.units import BYTES_PER_GB, FLOPS_PER_TFLOPS, US_PER_S
from loadfactor.catalog.accelerators import Accelerator
from loadfactor.catalog.constants import read_training_constants
from loadfactor.catalog.engines import read_engine_constants
from loadfactor.planner.hardware.kernels import KernelSpeed, matmul_s
from loadfactor.planner.training.machine import build_machine
from loadfactor.planner.training.software import find_software

Row = dict[str, Any]
LOADED = "bf16 products"


def compare_signals(loads: Sequence[Mapping[str, Any]], chip: Accelerator) -> list[Row]:
    """What a signal says beside the share of the peak that the work done meanwhile took."""
    found = []
    for load in loads:
        mean = load["mean"]
        for signal, amount, peak in (
            ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", load.get("flops_per_s"), chip.get("peak_bf16_flops")),
            ("DCGM_FI_PROF_PIPE_FP32_ACTIVE", load.get("flops_per_s"), chip.get("peak_fp32_flops")),
            ("DCGM_FI_PROF_DRAM_ACTIVE", load.get("bytes_per_s"), chip.memory_bandwidth_bytes_per_s),
            ("DCGM_FI_PROF_PCIE_RX_BYTES", load.get("bytes_per_s"), None),
            ("DCGM_FI_PROF_PCIE_TX_BYTES", load.get("bytes_per_s"), None),
        ):
            if (load["load"], signal) not in KNOWN or mean.get(signal) is None or amount is None:
                continue
            unit, name = (BYTES_PER_GB, "GB/s") if "bytes_per_s" in load else (FLOPS_PER_TFLOPS, "TFLOP/s")
            row = {"load": load["load"], "signal": signal, "work": f"{amount / unit:,.4g} {name}"}
            if peak is None:
                row |= {"expected": amount / unit, "measured": mean[signal] / unit}
            else:
                row |= {
                    "expected": amount / peak,
                    "measured": mean[signal],
                    "clock_mhz": mean.get("DCGM_FI_DEV_SM_CLOCK"),
                }
            found.append(row)
        if energy := load.get("energy"):
            found.append(
                {
                    "load": load["load"],
                    "signal": "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
                    "work": f"mean power for {energy['seconds']:.1f} s",
                    "expected": energy["power_times_seconds_j"],
                    "measured": energy["counter_j"],
                }
            )
    return found


KNOWN = {
    (LOADED, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"),
    ("fp32 products", "DCGM_FI_PROF_PIPE_FP32_ACTIVE"),
    ("copies in memory", "DCGM_FI_PROF_DRAM_ACTIVE"),
    ("copies from host", "DCGM_FI_PROF_PCIE_RX_BYTES"),
    ("copies to host", "DCGM_FI_PROF_PCIE_TX_BYTES"),
}
"""Signals that a load is made for."""


def compare_rates(rates: Sequence[Mapping[str, Any]], chip: Accelerator) -> list[Row]:
    """Each rate beside what the equations of training or serving make of the same work."""
    found: list[Row] = []
    for rate in rates:
        if "error" in rate:
            found.append({"what": describe(rate), "constant": rate["error"]})
            continue
        row: Row = {"what": describe(rate), "seconds": rate["seconds"]}
        if "flops_per_s" in rate and rate["what"] != "thin_products":
            peak = chip.get(f"peak_{rate.get('datatype', 'bf16')}_flops")
            row |= {"measured": f"{rate['flops_per_s'] / FLOPS_PER_TFLOPS:,.4g} TFLOP/s"}
            row |= {"of_peak": rate["flops_per_s"] / peak if peak else None}
        elif "bytes_per_s" in rate:
            host = rate["what"] == "host_copies"
            peak = chip.get("pcie_bytes_per_s") if host else chip.memory_bandwidth_bytes_per_s
            row |= {"measured": f"{rate['bytes_per_s'] / BYTES_PER_GB:,.4g} GB/s"}
            row |= {"of_peak": rate["bytes_per_s"] / peak if peak else None}
        else:
            row |= {"measured": f"{US_PER_S / rate['kernels_per_s']:.3g} µs a kernel"}
        predictions = list(_predict(rate, chip)) or [(None, None)]
        for constant, predicted_s in predictions:
            error = predicted_s / rate["seconds"] - 1 if predicted_s else None
            text = None if predicted_s is None else f"{1e3 * predicted_s:.4g} ms against {1e3 * rate['seconds']:.4g}"
            found.append({**row, "constant": constant, "predicted": text, "predicted_s": predicted_s, "error": error})
    return found


def describe(rate: Mapping[str, Any]) -> str:
    """A rate in words."""
    kind = rate["what"]
    if kind in ("products", "thin_products"):
        return f"{rate['datatype']} product {rate['m']} × {rate['n']} × {rate['k']}"
    if kind == "attention":
        sizes = f"{rate['batch']} × {rate['heads']} × {rate['seq']} × {rate['head_dim']}"
        return f"attention {sizes}, {rate['kernel']}, {rate['passes']}"
    if kind == "memory":
        return f"memory: {rate['operation']}"
    if kind == "host_copies":
        return f"copy to {rate['to']}, {rate['host_memory']}"
    return f"launches: {rate['way']}"


def _predict(rate: Mapping[str, Any], chip: Accelerator) -> Iterator[tuple[str, float | None]]:
    """Constants, and the seconds that they give."""
    kind, training = rate["what"], read_training_constants()
    engine = read_engine_constants(chip, "vllm")
    if kind == "products" and rate["datatype"] in ("bf16", "fp16", "fp8"):
        machine = build_machine(chip, rate["datatype"], software=find_software("nemo"))
        size = float(rate["m"]), float(rate["n"]), float(rate["k"])
        width = 1 if rate["datatype"] == "fp8" else 2
        yield (
            "training.toml matmul_share_capped",
            float(matmul_s(*size, machine.matmul, weight_bytes=width, value_bytes=width)),
        )
        yield (
            "engines matmul_share",
            float(matmul_s(*size, _engine_speed(chip, rate["datatype"]), weight_bytes=width, value_bytes=width)),
        )
    elif kind == "thin_products":
        size = float(rate["m"]), float(rate["n"]), float(rate["k"])
        yield "engines memory_share", float(matmul_s(*size, _engine_speed(chip, "bf16"), rate["times"]))
    elif kind == "attention":
        yield from _predict_attention(rate, chip)
    elif kind == "memory":
        size = rate["bytes_per_s"] * rate["seconds"] / chip.memory_bandwidth_bytes_per_s
        yield "training.toml memory_share", size / training.memory_share
        yield "engines memory_share", size / engine.memory_share
    elif kind == "host_copies" and rate["host_memory"] == "pinned":
        pcie = chip.get("pcie_bytes_per_s")
        yield "accelerator pcie_bytes_per_s", rate["bytes"] / pcie if pcie else None
    elif kind == "launches":
        graph = rate["way"] == "one graph"
        yield ("engines kernel_s", rate["kernels"] * engine.kernel_s) if graph else (
            "training.toml launch_s", rate["kernels"] * training.launch_s)  # fmt: skip


def _engine_speed(chip: Accelerator, datatype: str) -> KernelSpeed:
    engine = read_engine_constants(chip, "vllm")
    share = engine.matmul_share * (engine.fp8_matmul_factor if datatype == "fp8" else 1.0)
    peak, memory = chip.peak_flops(datatype), chip.memory_bandwidth_bytes_per_s
    return KernelSpeed(peak, memory, share, engine.matmul_half_dim, engine.memory_share, engine.kernel_s)


def _predict_attention(rate: Mapping[str, Any], chip: Accelerator) -> Iterator[tuple[str, float | None]]:
    """Seconds by the generation of the kernel; what heads of 64 lose is in `flash3_exponentials_share`."""
    c = read_training_constants()
    software = find_software("nemo").having({"attention": "second" if rate["kernel"] == "flash" else "native"})
    forward, backward = build_machine(chip, software=software).attention_flops
    seq, heads = rate["seq"], rate["batch"] * rate["heads"]
    flops = 2.0 * heads * seq * (seq + 1) * rate["head_dim"]
    slow = 1 + c.attention_half_seq / seq
    narrow = 1.0
    if software.attention == "native" and rate["head_dim"] < 128:
        narrow = 1 + c.flash3_exponentials_share * (128 / rate["head_dim"] - 1)
    seconds = flops / forward * slow * narrow
    if rate["passes"] != "forward":
        seconds += 2.5 * flops / backward * slow * narrow
    yield f"training.toml {'flash2_share' if software.attention == 'second' else 'flash3_share'}", seconds
