"""dmon and XML logs, recorded over hours and cut off in the middle; and any bytes: rows or a SourceError.

Reports are of utkuozdemir/nvidia_gpu_exporter and influxdata/telegraf, and a public report of driver 550.
"""

import gzip
import random
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import Gap, ReadOptions
from loadfactor.sources.nvidia_smi import SOURCE

DMON = """#Date       Time        gpu    pwr  gtemp  mtemp     sm    mem   mclk   pclk  rxpci  txpci     fb
#YYYYMMDD   HH:MM:SS    Idx      W      C      C      %      %    MHz    MHz   MB/s   MB/s     MB
 20240131   12:00:00      0    312     63      -     97     40   2619   1980     10     20   1024
 20240131   12:00:00      1     70     33      -      -      0   2619    345      0      0      0
#Date       Time        gpu    pwr  gtemp  mtemp     sm    mem   mclk   pclk  rxpci  txpci     fb
#YYYYMMDD   HH:MM:SS    Idx      W      C      C      %      %    MHz    MHz   MB/s   MB/s     MB
 20240131   12:00:05      0    300     63      -     90     40   2619   1980     10     20   1024
"""
NOON_MS = 1_706_702_400_000
XML = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">
<nvidia_smi_log>
  <timestamp>Wed Jan 31 12:00:{second:02d} 2024</timestamp>
  <gpu id="00000000:01:00.0">
    <product_name>Tesla T4</product_name><uuid>GPU-1</uuid>
    <utilization><gpu_util>{second} %</gpu_util></utilization>
    <gpu_power_readings>
      <average_power_draw>N/A</average_power_draw><instant_power_draw>30.5 W</instant_power_draw>
    </gpu_power_readings>
    <fb_memory_usage><total>15360 MiB</total><used>ERR!</used></fb_memory_usage>
  </gpu>
</nvidia_smi_log>
"""


def test_dmon_with_date_and_time(read):
    """Columns are taken from the headings, headings repeat, a dash is not measured."""
    seen = read(DMON, name="node-1.log")
    assert seen.column("device_id") == ["node-1/0", "node-1/1", "node-1/0"]
    assert seen.column("to_utc") == [NOON_MS, NOON_MS, NOON_MS + 5000]
    assert seen.column("busy_share") == [0.97, None, 0.9]
    assert seen.samples[0]["mem_used_bytes"] == 2**30
    assert seen.samples[0]["pcie_rx_bytes_per_s"] == 10e6
    assert seen.samples[0]["pcie_tx_bytes_per_s"] == 20e6
    assert seen.samples[0]["sm_clock_hz"] == 1.98e9
    assert seen.gaps["- in sm"] == 1


def test_dmon_as_csv(read):
    """dmon --format csv says the same with commas."""
    text = "#Date, Time, gpu, pwr, sm\n#YYYYMMDD, HH:MM:SS, Idx, W, %\n20240131, 12:00:00, 0, 312, 97\n"
    assert read(text).column("busy_share") == [0.97]


def test_dmon_without_times(read):
    """Without times dmon needs to be told when it began and, from the second round on, its step."""
    text = (
        "# gpu    pwr     sm\n# Idx      W      %\n    0    312     97 \n    1     70      0 \n    0    300     90 \n"
    )
    with pytest.raises(SourceError, match="-o DT"):
        read(text)
    with pytest.raises(SourceError, match="--step"):
        read(text, at_ms=NOON_MS)
    assert read(text, at_ms=NOON_MS, step_s=1.0).column("to_utc") == [NOON_MS, NOON_MS, NOON_MS + 1000]


def test_dmon_counts_on_below_a_repeated_heading(read):
    """The heading that dmon repeats every few rows does not start the count of steps anew."""
    head = "# gpu    pwr     sm\n# Idx      W      %\n"
    text = (head + "    0    312     97 \n") * 3
    assert read(text, at_ms=NOON_MS, step_s=1.0).column("to_utc") == [NOON_MS, NOON_MS + 1000, NOON_MS + 2000]


def test_dmon_cut_off(read):
    """A last line without an end is not read."""
    seen = read(DMON[:-3])
    assert len(seen.samples) == 2
    assert seen.gaps["last line, cut off"] == 1


def test_xml_documents_in_a_row(read):
    """-l writes one document after the other; each is a reading."""
    seen = read("".join(XML.format(second=s) for s in (10, 20, 30)), name="smi.xml")
    assert seen.column("busy_share") == [0.1, 0.2, 0.3]
    assert seen.column("to_utc") == [NOON_MS + s for s in (10_000, 20_000, 30_000)]
    assert seen.column("power_w") == [30.5] * 3
    assert seen.column("mem_used_bytes") == [None] * 3
    assert seen.gaps["ERR! in used"] == 3
    assert seen.devices[0]["from_utc"] == NOON_MS


def test_xml_cut_off_and_restarted(read):
    """A document cut off in the middle costs itself, not the next one."""
    whole = XML.format(second=10)
    seen = read(whole[:300] + "\n" + XML.format(second=20) + whole[:500], name="smi.xml")
    assert seen.column("busy_share") == [0.2]
    assert seen.gaps["document, cut off"] == 2


def test_xml_of_endless_elements_is_broken(read):
    """A document of more elements than a GPU can have costs itself alone, and little memory."""
    endless = XML.format(second=10).replace("</uuid>", "</uuid>" + "<a/>\n" * 150_000)
    seen = read(endless + XML.format(second=20), name="smi.xml")
    assert seen.column("busy_share") == [0.2]
    assert seen.gaps["document of broken XML"] == 1


def test_broken_xml_is_a_gap(read):
    """Broken XML is passed over up to the next document."""
    seen = read(XML.format(second=10).replace("</uuid>", "") + XML.format(second=20), name="smi.xml")
    assert seen.column("busy_share") == [0.2]
    assert seen.gaps == {"document of broken XML": 1, "ERR! in used": 1}


REPORT = """
==============NVSMI LOG==============

