"""Tools of other vendors: each device has a place with the signal it has. Shapes retyped from public samples, figures our own.

They are of AMD SMI 26.2, Telegraf's samples, Intel's documentation of hl-smi and AWS' of neuron-monitor (with times of jq).
"""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from zoneinfo import ZoneInfo

import pytest
from tests.sources.reading import Seen, see

from loadfactor.base.errors import SourceError
from loadfactor.sources import find_source

AT_MS = int(datetime(2026, 9, 1, 10, tzinfo=UTC).timestamp() * 1000)
AT_S = AT_MS // 1000
MIB = 2**20

AMD_CSV = f"""timestamp,gpu,gfx_activity,umc_activity,mm_activity,vcn_activity,socket_power,gfx_0_clk,mem_0_clk,edge,hotspot,mem
{AT_S},0,95,80,N/A,"['N/A', 'N/A']",1180,2100,2000,N/A,78,60
{AT_S},1,0,0,N/A,"['N/A', 'N/A']",N/A,132,900,N/A,41,30
{AT_S + 30},0,97,81,N/A,"['N/A', 'N/A']",1190,2100,2000,N/A,79,60
{AT_S + 30},1,0,0,N/A,"['N/A', 'N/A']",240,132,900,N/A,41,30
"""
AMD_JSON = {
    "gpu_data": [
        {
            "gpu": 0,
            "usage": {"gfx_activity": {"value": 95, "unit": "%"}, "vcn_activity": ["N/A"]},
            "power": {"socket_power": {"value": 1180, "unit": "W"}, "throttle_status": "N/A"},
            "clock": {"gfx_0": {"clk": {"value": 2100, "unit": "MHz"}, "min_clk": {"value": 132, "unit": "MHz"}}},
            "temperature": {"edge": "N/A", "hotspot": {"value": 78, "unit": "C"}},
            "mem_usage": {"total_vram": {"value": 294896, "unit": "MB"}, "used_vram": {"value": 283, "unit": "MB"}},
        }
    ]
}
ROCM_JSON = {
    "card0": {
        "Unique ID": "0x1964aa9a01fc11bd",
        "GPU use (%)": "37",
        "VRAM Total Memory (B)": "206141652992",
        "VRAM Total Used Memory (B)": "8589934592",
        "Average Graphics Package Power (W)": "212.0",
        "Temperature (Sensor edge) (C)": "41.0",
        "Temperature (Sensor junction) (C)": "55.0",
        "sclk clock speed:": "(2100Mhz)",
        "Card Series": "Aqua Vanjaram [Instinct MI300X]",
    },
    "card1": {"Unique ID": "N/A", "GPU use (%)": "0", "Average Graphics Package Power (W)": "N/A (Secondary die)"},
    "system": {"Driver version": "6.8.5"},
}
ROCM_CSV = """device,GPU use (%)
card0,42
card1,17

device,VRAM Total Memory (B),VRAM Total Used Memory (B)
card0,206141652992,1048576
card1,206141652992,2097152
"""
XPU_CSV = """Timestamp, DeviceId, GPU Utilization (%), GPU Power (W), GPU EU Array Active (%), GPU Memory Used (MiB)
23:59:45.500,    0, 88.20, 264.06, 51.00, 8160.00
23:59:45.500,    1,  N/A, 263.47,  N/A, 79.95
00:00:15.500,    0, 90.00, 265.00, 52.00, 8160.00
00:00:15.500,    1, 1.00, 263.00, 0.00, 79.95
"""
HL_CSV = """timestamp, index, name, uuid, utilization.aip [%], memory.used [MiB], memory.total [MiB], power.draw [W]
Tue Sep  1 10:00:00 UTC 2026, 0, HL-225, 01P0-HL2080A0-15-TNPS34-20-07-07, 78 %, 30720 MiB, 98304 MiB, 410 W
Tue Sep  1 10:00:00 UTC 2026, 1, HL-225, 01P0-HL2080A0-15-TNPS34-20-07-08, 0 %, 768 MiB, 98304 MiB, 96 W
"""
NPU_TEXT = """NpuID(Idx)  ChipId(Idx) Pwr(W)      Temp(C)     AI Core(%)  AI Cpu(%)   Ctrl Cpu(%) Memory(%)   Memory BW(%)
0           0           161.7       43          17          0           5           95          14
0           1           153.8       41          36          0           1           94          15
0           0           160.0       43          18          0           5           95          14
0           1           150.0       41          37          0           1           94          15
"""


