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


THROWN: dict[str, tuple[bytes, str, str]] = {
    "t.perfetto-trace": (b"\x0a\x0e\x9a\x02\x0b", "Perfetto", "traceconv json"),
    "t.pftrace": (b"\x0a\x03\x50\x90", "Perfetto", "loadfactor diagnose"),
    "report.nsys-rep": (b"Q\0", "Nsight Systems", "nsys export --type sqlite"),
    "report.qdrep": (b"Q\0", "Nsight Systems", "nsys export --type sqlite"),
    "kernels.ncu-rep": (b"NVR\0", "Nsight Compute", "loadfactor diagnose"),
    "run.rocpd": (b"SQLite format 3\0", "rocprofv3", "loadfactor diagnose"),
    "host.xplane.pb": (b"\x0a", "XLA", "loadfactor diagnose"),
    "reports.zip": (b"PK\x03\x04" + bytes(26) + b"run/r1.nsys-rep", "reports of Nsight Systems", "nsys export"),
    "traces.zip": (b"PK\x03\x04" + bytes(26) + b"rank0.pt.trace.json", "traces", "loadfactor diagnose"),
    "ckpt.pt": (b"PK\x03\x04" + bytes(26) + b"archive/data.pkl", "checkpoint of PyTorch", "nothing of what ran"),
    "x.ods": (b"PK\x03\x04" + bytes(26) + b"mimetypeapplication", "OpenDocument", "CSV"),
    "m.safetensors": (b"\xc8\0\0\0\0\0\0\0{", "weights", "nothing of what ran"),
    "m.gguf": (b"GGUF\x03", "weights", "nothing of what ran"),
    "a.pcap": (b"\xd4\xc3\xb2\xa1", "network packets", "nothing of GPUs"),
    "a.pcapng": (b"\x0a\x0d\x0d\x0a", "network packets", "nothing of GPUs"),
    "perf.data": (b"PERFILE2", "perf", "loadfactor diagnose"),
    "a.npy": (b"\x93NUMPY\x01", "NumPy", "loadfactor tables"),
    "a.pkl": (b"\x80\x04\x95", "pickle", "Parquet"),
    "a.feather": (b"ARROW1\0", "Feather", "Parquet"),
    "a.orc": (b"ORC\x08", "ORC", "Parquet"),
    "bill.avro": (b"Obj\x01\x04", "Avro", "lines of JSON"),
    "a.h5": (b"\x89HDF\r\n", "HDF5", "Parquet"),
    "index": (b"\xba\xaa\xd7\x00\x02", "Prometheus' own store", "import prometheus URL"),
    "a.lz4": (b"\x04\x22\x4d\x18", "lz4", "lz4 -d"),
    "dmon.txt": (b"#Entity   GPUTL   SMACT\nID\nGPU 0  1 0.5\n", "dcgmi dmon", "import dcgmi FILE --at"),
    "amd.txt": (b"GPU: 0\n    USAGE:\n        GFX_ACTIVITY: 0 %\n", "for people", "import amd-smi"),
    "rocm.txt": (b"==== ROCm System Management Interface ====\n", "for people", "import amd-smi"),
    "list.txt": (b"GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-1)\n", "nvidia-smi -L", "--query-gpu"),
    "topo.txt": (b"\tGPU0\tGPU1\tCPU Affinity\n", "topology", "--query-gpu"),
    "diag.txt": (b"Successfully ran diagnostic for group.\n", "dcgmi diag", "--query-gpu"),
    "nccl.log": (b"n1:12:34 [0] NCCL INFO Bootstrap : Using eth0\n", "NCCL", "import training-log"),
    "nccl-tests.txt": (b"# nThread 1 nGpus 8 minBytes 8\n", "nccl-tests", "nothing of jobs"),
    "hta.csv": (b",idle_time,compute_time,kernel_time\n0,1,2,3\n", "HolisticTraceAnalysis", "loadfactor diagnose"),
    "job.sbatch": (b"#!/bin/bash\n#SBATCH --gres=gpu:8\n", "a script", "printed"),
    "slurm-1.out": (b"srun: job 123 queued and waiting for resources\n", "srun", "import slurm"),
    "seff.txt": (b"Job ID: 123\nCluster: c\nCores: 8\n", "seff", "import slurm"),
    "sreport.txt": (b"-----\nCluster/Account/User Utilization 2026\n", "sreport", "import slurm"),
    "assoc.txt": (b"Cluster|Account|User|Share|GrpTRES\n", "sacctmgr", "import slurm"),
    "gpu.rules": (b"groups:\n- name: gpu\n", "rules of alerts", "import prometheus URL"),
    "grafana.csv": (b'"Time","GPU 0"\n', "Grafana", "import prometheus URL"),
    "wandb.csv": (b'"Step","run - loss","run - loss__MIN"\n', "W&B", "import training-log FOLDER"),
    "a.ipynb": (b'{"cells":[],"metadata":{},"nbformat":4}', "notebook", "CSV"),
    "config.json": (b'{"architectures":["L"],"hidden_size":4096}', "configuration of a network", "plan train"),
    "bench.json": (b'{"request_throughput":1.0,"mean_ttft_ms":10}', "vLLM's benchmark", "validate serve"),
    "inspect.json": (b'[{"Id":"a","State":{},"HostConfig":{}}]', "docker inspect", "nvidia-smi"),
    "key.pem": (b"-----BEGIN RSA PRIVATE KEY-----\n", "a key", "another file"),
    "mail.eml": (b"From: a@b.c\nSubject: invoice\n", "a mail", "attached"),
    "invoice.xml": (b'<?xml version="1.0"?><Invoice>', "XML", "CSV"),
}


@pytest.mark.parametrize("name", list(THROWN))
def test_what_a_newcomer_throws_is_named_by_what_it_is(tmp_path: Path, name: str) -> None:
    """By its magic, its name or its heading; where a source would have taken nothing from it in silence, too."""
    content, is_, says = THROWN[name]
    path = tmp_path / name
    path.write_bytes(content)
    for source in ("tables", "prometheus", "slurm", "training-log"):
        said = throw(source, path)
        assert (is_ in said and says in said) or f"import {source}" in says or "`loadfactor " in said, (source, said)
        assert "\n" not in said


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
    path.write_text('dynamo_frontend_requests_total{model="k"} 10\n')
    assert "Dynamo" in throw("serving", path)
    assert "this is" not in throw("serving", path)
