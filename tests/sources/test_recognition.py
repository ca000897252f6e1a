"""Whatever file is given to whatever source: one line that says what the file is and what to do, or rows; never a traceback."""

import gzip
import json
from pathlib import Path

import pytest

from loadfactor.base.errors import SourceError
from loadfactor.sources import SOURCES, find_source
from loadfactor.sources.base import ReadOptions
from loadfactor.sources.recognition import recognize

FILES: dict[str, tuple[str | bytes, str]] = {
    "bill.pdf": (b"%PDF-1.7\n%\xe2\xe3\n", "a PDF: export the same as CSV"),
    "shot.png": (b"\x89PNG\r\n\x1a\n", "a picture"),
    "book.xlsx": (b"PK\x03\x04" + b"\0" * 50, "an Excel workbook"),
    "run.sqlite": (b"SQLite format 3\0" + b"\xff" * 50, "loadfactor diagnose"),
    "tool": (b"\x7fELF\0", "a program"),
    "page.html": ("<!DOCTYPE html>\n<html></html>\n", "a web page"),
    "login.json": ('{"error":"invalid_token","error_description":"expired"}\n', "an error that a server answered"),
    "pod.yaml": ("apiVersion: v1\nkind: Pod\n", "kubectl get … -o json"),
    "kubectl.txt": ("NAME    READY   STATUS\na   1/1   Running\n", "a table of kubectl"),
    "pods.json": ('{"apiVersion":"v1","kind":"List","metadata":{},"items":[]}', "loadfactor import kubernetes"),
    "sacct.txt": ("JobID|State|Start|End|AllocTRES\n", "loadfactor import slurm"),
    "sinfo.txt": ("PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n", "sinfo --all -N"),
    "smi.txt": ("Thu Oct  1 12:00:00 2026\n+----+\n| NVIDIA-SMI 550.54.15  Driver |\n", "nvidia-smi --query-gpu="),
    "pmon.txt": ("# gpu         pid   type     sm    mem\n    0      12345     C     90     40\n", "nvidia-smi dmon"),
    "smi.csv": ("timestamp, index, utilization.gpu [%]\n", "loadfactor import nvidia-smi"),
    "scrape.prom": ('DCGM_FI_DEV_GPU_UTIL{gpu="0"} 5\n', "loadfactor import dcgm"),
    "vllm.prom": ("# TYPE vllm:prompt_tokens_total counter\nvllm:prompt_tokens_total 5\n", "loadfactor import serving"),
    "node.prom": ("# TYPE node_load1 gauge\nnode_load1 5\n", "loadfactor import prometheus FILE --at TIME"),
    "answer.json": ('{"status":"success","data":{"resultType":"matrix","result":[]}}', "loadfactor import prometheus"),
    "focus.csv": ("BilledCost,EffectiveCost,ChargePeriodStart\n", "loadfactor import focus"),
    "cur.csv": ("lineItem/UnblendedCost,lineItem/UsageStartDate\n", "loadfactor import aws-cur"),
    "azure.csv": ("Date,CostInBillingCurrency\n", "loadfactor import azure-cost"),
    "sheet.csv": ("meterId,meterName,unitOfMeasure,unitPrice\n", "a price sheet of Azure"),
    "trace.json": ('{"traceEvents":[]}', "loadfactor diagnose"),
    "train.log": ("iteration 10/100 | loss 3.2\n", "loadfactor import training-log FILE --job NAME"),
    "spend.jsonl": ('{"request_id":"1","model":"m","prompt_tokens":1}\n', "loadfactor import gateway"),
    "ec2.json": ('{"Reservations":[]}', "loadfactor import ec2"),
    "neuron.json": ('{"neuron_runtime_data":[]}', "loadfactor import neuron-monitor"),
    "opencost.json": (json.dumps({"data": [{"a": {"gpuCost": 2, "window": {}}}]}), "OpenCost"),
    "pods-1.json": ('[{"amount":1,"timeBilledMs":5}]', "loadfactor import runpod"),
    "hello.txt": ("hello world\n", ""),
    "words.csv": ("größe;zeit\n1;2\n".encode("latin-1"), ""),
    "half.gz": (gzip.compress(b"a" * 999)[:20], "truncated gzip"),
    "z.zst": (b"\x28\xb5\x2f\xfd" + b"\0" * 9, "zstd"),
    "empty": ("", ""),
}
NAMING = ("focus", "slurm", "prometheus", "npu-smi", "amd-smi")
"""Sources that are given each file here: what they say names it."""


def throw(source: str, path: Path) -> str:
    """What the import of a file says where it is refused; empty where it gives rows or gaps."""
    of, said = find_source(source), ""
    try:
        list(of.read(of.files((path,)), ReadOptions(held_by="job")))
    except SourceError as error:
        said = str(error)
    return said


@pytest.mark.parametrize("name", list(FILES))
def test_every_refusal_names_what_the_file_is(tmp_path: Path, name: str) -> None:
    """By the magic of a binary, names in JSON, or a heading; the one command that reads it is named. All sources end in a line."""
    content, says = FILES[name]
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    for source in NAMING:
        said = throw(source, path)
        is_own = f"import {source}" in says or "`loadfactor " in said
        assert is_own or says in said, (source, said)
        assert said or says.endswith(f"import {source}") or source in ("prometheus", "slurm")
    for entry in SOURCES:
        assert "\n" not in throw(entry.name, path)