def neuron_report(used: dict[str, float], **more: object) -> dict[str, object]:
    memory = {core: {"constants": 196608, "model_code": 1000, "tensors": 0} for core in used}
    return {
        "neuron_runtime_data": [
            {
                "pid": 2199,
                "report": {
                    "neuroncore_counters": {
                        "period": 1.0,
                        "neuroncores_in_use": {core: {"neuroncore_utilization": share} for core, share in used.items()},
                        "error": "",
                    },
                    "memory_used": {
                        "period": 1.0,
                        "neuron_runtime_used_bytes": {"usage_breakdown": {"neuroncore_memory_usage": memory}},
                    },
                },
            }
        ],
        "instance_info": {"instance_id": "i-0dd3", "instance_type": "trn1.32xlarge"},
        "neuron_hardware_info": {"neuron_device_count": 2, "neuroncore_per_device_count": 2, **more},
    }


Read = Callable[..., Seen]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def from_text(source: str, text: str | bytes, name: str = "node-7.log", **options: object) -> Seen:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return see(find_source(source), path, **{"timezone": ZoneInfo("UTC"), **options})

    return from_text


def test_amd_smi_as_csv(read: Read) -> None:
    """Watched by `--watch --csv`: times are seconds since 1970; what a GPU does not say is a gap, and no zero."""
    seen = read("amd-smi", AMD_CSV)
    assert seen.measured(0) == {"busy_share": 0.95, "power_w": 1180, "sm_clock_hz": 2.1e9, "temperature_c": 78}
    assert [row["to_utc"] for row in seen.samples] == [AT_MS, AT_MS, AT_MS + 30_000, AT_MS + 30_000]
    assert seen.column("power_w") == [1180, None, 1190, 240]
    assert [row["device_id"] for row in seen.devices] == ["node-7/0", "node-7/1"]


def test_amd_smi_as_json(read: Read) -> None:
    """One document or several; megabytes are counted as MiB, as AMD's exporter does."""
    seen = read("amd-smi", 2 * json.dumps(AMD_JSON, indent=4), at_ms=AT_MS, step_s=30)
    assert seen.measured(1) == {
        "busy_share": 0.95,
        "power_w": 1180,
        "sm_clock_hz": 2.1e9,
        "temperature_c": 78,
        "mem_used_bytes": 283 * MIB,
        "mem_total_bytes": 294896 * MIB,
    }
    assert seen.column("to_utc") == [AT_MS, AT_MS + 30_000]


def test_amd_smi_monitor_of_a_partitioned_gpu(read: Read) -> None:
    """Rows of partitions repeat their GPU, and are counted once."""
    text = f"timestamp,gpu,xcp,power_usage,gfx,vram_used\n{AT_S},0,0,700,90,1024\n{AT_S},0,1,N/A,N/A,N/A\n"
    seen = read("amd-smi", text)
    assert seen.column("power_w") == [700]
    assert any("partition" in gap for gap in seen.gaps)


def test_rocm_smi(read: Read) -> None:
    """JSON of one call, and CSV whose blocks are one reading; the product stands in brackets."""
    seen = read("rocm-smi", json.dumps(ROCM_JSON), at_ms=AT_MS)
    assert seen.measured(0) == {
        "busy_share": 0.37,
        "power_w": 212,
        "sm_clock_hz": 2.1e9,
        "temperature_c": 55,
        "mem_used_bytes": 2**33,
        "mem_total_bytes": 206141652992,
    }
    assert seen.measured(1) == {"busy_share": 0}
    assert [(d["device_id"], d["accelerator"]) for d in seen.devices] == [
        ("0x1964aa9a01fc11bd", "mi300x"),
        ("node-7/1", None),
    ]
    seen = read("rocm-smi", 2 * ROCM_CSV, at_ms=AT_MS, step_s=30)
    assert seen.column("to_utc") == [AT_MS, AT_MS, AT_MS + 30_000, AT_MS + 30_000]
    assert [seen.measured(row)["mem_used_bytes"] for row in (0, 1)] == [MIB, 2 * MIB]
    assert seen.column("busy_share") == [0.42, 0.17, 0.42, 0.17]


def test_rocm_smi_of_real_machines(shared: Path) -> None:
    """Telegraf's samples: six MI100 of ROCm 5.7, and Vegas with older names; each card has one sample."""
    folder = shared / "data" / "metrics" / "amd_rocm_smi"
    cards = [see(find_source("rocm-smi"), path, at_ms=AT_MS) for path in sorted(folder.glob("*.json"))]
    assert [len(seen.samples) for seen in cards] == [6, 1, 1]
    assert cards[0].measured(0) == {
        "busy_share": 0,
        "power_w": 39,
        "sm_clock_hz": 3e8,
        "temperature_c": 34,
        "mem_used_bytes": 6782976,
        "mem_total_bytes": 34342961152,
    }