Timestamp                                 : Thu Nov 14 15:35:07 2024
Driver Version                            : 550.54.14
Attached GPUs                             : 2
GPU 00000000:AD:00.0
    Product Name                          : NVIDIA H100 NVL
    MIG Mode
        Current                           : Disabled
        Pending                           : Disabled
    GPU UUID                              : GPU-806f8ea2-6428-1096-a076-bb687fb45fb0
    PCI
        Tx Throughput                     : 727 KB/s
    Clocks Event Reasons
        Idle                              : Not Active
        SW Power Cap                      : Active
        HW Slowdown                       : Not Active
            HW Thermal Slowdown           : Not Active
        Sync Boost                        : Not Active
        SW Thermal Slowdown               : Not Active
    FB Memory Usage
        Total                             : 95830 MiB
        Used                              : 1024 MiB
    BAR1 Memory Usage
        Used                              : 1 MiB
    Utilization
        Gpu                               : 87 %
        Memory                            : 40 %
    Temperature
        GPU Current Temp                  : 62 C
    GPU Power Readings
        Power Draw                        : N/A
        Average Power Draw                : 301.50 W
    GPU Memory Power Readings
        Power Draw                        : N/A
    Clocks
        SM                                : 1785 MHz
    Max Clocks
        SM                                : 1990 MHz
    Processes                             : None

GPU 00000000:AE:00.0
    Product Name                          : NVIDIA H100 NVL
    GPU UUID                              : GPU-db6d02a2-1413-eccf-8a17-d99eac29d365
    Utilization
        Gpu                               : [N/A]
