"""Recorded sessions of real machines: every one imports, and its numbers are those another project reads in them."""

import re

import pytest

CAPTURES = [
    "nvidia-geforce-rtx-2080-super__595.71.05",
    "nvidia-geforce-rtx-2080-super__610.57.04",
    "nvidia-geforce-rtx-4080-super__595.71.05",
    "nvidia-h100-80gb-hbm3__590.48.01",
]
SAME = {
    "busy_share": "nvidia_smi_utilization_gpu_ratio",
    "mem_used_bytes": "nvidia_smi_memory_used_bytes",
    "mem_total_bytes": "nvidia_smi_memory_total_bytes",
    "power_w": "nvidia_smi_power_draw_watts",
    "sm_clock_hz": "nvidia_smi_clocks_current_sm_clock_hz",
    "temperature_c": "nvidia_smi_temperature_gpu",
    "throttle_mask": "nvidia_smi_clocks_event_reasons_active",
}


@pytest.mark.parametrize("name", CAPTURES)
def test_captures_agree_with_the_exporter_that_published_them(shared, read_paths, name):
    """The idle and the load reading of a capture are the numbers the exporter's own tests expect of it."""
    metrics = shared / "data" / "metrics"
    seen = read_paths(metrics / "nvidia_smi_captures" / f"linux-x86_64__{name}.txt.gz")
    assert len(seen.samples) == 2
    assert len(seen.devices) == 1
    for sample, state in zip(seen.samples, ("idle", "load"), strict=True):
        text = (metrics / "nvidia_gpu_exporter" / f"linux-x86_64__{name}__{state}.metrics").read_text()
        for ours, theirs in SAME.items():
            (value,) = re.findall(rf"^{theirs}{{[^}}]*}} (\S+)$", text, re.MULTILINE)
            assert sample[ours] == pytest.approx(float(value), rel=1e-12), ours
    assert seen.gaps["skipped: a row of dmon without a time (record with -o DT)"] == 10


def test_masked_machines_stay_apart(shared, read_paths):
    """Captures whose UUIDs were blanked out are of different GPUs, not of one."""
    folder = shared / "data" / "metrics" / "nvidia_smi_captures"
    assert len(read_paths(*sorted(folder.glob("*.txt.gz"))).devices) == len(CAPTURES)


@pytest.mark.parametrize(
    ("file", "busy", "power_w", "mem_mib", "accelerator"),
    [
        ("a100-sxm4-v12.xml", None, 67.03, 50, "a100-sxm"),
        ("a10g.xml", 0.0, 25.58, 22, "a10g"),
        ("gtx-1070-ti.xml", 0.0, None, 42, "GeForce GTX 1070 Ti"),
        ("quadro-p400.xml", 0.0, None, 0, "Quadro P400"),
        ("rtx-3060-v12.xml", 0.0, 11.60, 116, "NVIDIA GeForce RTX 3060"),
        ("rtx-3080-v12.xml", 0.0, 22.78, 1128, "NVIDIA GeForce RTX 3080"),
        ("tesla-t4.xml", 0.0, 26.78, 1032, "t4"),
    ],
)
def test_xml_of_every_schema(shared, read_paths, file, busy, power_w, mem_mib, accelerator):
    """XML of schemas v10 to v12 gives one sample a GPU; what it does not know is null."""
    seen = read_paths(shared / "data" / "metrics" / "nvidia_smi_xml" / file, at_ms=1_700_000_000_000)
    (sample,), (device,) = seen.samples, seen.devices
    assert (sample["busy_share"], sample["power_w"]) == (busy, power_w)
    assert sample["mem_used_bytes"] == mem_mib * 2**20
    assert device["accelerator"] == accelerator
    assert device["from_utc"] == device["to_utc"] - 1000