ODD: dict[str, tuple[str | bytes, str, str]] = {
    "tpu-info": ("TPU Chips\n┏━━━━┓\n┃ Chip ┃\n", "tpu-info", "import gcp-monitoring"),
    "tpu-info of today": ("Libtpu version: 0.0.18\nAccelerator type: v6e\n", "tpu-info", "import gcp-monitoring"),
    "neuron-ls": ("instance-type: trn1.32xlarge\n+----+\n| NEURON | NEURON |\n", "neuron-ls", "import neuron-monitor"),
    "neuron-ls -j": ('[{"neuron_device":0,"nc_count":2}]', "neuron-ls", "import neuron-monitor"),
    "hl-smi": ("+----+\n| HL-SMI Version:   hl-1.15.0 |\n", "hl-smi", "import hl-smi"),
    "hl-smi -Q": ("index, uuid, utilization.aip [%]\n0, 01P0, 3 %\n", "hl-smi", "import hl-smi"),
    "xpumcli stats": ("+----+\n| Device ID       | 0 |\n", "xpu-smi", "xpu-smi dump"),
    "xpumcli dump": (
        "Timestamp, DeviceId, GPU Utilization (%)\n06:14:46.000, 0, 0.00\n",
        "xpu-smi dump",
        "import xpu-smi",
    ),
    "npu-smi": ("+----+\n| npu-smi 23.0.rc2  Version: 23.0.rc2 |\n", "npu-smi", "import npu-smi"),
    "gpustat": (
        "n1   Thu Oct  1 00:00:00 2026  535.104\n[0] NVIDIA A100 | 30 C, 0 % |\n",
        "gpustat",
        "nvidia-smi --query-gpu",
    ),
    "gpustat --json": ('{"hostname":"h","query_time":"2026","gpus":[]}', "gpustat", "import nvidia-smi"),
    "nvtop": ('[{"device_name":"A100","gpu_util":"0%"}]', "nvtop", "import nvidia-smi"),
    "log of vLLM": (
        "INFO 10-01 00:00:00 [a.py:1] Engine 000: Avg prompt throughput: 12.0 tokens/s\n",
        "vLLM",
        "import serving",
    ),
    "log of SGLang": ("[2026-10-01 00:00:00] Decode batch. #running-req: 1\n", "SGLang", "import serving"),
    "envoy": ('{"start_time":"2026","gen_ai.request.model":"m"}', "Envoy AI Gateway", "import gateway"),
    "nginx": ('10.0.0.1 - - [01/Oct/2026:00:00:00 +0000] "POST /v1 HTTP/1.1" 200\n', "web server", "import gateway"),
    "openrouter": ("Slug,created_at,tokens_prompt\n", "OpenRouter", "import gateway"),
    "lsf": ("JOBID   USER    STAT  QUEUE  FROM_HOST\n", "LSF", "import tables"),
    "pbs": ("Job id            Name             User\n---- ---- ----\n", "PBS", "import tables"),
    "sge": ("======\nqname        gpu.q\n", "Grid Engine", "import tables"),
    "condor": ("-- Schedd: submit : <10.0.0.1:9618>\n", "HTCondor", "import tables"),
    "ray": ("======== Autoscaler status: 2026-10-01 ========\n", "ray status", "import prometheus"),
    "dmesg": (
        "[  100.000000] NVRM: Xid (PCI:0000:0b:00): 79, GPU has fallen off the bus.\n",
        "errors of GPUs",
        "agent",
    ),
    "prometheus.yml": ("global:\n  scrape_interval: 15s\n", "configuration of Prometheus", "import prometheus URL"),
    "grafana": ('{"panels":[],"title":"x"}', "dashboard of Grafana", "import prometheus URL"),
    "otlp": ('{"resourceMetrics":[]}', "OpenTelemetry", "import prometheus"),
    "influx": ("nvidia_smi,host=h,index=0 power_draw=50 1790812800000000000\n", "InfluxDB", "import prometheus"),
    "wandb-summary": ('{"_runtime":100,"_step":10}', "W&B", "import training-log"),
    "kubectl top": ("NAME   CPU(cores)   CPU%\n", "kubectl top", "import kubernetes"),
    "mlflow.db": (b"SQLite format 3\0", "SQLite", "import training-log FILE --job NAME"),
    "ncu": (b"NVR\0", "Nsight Compute", "diagnose"),
    "tar": (b"a.txt" + b"\0" * 252 + b"ustar\0", "tar", "unpack"),
    "zst": (b"\x28\xb5\x2f\xfd", "zstd", "zstd -d"),
}


@pytest.mark.parametrize("name", list(ODD))
def test_what_people_try_is_named_with_what_to_record_instead(name: str) -> None:
    """Tables for people, packed files, lists of other schedulers: what it is, and the one command."""
    content, is_, says = ODD[name]
    found = recognize(content if isinstance(content, bytes) else content.encode())
    assert found is not None
    assert is_ in found[0]
    assert says in found[1]


def test_the_right_source_says_what_is_wrong_alone(tmp_path: Path) -> None:
    """A broken file of a source's own kind is not sent elsewhere."""
    path = tmp_path / "bill.csv"
    path.write_text("BilledCost,EffectiveCost,ChargePeriodStart\n1,2,3\n")
    assert "this is" not in throw("focus", path)
    assert throw("prometheus", path).endswith("this is a FOCUS bill: `loadfactor import focus`")
