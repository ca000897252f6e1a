"""Every kind of input of `loadfactor import`, listed in `SOURCES`: decoders, and readers of the files they are given."""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, cast

from loadfactor.base.errors import no_such

if TYPE_CHECKING:
    from loadfactor.sources.base import Source


@dataclass(frozen=True)
class SourceEntry:
    """A kind of input: its name, the module of this package whose `SOURCE` reads it, and what it reads in one line."""

    name: str
    module: str
    reads: str


SOURCES = (
    SourceEntry("nvidia-smi", "nvidia_smi", "logs of nvidia-smi: --query-gpu with --format=csv, dmon, or -q -x"),
    SourceEntry(
        "amd-smi", "device_tools.amd_smi", "AMD's GPUs: what amd-smi metric or monitor printed, as CSV or JSON"
    ),
    SourceEntry(
        "rocm-smi", "device_tools.rocm_smi", "AMD's GPUs: what rocm-smi printed as JSON or CSV; it has no times (--at)"
    ),
    SourceEntry("xpu-smi", "device_tools.xpu_smi", "Intel's GPUs: what xpu-smi dump or xpumcli dump printed"),
    SourceEntry("hl-smi", "device_tools.hl_smi", "Intel's Gaudi: what hl-smi -Q … -f csv printed"),
    SourceEntry(
        "neuron-monitor",
        "device_tools.neuron_monitor",
        "AWS's Trainium and Inferentia: reports of neuron-monitor (JSON)",
    ),
    SourceEntry("npu-smi", "device_tools.npu_smi", "Huawei's Ascend: what npu-smi info watch printed (--at, --step)"),
    SourceEntry("dcgm", "dcgm", "saved scrapes of dcgm-exporter, which are Prometheus text"),
    SourceEntry(
        "serving",
        "serving_engines",
        "saved /metrics of vLLM, SGLang, TGI, Triton with TensorRT-LLM, trtllm-serve, NIM, llama.cpp: tokens and requests",
    ),
    SourceEntry(
        "cloudwatch",
        "clouds.cloudwatch",
        "CloudWatch: files of metric streams (JSON or OTLP), and saved answers of get-metric-data with their queries",
    ),
    SourceEntry(
        "ec2",
        "clouds.ec2",
        "EC2: saved answers of describe-instances and -instance-types, of spot requests and prices (JSON)",
    ),
    SourceEntry(
        "gce",
        "clouds.gce",
        "Compute Engine: what `gcloud compute instances list --format json` printed, and of operations that took some away",
    ),
    SourceEntry("gcp-monitoring", "clouds.monitoring", "Cloud Monitoring: saved answers of ListTimeSeries (JSON)"),
    SourceEntry(
        "kubernetes",
        "kubernetes",
        "objects of Kubernetes: what `kubectl get pods,nodes,jobs,workloads -A -o json` printed",
    ),
    SourceEntry(
        "slurm",
        "slurm",
        "what Slurm writes: `sacct -P`, scontrol show job and node, JSON of squeue, sacct, sinfo, slurmrestd",
    ),
    SourceEntry(
        "training-log",
        "training_logs",
        "logs of one training job (--job): Megatron, DeepSpeed, verl, torchtitan, Hugging Face, TensorBoard, W&B, MLflow, CSV",
    ),
    SourceEntry("tables", "own_tables", "your own data: CSV or Parquet in the tables that `loadfactor tables` prints"),
    SourceEntry(
        "prices", "price_list", "a dated price list: CSV, TOML, JSON or Parquet in the columns of the prices table"
    ),
    SourceEntry(
        "focus",
        "billing.focus",
        "bills in FOCUS 1.0 to 1.4, whoever exports them: CSV, gzipped, Parquet, or a folder of parts",
    ),
    SourceEntry("aws-cur", "billing.aws_cur", "AWS Cost and Usage Reports: legacy and CUR 2.0"),
    SourceEntry(
        "azure-cost",
        "billing.azure_cost",
        "Azure cost exports: Enterprise, Customer Agreement, pay-as-you-go; actual and amortized",
    ),
    SourceEntry(
        "gcp-billing",
        "billing.gcp_billing",
        "Google Cloud's billing export, standard or detailed: Parquet, CSV or lines of JSON",
    ),
    SourceEntry(
        "prometheus",
        "prometheus.query_answers",
        "a Prometheus-compatible server, by its URL, or its saved answers (JSON): GPUs, nodes and serving engines",
    ),
    SourceEntry(
        "progress", "progress_records", "what training loops wrote with `loadfactor.track`: a folder of their files"
    ),
    SourceEntry(
        "alibaba-genai",
        "public_traces.alibaba_genai",
        "Alibaba's published trace cluster-trace-v2026-GenAI: the folder with duty cycles, memory and requests",
    ),
    SourceEntry(
        "alibaba-openb",
        "public_traces.alibaba_openb",
        "Alibaba's published trace cluster-trace-gpu-v2023: the folder with the lists of nodes and pods",
    ),
)
"""Read without importing any decoder: the help of `loadfactor import` prints it."""


def find_source(name: str) -> "Source":
    """The source called `name`, its decoder imported. Raises InputError naming the nearest one."""
    for entry in SOURCES:
        if entry.name == name:
            return cast("Source", import_module(f"loadfactor.sources.{entry.module}").SOURCE)
    raise no_such("source", name, (entry.name for entry in SOURCES))
