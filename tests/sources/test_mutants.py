# ruff: noqa: E501 - lines of files as tools write them
"""Mutants of a file of every source: cut, with other line ends, of another locale, with hostile names; never a traceback, no sum in silence.

A source without a sample here fails the first test, so that a new one is enrolled.
"""

import json
import re
from collections import defaultdict
from datetime import UTC
from decimal import Decimal
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import pytest
from tests.sources.test_origins import AT, AT_MS, CASES, Case

from loadfactor.base.errors import LoadfactorError
from loadfactor.sources import SOURCES, find_source
from loadfactor.sources.base import ReadOptions, Rows

FOCUS = "BilledCost,EffectiveCost,BillingCurrency,ChargePeriodStart,ChargePeriodEnd,ResourceId\n" + "".join(
    f"{n}.25,{n}.5,USD,2026-10-0{n}T00:00:00Z,2026-10-0{n}T01:00:00Z,i-{n}\n" for n in range(1, 5)
)
AZURE = "Date,CostInBillingCurrency,BillingCurrencyCode,ResourceId,Quantity\n" + "".join(
    f"10/{n + 12}/2026,{n}.25,USD,/vm/{n},1\n" for n in range(1, 5)
)
SERIES = [
    {
        "metric": {
            "type": "agent.googleapis.com/gpu/utilization",
            "labels": {"uuid": "GPU-1", "gpu_number": "0", "model": "NVIDIA L4"},
        },
        "resource": {"type": "gce_instance", "labels": {"instance_id": "1", "zone": "z", "project_id": "p"}},
        "metricKind": "GAUGE",
        "valueType": "DOUBLE",
        "points": [
            {
                "interval": {"startTime": f"2026-10-01T00:0{n}:00Z", "endTime": f"2026-10-01T00:0{n}:00Z"},
                "value": {"doubleValue": 10.5 * n},
            }
            for n in (3, 2, 1)
        ],
    }
]
STREAM = "".join(
    json.dumps(
        {
            "metric_stream_name": "s", "account_id": "1", "region": "us-east-1", "namespace": "CWAgent",
            "metric_name": "nvidia_smi_utilization_gpu", "unit": "Percent", "timestamp": AT_MS + 60_000 * n,
            "dimensions": {"InstanceId": "i-1", "index": "0", "name": "NVIDIA A10G"},
            "value": {"max": 50.5, "min": 50.5, "sum": 50.5, "count": 1.0},
        }
    ) + "\n"
    for n in range(3)
)  # fmt: skip
EC2 = {
    "InstanceTypes": [
        {"InstanceType": "g5.xlarge", "GpuInfo": {"Gpus": [{"Name": "A10G", "Manufacturer": "NVIDIA", "Count": 1}]}}
    ],
    "Reservations": [
        {
            "Instances": [
                {
                    "InstanceId": "i-1",
                    "InstanceType": "g5.xlarge",
                    "LaunchTime": "2026-09-30T00:00:00+00:00",
                    "State": {"Name": "running"},
                }
            ]
        }
    ],
}
RECORDS: list[dict[str, Any]] = [
    {"kind": "begin", "format": 1, "id": "f", "job": "j", "at": AT_MS, "run": "r", "host": "h", "pid": 4, "rank": 0},
    *(
        {
            "kind": "work",
            "n": n,
            "from": AT_MS + 1000 * n,
            "to": AT_MS + 1000 * n + 900,
            "step": n,
            "steps": 1,
            "samples": [4],
            "tokens": 9,
        }
        for n in range(1, 4)
    ),
]
OTHERS = (
    Case(
        "nvidia-smi",
        "",
        "timestamp, index, name, utilization.gpu [%], power.draw [W]\n"
        + "".join(f"2026/05/01 12:00:{n}0.000, 0, NVIDIA H100 80GB HBM3, {n}5 %, {n}00.25 W\n" for n in range(1, 5)),
        {},
    ),
    Case("cloudwatch", "", STREAM, {}, "stream.json"),
    Case("ec2", "", json.dumps(EC2, indent=1), {}, "ec2.json", AT),
    Case("gcp-monitoring", "", json.dumps({"timeSeries": SERIES}, indent=1), {}, "series.json"),
    Case("focus", "", FOCUS, {}, "focus.csv"),
    Case("azure-cost", "", AZURE, {}, "azure.csv"),
    Case(
        "tables",
        "",
        "device_id,to_utc,busy_share\n" + "".join(f"g0,{AT_MS + 30_000 * n},0.{n}5\n" for n in range(4)),
        {},
        "samples.csv",
    ),
    Case("prices", "", "basis,price_per_gpu_hour,currency\nlist,2.5,EUR\nreserved,1.25,EUR\n", {}, "prices.csv"),
    Case("progress", "", "".join(json.dumps(record) + "\n" for record in RECORDS), {}, "progress.jsonl"),
    Case(
        "alibaba-genai",
        "",
        "timestamp_anon,value,container_ip\n" + "".join(f"{1662858720 + 57 * n},{n}.5,a\n" for n in range(4)),
        {},
        "pod_gpu_duty_cycle_anon.csv",
    ),
    Case(
        "alibaba-openb",
        "",
        "sn,cpu_milli,memory_mib,gpu,model\nn-0,64000,262144,2,P100\nn-1,64000,262144,8,G2\n",
        {},
        "openb_node_list.csv",
    ),
)
BESIDE = {
    "alibaba-openb": (
        "openb_pod_list.csv",
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
        "p-0,8000,32768,1,1000,,LS,Running,100,900,110\n",
    ),
}
SAMPLES = {case.source: case for case in reversed((*CASES, *OTHERS))}
LONGEST_S = 20
Sums = dict[tuple[str, str], float]


