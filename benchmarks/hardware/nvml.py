"""What the agent reads of a GPU beside what nvidia-smi prints, idle and under loads whose work is known."""

import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.hardware.clocks import keep_busy, now_ms
from benchmarks.hardware.scale import Scale
from benchmarks.hardware.telemetry import Telemetry

SMI_FIELDS = {
    "DCGM_FI_DEV_GPU_UTIL": ("utilization.gpu", 5.0),
    "DCGM_FI_DEV_MEM_COPY_UTIL": ("utilization.memory", 5.0),
    "DCGM_FI_DEV_FB_USED": ("memory.used", 2.0),
    "DCGM_FI_DEV_FB_FREE": ("memory.free", 2.0),
    "DCGM_FI_DEV_FB_TOTAL": ("memory.total", 1.0),
    "DCGM_FI_DEV_FB_RESERVED": ("memory.reserved", 2.0),
    "DCGM_FI_DEV_POWER_USAGE": ("power.draw.average", 10.0),
    "DCGM_FI_DEV_GPU_TEMP": ("temperature.gpu", 2.0),
    "DCGM_FI_DEV_MEMORY_TEMP": ("temperature.memory", 2.0),
    "DCGM_FI_DEV_SM_CLOCK": ("clocks.sm", 30.0),
    "DCGM_FI_DEV_MEM_CLOCK": ("clocks.mem", 10.0),
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": ("clocks_event_reasons.active", 0.0),
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": ("ecc.errors.corrected.volatile.total", 0.0),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": ("ecc.errors.uncorrected.volatile.total", 0.0),
    "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL": ("ecc.errors.corrected.aggregate.total", 0.0),
    "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": ("ecc.errors.uncorrected.aggregate.total", 0.0),
}
"""The field of nvidia-smi that is the same, in the same unit, and by how much both may differ being read moments apart."""
OTHERS = ("power.draw", "power.draw.instant", "power.limit", "enforced.power.limit", "clocks.max.sm", "clocks.max.mem",
          "pcie.link.gen.current", "pcie.link.width.current", "name", "driver_version", "mig.mode.current")  # fmt: skip
GPM = "1,2,3,5,10,11,12,13,20,21"
"""Metrics of `nvidia-smi dmon --gpm-metrics`: graphics, SM, occupancy, tensor, DRAM, FP64, FP32, FP16, PCIe out and in."""


def run_smi(*arguments: str) -> str:
    """What nvidia-smi prints; raises OSError or subprocess.SubprocessError."""
    return subprocess.run(["nvidia-smi", *arguments], capture_output=True, text=True, timeout=60, check=True).stdout