def test_xpu_smi_past_midnight(read: Read) -> None:
    """Times of day begin on the day of --at, in --timezone, and go on past midnight."""
    began_ms = int(datetime(2026, 9, 1, 23, 59, tzinfo=ZoneInfo("Europe/Berlin")).timestamp() * 1000)
    seen = read("xpu-smi", XPU_CSV, at_ms=began_ms, timezone=ZoneInfo("Europe/Berlin"))
    assert seen.column("to_utc") == [began_ms + 45_500] * 2 + [began_ms + 75_500] * 2
    assert seen.measured(0) == {
        "busy_share": 0.882,
        "power_w": 264.06,
        "sm_active_share": 0.51,
        "mem_used_bytes": 8160 * MIB,
    }
    assert seen.column("busy_share") == [0.882, None, 0.9, 0.01]
    dated = XPU_CSV.replace("23:59:45.500", "2026-09-01T21:59:45.500Z").replace(
        "00:00:15.500", "2026-09-01T22:00:15.500Z"
    )
    assert read("xpu-smi", dated, timezone=None).column("to_utc") == seen.column("to_utc")


def test_hl_smi(read: Read) -> None:
    """Gaudi 2 by its part number; the time as `date` prints it."""
    seen = read("hl-smi", HL_CSV)
    assert seen.measured(0) == {
        "busy_share": 0.78,
        "power_w": 410,
        "mem_used_bytes": 30720 * MIB,
        "mem_total_bytes": 98304 * MIB,
    }
    assert seen.column("to_utc") == [AT_MS, AT_MS]
    assert {d["accelerator"] for d in seen.devices} == {"gaudi2"}


def test_neuron_monitor(read: Read) -> None:
    """A chip is as busy as its cores on average; a core without a runtime is idle, one that was not read unknown."""
    lines = [
        neuron_report({"0": 90.0, "1": 50.0, "3": 10.0}, neuron_device_memory_size=2**35),
        neuron_report({}),
        neuron_report({"0": 20.0}, logical_neuroncore_config=2),
    ]
    seen = read("neuron-monitor", "\n".join(map(json.dumps, lines)) + "\n", at_ms=AT_MS, step_s=5)
    assert seen.column("busy_share") == [0.7, 0.05, 0, 0, None, None]
    assert seen.measured(0)["mem_used_bytes"] == 2 * 197608
    assert seen.measured(1)["mem_total_bytes"] == 2**35
    assert seen.column("to_utc") == [AT_MS] * 2 + [AT_MS + 5000] * 2 + [AT_MS + 10_000] * 2
    assert [(d["device_id"], d["accelerator"]) for d in seen.devices] == [
        ("i-0dd3/0", "trainium"),
        ("i-0dd3/1", "trainium"),
    ]
    timed = json.dumps({**lines[0], "timestamp": AT_S + 0.25}) + "\n"
    assert read("neuron-monitor", timed).column("to_utc") == [AT_MS + 250] * 2


def test_npu_smi(read: Read) -> None:
    """Rows without times follow each other by --step; a second chip of an NPU is a device of its own."""
    seen = read("npu-smi", NPU_TEXT, at_ms=AT_MS, step_s=10)
    assert seen.measured(1) == {"busy_share": 0.36, "power_w": 153.8, "temperature_c": 41, "dram_active_share": 0.15}
    assert seen.column("to_utc") == [AT_MS, AT_MS, AT_MS + 10_000, AT_MS + 10_000]
    assert [d["device_id"] for d in seen.devices] == ["node-7/0", "node-7/0.1"]


ALL = {
    "amd-smi": AMD_CSV,
    "rocm-smi": ROCM_CSV,
    "xpu-smi": XPU_CSV,
    "hl-smi": HL_CSV,
    "npu-smi": NPU_TEXT,
    "neuron-monitor": json.dumps(neuron_report({"0": 90.0})) + "\n",
}