def test_every_source_has_a_file_to_mutate(tmp_path: Path) -> None:
    """And its file gives rows."""
    assert SAMPLES.keys() == {entry.name for entry in SOURCES}
    for case in SAMPLES.values():
        found = read_file(case, case.text.encode(), tmp_path)
        assert found is not None, case.source
        assert found[0], case.source


def read_file(case: Case, data: bytes, folder: Path) -> tuple[Sums, int] | None:
    """The sums of all columns of numbers by table, rows too, and how much gaps count; None where it is refused in one line."""
    path = folder / case.name
    path.write_bytes(data)
    paths: tuple[Path, ...] = (path,)
    if case.source in BESIDE:
        name, text = BESIDE[case.source]
        (folder / name).write_text(text)
        paths = (folder,)
    sums: Sums = defaultdict(float)
    said = 0
    try:
        source = find_source(case.source)
        for item in source.read(source.files(paths), ReadOptions(**{"timezone": UTC, **case.options})):
            if not isinstance(item, Rows):
                said += item.count
                continue
            sums[item.table, "rows"] += item.data.num_rows
            for row in item.data.to_pylist():
                for name, value in row.items():
                    if isinstance(value, (int, float, Decimal)) and name not in ("from_utc", "to_utc"):
                        sums[item.table, name] += float(value)
    except LoadfactorError as error:
        refusal = str(error)
    else:
        return dict(sums), said
    assert "\n" not in refusal
    return None


@pytest.mark.parametrize("source", list(SAMPLES))
def test_other_ends_of_lines_say_the_same(tmp_path: Path, source: str) -> None:
    """A byte order mark, CRLF, and empty lines at the end: the same sums, or one line that refuses the file."""
    case = SAMPLES[source]
    data = case.text.encode()
    plain, _ = read_file(case, data, tmp_path) or ({}, 0)
    for mutant in (b"\xef\xbb\xbf" + data, data.replace(b"\n", b"\r\n"), data + b"\n\n"):
        found = read_file(case, mutant, tmp_path)
        assert found is None or found[0] == pytest.approx(plain)


NOISE = {
    "noise": Random(1).randbytes(20_000),
    "zero bytes": bytes(20_000),
    "an endless text": b'"' * 50_000,
    "a broken gzip": b"\x1f\x8b" + Random(2).randbytes(5000),
    "a broken Parquet": b"PAR1" + Random(3).randbytes(5000) + b"PAR1",
    "a broken database": b"SQLite format 3\0" + Random(4).randbytes(5000),
    "deep XML": b'<?xml version="1.0"?>\n<nvidia_smi_log>' + b"<a>" * 100_000,
    "half characters": b'{"a": "\\ud800"}\n',
}


@pytest.mark.long
@pytest.mark.parametrize("source", list(SAMPLES))
def test_noise_ends_in_one_line_or_gaps(tmp_path: Path, source: str) -> None:
    """Noise, zero bytes, broken containers and depth, alone and after the file: one line, or gaps, in 20 s each."""
    case = SAMPLES[source]
    data = case.text.encode()
    for what, noise in NOISE.items():
        for mutant in (noise, data + noise):
            began_s = monotonic()
            read_file(case, mutant, tmp_path)
            assert monotonic() - began_s < LONGEST_S, (source, what)


@pytest.mark.long
@pytest.mark.parametrize("source", list(SAMPLES))
def test_texts_of_json_may_be_deep_or_no_text(tmp_path: Path, source: str) -> None:
    """Each value of a JSON file in turn of 100 to 100,000 brackets, and each text with half a character: one line, or gaps."""
    case = SAMPLES[source]
    if case.text[:1] not in "[{":
        return
    values = list(re.finditer(r': ?("[^"\\]*"|[0-9.]+)', case.text))
    for value in values[:: len(values) // 8 + 1]:
        before, behind = case.text[: value.start(1)], case.text[value.end(1) :]
        for depth in (100, 480, 900, 950, 980, 990, 1000, 100_000):
            for left, right in ("[]", ('{"a":', "}")):
                read_file(case, (before + left * depth + "1" + right * depth + behind).encode(), tmp_path)
        read_file(case, (before + '"\\ud800"' + behind).encode(), tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("source", list(SAMPLES))
def test_mutants_change_no_sum_in_silence(tmp_path: Path, source: str) -> None:
    """Cut anywhere, a line lost or doubled, commas for points, hostile texts: refused, counted, or what the whole lines say."""
    case, random = SAMPLES[source], Random(11)
    text = case.text
    plain, heard = read_file(case, text.encode(), tmp_path) or ({}, 0)
    for end in random.sample(range(1, len(text)), min(5, len(text) - 1)):
        found = read_file(case, text[:end].encode(), tmp_path)
        whole = read_file(case, text[: text.rfind("\n", 0, end) + 1].encode(), tmp_path)
        if found is not None and whole is not None and found[1] <= heard and not text[:end].endswith("\n"):
            assert found[0] == pytest.approx(whole[0]) or found[0] == pytest.approx(plain), (source, end)
    commas = read_file(case, re.sub(r"(\d)\.(\d)", r"\1,\2", text).encode(), tmp_path)
    if commas is not None and commas[1] <= heard:
        assert commas[0] == pytest.approx(plain)
    for hostile in ("\x1b[31m<b>", "\u202e", "';--", "${jndi:x}", "\x00", "﷽" * 50, "1e999", "\ud800"):
        at = random.randrange(len(text))
        read_file(case, (text[:at] + hostile + text[at:]).encode(errors="surrogatepass"), tmp_path)
    lines = text.splitlines(keepends=True)
    random.shuffle(lines)
    for mutant in ("".join(lines), text + text, "".join(lines[::2])):
        read_file(case, mutant.encode(), tmp_path)