class Smi:
    """nvidia-smi of one GPU; without it, or without a field, there is nothing."""

    def __init__(self, gpu: int = 0) -> None:
        self._gpu = str(gpu)
        self.is_there = shutil.which("nvidia-smi") is not None
        names = [name for name, _ in SMI_FIELDS.values()] + list(OTHERS)
        self.fields = (
            [name for name in names if self._query([name])] if self.is_there and not self._query(names) else names
        )

    def _query(self, names: list[str]) -> list[str]:
        try:
            line = run_smi("-i", self._gpu, f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits")
        except (OSError, subprocess.SubprocessError):
            return []
        return [cell.strip() for cell in line.strip().splitlines()[0].split(", ")]

    def read(self) -> dict[str, str]:
        """Every field, as it is printed."""
        return dict(zip(self.fields, self._query(self.fields), strict=False)) if self.is_there else {}

    def read_profile(self) -> str:
        """Three lines of dmon with GPM's metrics, a second apart."""
        try:
            return run_smi("dmon", "-i", self._gpu, "-c", "3", "-d", "1", "-s", "pucm", "--gpm-metrics", GPM)
        except (OSError, subprocess.SubprocessError) as error:
            return f"nvidia-smi dmon: {error}"


def parse_number(text: str) -> float | None:
    """A number as nvidia-smi prints it, a mask too; None where it has none.

    >>> parse_number("81559"), parse_number("0x0000000000000004"), parse_number("[N/A]")
    (81559.0, 4.0, None)
    """
    try:
        return float(int(text, 16)) if text.startswith("0x") else float(text)
    except ValueError:
        return None


def compare_readings(looks: list[dict[str, float]], smi: dict[str, str]) -> list[dict[str, Any]]:
    """A row for each metric of the agent: what it read before and after nvidia-smi, what that printed, and whether both agree."""
    rows = []
    for metric in sorted({name for look in looks for name in look}):
        seen = [look[metric] for look in looks if metric in look]
        row: dict[str, Any] = {"metric": metric, "least": min(seen), "most": max(seen), "looks": len(seen)}
        if metric in SMI_FIELDS:
            field, apart = SMI_FIELDS[metric]
            value = parse_number(smi.get(field, ""))
            row |= {"smi_field": field, "smi": value, "smi_text": smi.get(field)}
            row["agrees"] = None if value is None else min(seen) - apart <= value <= max(seen) + apart
        rows.append(row)
    lacking = [name for name in SMI_FIELDS if name not in {row["metric"] for row in rows}]
    return rows + [
        {"metric": name, "smi_field": SMI_FIELDS[name][0], "smi_text": smi.get(SMI_FIELDS[name][0])} for name in lacking
    ]


def watch_readings(device: torch.device, scale: Scale, telemetry: Telemetry | None, folder: Path) -> dict[str, Any]:
    """The GPU idle, then under each load: readings of both, and what was done meanwhile."""
    smi = Smi()
    found: dict[str, Any] = {"smi_is_there": smi.is_there, "telemetry_is_there": telemetry is not None, "loads": []}
    if smi.is_there:
        (folder / "nvidia-smi-idle.xml").write_text(_read_xml())
    for name, call, amounts in _loads(device, scale):
        printed: dict[str, str] = {}
        profile: list[str] = []

        def look(printed: dict[str, str] = printed, profile: list[str] = profile, name: str = name) -> None:
            time.sleep(scale.load_s * 0.4)
            printed |= smi.read()
            if name == "bf16 products":
                (folder / "nvidia-smi-load.xml").write_text(_read_xml())
                profile.append(smi.read_profile())

        beside = threading.Thread(target=look)
        if smi.is_there:
            beside.start()
        seconds = scale.load_s + (4.0 if smi.is_there and name == "bf16 products" else 0.0)
        if call is None:
            from_ms = now_ms()
            time.sleep(seconds)
            done: dict[str, Any] = {"calls": 0, "seconds": seconds, "at_ms": [from_ms, now_ms()]}
        else:
            done = keep_busy(device, call, seconds)
        if smi.is_there:
            beside.join()
        done |= {key: amount * done["calls"] / done["seconds"] for key, amount in amounts.items()}
        looks = telemetry.values(done["at_ms"]) if telemetry else []
        row = {"load": name, **done, "smi": printed, "readings": compare_readings(looks, printed)}
        row["mean"] = {row["metric"]: mean_of(looks, row["metric"]) for row in row["readings"]}
        if energy := measure_energy(looks, telemetry, done["at_ms"]):
            row["energy"] = energy
        if profile:
            row["dmon"] = profile[0]
        found["loads"].append(row)
    return found


def mean_of(looks: list[dict[str, float]], metric: str) -> float | None:
    """The mean of one metric over looks."""
    seen = [look[metric] for look in looks if metric in look]
    return sum(seen) / len(seen) if seen else None


def measure_energy(
    looks: list[dict[str, float]], telemetry: Telemetry | None, at_ms: list[int]
) -> dict[str, float] | None:
    """Joules by the energy counter between the first and the last look, beside mean power × seconds."""
    if telemetry is None or len(looks) < 3:
        return None
    times = [one["at_ms"] for one in telemetry.read() if at_ms[0] <= one["at_ms"] <= at_ms[1]][-len(looks) :]
    counted = [look.get("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION") for look in looks]
    power = mean_of(looks[1:], "DCGM_FI_DEV_POWER_USAGE")
    if counted[0] is None or counted[-1] is None or power is None:
        return None
    seconds = (times[-1] - times[0]) / 1000
    return {
        "counter_j": (counted[-1] - counted[0]) / 1000,
        "power_times_seconds_j": power * seconds,
        "seconds": seconds,
    }


Load = tuple[str, Callable[[], object] | None, dict[str, float]]


def _loads(device: torch.device, scale: Scale) -> list[Load]:
    n = scale.products[-2][0]
    bf16 = torch.randn(2, n, n, device=device, dtype=torch.bfloat16)
    fp32 = torch.randn(2, n, n, device=device)
    count = scale.copy_bytes // 2
    big = torch.randn(2, count, device=device, dtype=torch.bfloat16)
    here = torch.ones(scale.host_bytes, dtype=torch.uint8, pin_memory=device.type == "cuda")
    there = torch.empty(scale.host_bytes, dtype=torch.uint8, device=device)
    small = torch.zeros(32, device=device)
    flops = {"flops_per_s": 2.0 * n**3}

    def one_multiprocessor() -> None:
        for _ in range(200):
            small.add_(1.0)

    return [
        ("nothing", None, {}),
        ("bf16 products", lambda: bf16[0] @ bf16[1], flops),
        ("fp32 products", lambda: fp32[0] @ fp32[1], flops),
        ("copies in memory", lambda: big[0].copy_(big[1]), {"bytes_per_s": 4.0 * count}),
        ("copies from host", lambda: there.copy_(here, non_blocking=True), {"bytes_per_s": float(scale.host_bytes)}),
        ("copies to host", lambda: here.copy_(there, non_blocking=True), {"bytes_per_s": float(scale.host_bytes)}),
        ("tiny kernels", one_multiprocessor, {"kernels_per_s": 200.0}),
    ]


def _read_xml() -> str:
    try:
        return run_smi("-q", "-x")
    except (OSError, subprocess.SubprocessError) as error:
        return f"<!-- {error} -->"