@pytest.mark.parametrize("source", ALL)
def test_nothing_is_guessed(read: Read, source: str) -> None:
    """BOM and CRLF change nothing; another log is refused with what to record; a cut one loses lines, no value changes."""
    known = {"at_ms": AT_MS, "step_s": 30.0}
    plain = read(source, ALL[source], **known).samples
    assert plain
    assert read(source, b"\xef\xbb\xbf" + ALL[source].replace("\n", "\r\n").encode(), **known).samples == plain
    with pytest.raises(SourceError, match="record with"):
        read(source, "<b>&\x1b[31m${jndi:x}</b>\nname,value\n1,2\n", **known)
    for cut in range(len(ALL[source]) - 1, len(ALL[source]) - 60, -7):
        try:
            rows = read(source, ALL[source][:cut], **known).samples
        except SourceError:
            continue
        for row, whole in zip(rows, plain, strict=False):
            assert all(value is None or whole.get(name) == value for name, value in row.items())


def test_values_of_other_kinds_are_counted(read: Read) -> None:
    """A time of no year, a report whose cores say something else: gaps, and no traceback."""
    seen = read("amd-smi", AMD_CSV.replace(f"{AT_S},0", "99999999999999999999,0"))
    assert len(seen.samples) == 3
    assert seen.gaps["row without a readable time"] == 1
    text = json.dumps(neuron_report({"0": 90.0})) + "\n"
    seen = read("neuron-monitor", text + text.replace("neuroncore_utilization", "other"), at_ms=AT_MS)
    assert len(seen.samples) == 2
    assert seen.gaps["skipped: a report with values of other kinds"] == 1


@pytest.mark.parametrize("source", ["rocm-smi", "xpu-smi", "npu-smi", "neuron-monitor"])
def test_without_a_time(read: Read, source: str) -> None:
    """What has no times is refused in one line that names --at."""
    with pytest.raises(SourceError, match="--at"):
        read(source, ALL[source])


def values_of(seen: Seen) -> dict[tuple[object, object], dict[str, object]]:
    """What each device is known to have done at each time; two rows of one say the same."""
    found: dict[tuple[object, object], dict[str, object]] = {}
    for row in seen.samples:
        kept = {k: v for k, v in row.items() if v is not None and k != "from_utc"}
        assert found.setdefault((row["device_id"], row["to_utc"]), kept) == kept
    return found


@pytest.mark.parametrize("source", ["amd-smi", "hl-smi", "xpu-smi"])
def test_rows_in_any_order_and_twice_say_the_same(read: Read, source: str) -> None:
    """Logs with times of their own: shuffled or doubled rows give each device the same values at the same times."""
    heading, *rows = ALL[source].splitlines()
    if source == "xpu-smi":  # times of day are told apart by their order, so these have dates
        rows = [row.replace("23:59", "2026-09-01T21:59").replace("00:00:15", "2026-09-01T22:00:15") for row in rows]
        rows = [row.replace(".500,", ".500Z,", 1) for row in rows]
    plain = values_of(read(source, "\n".join([heading, *rows, ""])))
    assert plain
    for _ in range(3):
        Random(5).shuffle(rows)
        assert values_of(read(source, "\n".join([heading, *rows, ""]))) == plain
    assert values_of(read(source, "\n".join([heading, *rows, *rows, ""]))) == plain
    assert values_of(read(source, "\n".join([heading, *rows, heading, *rows, ""]))) == plain


@pytest.mark.parametrize("source", ALL)
@pytest.mark.parametrize("seed", range(3))
def test_another_locale_changes_no_value_in_silence(read: Read, source: str, seed: int) -> None:
    """Commas before decimals, semicolons, digits of other scripts, lost and cut lines: refused, a gap, or the same values."""
    known = {"at_ms": AT_MS, "step_s": 30.0}
    plain, text, random = values_of(read(source, ALL[source], **known)), ALL[source], Random(seed)
    mutants = [
        re.sub(r"(\d)\.(\d)", r"\1,\2", text),
        re.sub(r"(\d+)\.(\d+)", r'"\1,\2"', text),
        text.replace(",", ";"),
        re.sub(r"\d\d(?=[ ,\n]|$)", lambda found: found[0].translate({48 + d: 0x660 + d for d in range(10)}), text),
        "".join(
            line if "evice" in line else random.choice(["", line, line + line, line[: len(line) // 2] + "\n"])
            for line in text.splitlines(True)
        ),
        text.replace("0", "0\x1b[31m", 1),
    ]
    for mutant in mutants:
        try:
            found = values_of(read(source, mutant, name="../${jndi:x}<b>.log".replace("/", "_"), **known))
        except SourceError:
            continue
        shown = {row.get(name) for row in plain.values() for name in row}
        for row in found.values():
            assert all(value in shown for name, value in row.items() if name not in ("device_id", "to_utc"))