"""


def test_processes_are_no_readings(read):
    """pmon alone is called what it is: it has PIDs, which no scheduler knows."""
    with pytest.raises(SourceError, match=r"pmon, which lists processes by PID, and no readings .* record with"):
        read("# gpu         pid  type    sm\n# Idx           #   C/G     %\n    0      10101     C      5\n")


def test_reports_as_text(read):
    """`nvidia-smi -q`: nested by indent, as driver 550 wrote it (a public sample, retyped); a cut last line is no value."""
    seen = read(REPORT + REPORT.replace("15:35:07", "15:35:37").rstrip("\n"))
    assert seen.measured(0) == {
        "busy_share": 0.87,
        "mem_used_bytes": 2**30,
        "mem_total_bytes": 95830 * 2**20,
        "power_w": 301.5,
        "sm_clock_hz": 1.785e9,
        "temperature_c": 62,
        "pcie_tx_bytes_per_s": 727_000,
        "throttle_mask": 0x4,
    }
    assert seen.column("busy_share") == [0.87, None, 0.87, None]
    assert {row["to_utc"] for row in seen.samples} == {1731598507000, 1731598537000}
    assert [d["accelerator"] for d in seen.devices] == ["h100-nvl", "h100-nvl"]
    assert seen.gaps["last line, cut off"] == 1
    query = "uuid, timestamp, utilization.gpu [%]\nGPU-1, 2024/11/14 16:00:00.000, 5 %\n"
    assert len(read(query + REPORT + query).samples) == 2


def test_dmon_that_broke_off_and_began_again(read):
    """The heading of a new selection that stands behind half a row counts."""
    text = (
        "#Date       Time        gpu     sm\n 20240131   12:00:00      0     50 \n 20240131   12:00:0"
        "#Date       Time        gpu    pwr     sm\n 20240131   12:00:30      0    100     60 \n"
    )
    seen = read(text)
    assert (seen.column("busy_share"), seen.column("power_w")) == ([0.5, 0.6], [None, 100.0])


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


@pytest.mark.parametrize("name", CAPTURES)
def test_text_reports_agree_with_the_queries_beside_them(shared, read, read_paths, name):
    """Real reports of four drivers say what `--query-gpu` said in the same second."""
    path = shared / "data" / "metrics" / "nvidia_smi_captures" / f"linux-x86_64__{name}.txt.gz"
    reports = re.findall(r"^=+NVSMI LOG=+\n.*?(?=^####)", gzip.decompress(path.read_bytes()).decode(), re.S | re.M)
    for query, report in zip(read_paths(path).samples, read("".join(reports)).samples, strict=True):
        assert abs(query["to_utc"] - report["to_utc"]) <= 1000
        assert query["mem_total_bytes"] == report["mem_total_bytes"]
        assert report["busy_share"] == pytest.approx(query["busy_share"], abs=0.05)
        assert report["power_w"] == pytest.approx(query["power_w"], rel=0.2)


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


HEAD = b"timestamp, index, utilization.gpu [%], memory.used [MiB]\n"
ROW = b"2024/01/31 12:34:56.789, 0, 97 %, 1024 MiB\n"
PIECES = st.sampled_from(
    [
        *(HEAD, ROW, b"\n", b"\r\n", b"####\n", b"# gpu sm\n", b"#Date Time gpu sm\n"),
        *(b" 20240131 12:00:00 0 5\n", b"    0   5\n", b"<?xml version='1.0'?>\n", b"<nvidia_smi_log>"),
        *(b"<gpu id='0'>", b"<utilization><gpu_util>5 %</gpu_util></utilization>", b"</gpu>"),
        *(b"</nvidia_smi_log>", b"<timestamp>Wed Jan 31 12:34:56 2024</timestamp>", b", ", b"[N/A]", b"\xff"),
        *(b"\0", b'"', b"timestamp", b"uuid, pid\n", b"=====\n", b"1e999", b"9" * 400),
        *(b"2024/02/31 12:34:56.789, 0, 97 %, 1024 MiB\n",),
    ]
)
FIELDS = {
    "utilization.gpu": ("%", st.integers(0, 100).map(str)),
    "memory.used": ("MiB", st.integers(0, 81_559).map(str)),
    "power.draw": ("W", st.integers(0, 70_000).map(lambda n: f"{n / 100:.2f}")),
    "clocks.sm": ("MHz", st.integers(0, 2_000).map(str)),
    "temperature.gpu": (None, st.integers(0, 100).map(str)),
}
CELL = st.one_of(st.none(), st.sampled_from(["[N/A]", "[Not Supported]"]))


def read(data: bytes, **options: object) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    rows: dict[str, list[dict[str, object]]] = {"samples": [], "devices": []}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "gpu.csv"
        path.write_bytes(data)
        for item in SOURCE.read((path,), ReadOptions(timezone=ZoneInfo("Europe/Berlin"), **options)):  # type: ignore[arg-type]
            if not isinstance(item, Gap):
                rows[item.table] += item.data.to_pylist()
    return rows["samples"], rows["devices"]


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.binary(max_size=400), st.lists(PIECES, max_size=25).map(b"".join)), st.booleans())
def test_any_bytes_make_rows_or_an_error(data, dated):
    """No input ends in anything but rows, gaps or a SourceError of one line."""
    try:
        read(data, **({"at_ms": 1_700_000_000_000, "step_s": 1.0} if dated else {}))
    except SourceError as e:
        message = str(e)
    else:
        message = "gpu.csv was read"
    assert "gpu.csv" in message
    assert "\n" not in message


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 5 * len(ROW) + len(HEAD)))
def test_any_truncation_keeps_a_prefix(at):
    """A log cut anywhere gives its first rows; a cell of the last one may be missing, never wrong."""
    data = HEAD + b"".join(ROW.replace(b"56.789", b"%02d.789" % i) for i in range(5))
    whole, _ = read(data)
    try:
        cut, _ = read(data[:at])
    except SourceError:
        return
    assert cut[:-1] == whole[: max(0, len(cut) - 1)]
    assert all(v is None or v == whole[len(cut) - 1][k] for k, v in (cut[-1] if cut else {}).items())


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 12), st.randoms(use_true_random=False))
def test_column_order_and_units_change_nothing(data, count, shuffle: random.Random):
    """The same log with columns shuffled, units stripped and fields beside it that nobody keeps gives identical rows."""
    rows = []
    for i in range(count):
        row = {"timestamp": f"2024/01/31 12:{i:02d}:00.{data.draw(st.integers(0, 999)):03d}", "index": str(i % 3)}
        row |= {name: data.draw(CELL) or data.draw(values) for name, (_, values) in FIELDS.items()}
        rows.append(row)
    plain = list(rows[0])
    mixed = [*plain, "pstate", "driver_version"]
    shuffle.shuffle(mixed)

    def log(names: list[str], head: bool, cells: bool) -> bytes:
        def unit(name: str, text: str, shown: bool, form: str) -> str:
            known = FIELDS.get(name, (None, None))[0]
            return form.format(text, known) if shown and known and not text.startswith("[") else text

        lines = [[unit(n, n, head, "{} [{}]") for n in names]]
        lines += [[unit(n, row.get(n, "P0"), cells, "{} {}") for n in names] for row in rows]
        return "".join(", ".join(line) + "\n" for line in lines).encode()

    wanted = read(log(plain, True, True))
    for head, cells in ((True, False), (False, True), (False, False)):
        assert read(log(mixed, head, cells)) == wanted
