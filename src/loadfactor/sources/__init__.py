"""Every kind of input of `loadfactor import`, listed in `SOURCES`: decoders, and readers of the files they are given."""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, cast

from loadfactor.base.errors import InputError, no_such

if TYPE_CHECKING:
    from loadfactor.sources.base import Source


@dataclass(frozen=True)
class SourceEntry:
    """A kind of input: its name, the module of this package whose `SOURCE` reads it, and what docs/sources.md says of it."""

    name: str
    module: str
    reads: str  # in one line
    formats: str
    seen: str  # versions of what wrote the files of its tests
    gives: str
    lacks: str
    record: str  # the command, or what to take
    page: str = ""  # of docs/, where it has one


SOURCES = (
    SourceEntry(
        "nvidia-smi",
        "nvidia_smi",
        "logs of nvidia-smi: --query-gpu with --format=csv, dmon, -q -x or -q",
        formats="CSV of any fields in any order; `dmon`; XML and text of `-q`; sessions that mix them",
        seen="drivers up to 610; XML of schemas 10 to 12",
        gives="how busy, memory, power, clock, temperature, reasons of throttling, PCIe",
        lacks="SM and tensor activity; MIG instances; who held a GPU (`--job`)",
        record="`nvidia-smi "
        "--query-gpu=timestamp,uuid,name,utilization.gpu,memory.used,memory.total,power.draw --format=csv -l 30`",
        page="import-nvidia-smi",
    ),
    SourceEntry(
        "amd-smi",
        "device_tools.amd_smi",
        "AMD's GPUs: what amd-smi metric or monitor printed, as CSV or JSON",
        formats="CSV of `metric` and `monitor`, watched or once; JSON documents up to 64 MiB",
        seen="AMD SMI 26.2 (ROCm 7.2), MI355X",
        gives="how busy (gfx activity), memory, socket power, clock, temperature",
        lacks="the model, its UUID, matrix activity, partitions apart, who held a GPU (`--job`)",
        record="`amd-smi metric --usage --power --clock --temperature --mem-usage --watch 30 --csv`",
    ),
    SourceEntry(
        "rocm-smi",
        "device_tools.rocm_smi",
        "AMD's GPUs: what rocm-smi printed as JSON or CSV; it has no times (--at)",
        formats="JSON, one document a call; CSV, also in several blocks",
        seen="ROCm 5.7 and 6.2, and older names of columns; Vega, MI100, MI300X",
        gives="how busy, memory, power, clock, temperature; the model and unique id",
        lacks="times: `--at`, and `--step` for further calls; power of a secondary die; matrix activity; who held a GPU (`--job`)",
        record="amd-smi, which writes times; else `rocm-smi --showuniqueid --showproductname --showuse "
        "--showmeminfo vram --showpower --json`",
    ),
    SourceEntry(
        "xpu-smi",
        "device_tools.xpu_smi",
        "Intel's GPUs: what xpu-smi dump or xpumcli dump printed",
        formats="CSV of `dump` with `--date`, or with times of day (`--at` says the day)",
        seen="xpu-smi 1.2 and 1.3; Max 1100 and 1550",
        gives="how busy, EU arrays' activity as SM activity, bandwidth of memory, memory used, power, clock, temperature",
        lacks="the model and its memory; tiles (record without `-t`); who held a GPU (`--job`)",
        record="`xpu-smi dump -d -1 -m 0,1,2,3,17,18,31 -i 30 --date`",
    ),
    SourceEntry(
        "hl-smi",
        "device_tools.hl_smi",
        "Intel's Gaudi: what hl-smi -Q … -f csv printed",
        formats="CSV with its heading, with units or `nounits`",
        seen="1.18; Gaudi and Gaudi 2",
        gives="how busy, memory, power, temperature, the model",
        lacks="clock; activity of matrix engines; who held a device (`--job`)",
        record="`hl-smi -Q timestamp,index,uuid,name,utilization.aip,memory.used,memory.total,power.draw -f csv -l 30`",
    ),
    SourceEntry(
        "neuron-monitor",
        "device_tools.neuron_monitor",
        "AWS's Trainium and Inferentia: reports of neuron-monitor (JSON)",
        formats="a report a line",
        seen="reports of trn1 and inf2 instances",
        gives="how busy each chip is, the mean of its cores; memory used, and in all where the report says it; the model",
        lacks="power, clock, temperature; logical cores of two (Trainium2 with LNC 2), which name no chip; "
        "times, unless they are added: `--at`",
        record="`neuron-monitor | jq -c '. + {timestamp: now}' >> neuron.json`",
    ),
    SourceEntry(
        "npu-smi",
        "device_tools.npu_smi",
        "Huawei's Ascend: what npu-smi info watch printed (--at, --step)",
        formats="the table of `info watch`",
        seen="tables with and without chips; 310 and 910B",
        gives="how busy (AI Core), bandwidth of memory, power, temperature",
        lacks="times; the model; memory in bytes; who held a processor (`--job`)",
        record="`npu-smi info watch -d 30`",
    ),
    SourceEntry(
        "dcgm",
        "dcgm",
        "saved scrapes of dcgm-exporter, which are Prometheus text",
        formats="one scrape a file, or many after each other; Prometheus text or OpenMetrics",
        seen="both sets of names: `DCGM_FI_DEV_…` with and without units",
        gives="all of a GPU: SM and tensor activity, memory, power, NVLink, errors, MIG instances, pods and "
        "Slurm jobs that held it",
        lacks="profiled fields unless its list names them; times, where lines have none: `--at`, `--step`",
        record="`curl -s http://NODE:9400/metrics > node-1.prom`",
        page="import-dcgm",
    ),
    SourceEntry(
        "dcgmi",
        "device_tools.dcgmi",
        "NVIDIA's GPUs: what dcgmi dmon printed; it has no times (--at, --step)",
        formats="the table of `dcgmi dmon -e …`, with or without its lines of units",
        seen="DCGM 3 and 4; A100, H100, RTX 6000 Ada",
        gives="how busy, SM, tensor, FP32 and memory activity, occupancy, memory, power, clock, temperature, PCIe (1009,"
        " 1010), NVLink (1011, 1012), why the clock was low (112), model (50) and UUID (54)",
        lacks="times; instances of MIG; who held a GPU (`--job`)",
        record="`dcgmi dmon -e 50,54,203,1001,1002,1003,1004,1005,252,250,155,150,100 -d 10000`",
        page="import-dcgm",
    ),
    SourceEntry(
        "serving",
        "serving_engines",
        "saved /metrics of vLLM, SGLang, TGI, Triton with TensorRT-LLM, trtllm-serve, NIM, llama.cpp: tokens and requests",
        formats="one page a file, or many after each other",
        seen="each engine's names before and after they changed (the page below has them)",
        gives="tokens of prompts and answers, cached tokens, requests, seconds of running and waiting",
        lacks="GPUs; what was made before the first page: one page alone adds nothing; routers and gateways, "
        "which tell the same again",
        record="`date -u +'# %FT%TZ'; curl -s http://NODE:8000/metrics`",
        page="import-serving",
    ),
    SourceEntry(
        "gateway",
        "gateways",
        "logs of gateways (LiteLLM, Envoy AI Gateway, OpenRouter): who used which served model, CSV or JSON",
        formats="lines of JSON, one JSON document or CSV: LiteLLM's spend logs and payload, access logs of Envoy AI Gateway; "
        "OpenRouter's generations and sums of days",
        seen="of documentation: LiteLLM's schema and payload, Envoy AI Gateway (2025), OpenRouter's columns (2025, 2026)",
        gives="tokens of each request by tenant, API key (its name or its hash), user, feature and model",
        lacks="the job that served it (`--job`, else the model's name); cached tokens where the gateway does not log them",
        record="`curl -s 'http://PROXY:4000/spend/logs?start_date=2026-10-01&end_date=2026-10-31&summarize=false'` with an "
        "administrator's key; Envoy's access log as JSON",
        page="who-used-served-models",
    ),
    SourceEntry(
        "cloudwatch",
        "clouds.cloudwatch",
        "CloudWatch: files of metric streams (JSON or OTLP), and saved answers of get-metric-data with their queries",
        formats="metric streams as JSON, OpenTelemetry 0.7 and 1.0; JSON of get-metric-data with its queries; `s3://…`",
        seen="CloudWatch agent and Container Insights",
        gives="how busy, memory, power, clock, temperature, each a mean of a minute",
        lacks="SM and tensor activity; statistics other than the average; Parquet",
        record="`jq -s '.[0] * .[1]' queries.json answer.json > saved.json`",
        page="connect-clouds",
    ),
    SourceEntry(
        "ec2",
        "clouds.ec2",
        "EC2: saved answers of describe-instances and -instance-types, of spot requests and prices (JSON)",
        formats="JSON",
        seen="AWS CLI 2",
        gives="which GPUs there are and since when, tags, prices of spot instances, what Amazon took away",
        lacks="what GPUs did; instances that ended over an hour before",
        record="`aws ec2 describe-instances --output json > instances.json`",
        page="connect-clouds",
    ),
    SourceEntry(
        "gce",
        "clouds.gce",
        "Compute Engine: what `gcloud compute instances list --format json` printed, and of operations that took some away",
        formats="JSON",
        seen="gcloud's lists of instances and operations",
        gives="which GPUs there are and since when, labels, spot instances that were taken away",
        lacks="what GPUs did; prices",
        record="`gcloud compute instances list --format json > instances.json`",
        page="connect-clouds",
    ),
    SourceEntry(
        "gcp-monitoring",
        "clouds.monitoring",
        "Cloud Monitoring: saved answers of ListTimeSeries (JSON)",
        formats="JSON of `projects.timeSeries.list`, a page or several",
        seen="Ops Agent, GKE, DCGM on GKE",
        gives="how busy, memory, who held it; on GKE also TPUs, by `duty_cycle` and `memory_used`",
        lacks="`tensorcore_utilization`; of GKE's duty cycle 50 s of every minute",
        record="the JSON that projects.timeSeries.list answers",
        page="connect-clouds",
    ),
    SourceEntry(
        "kubernetes",
        "kubernetes",
        "objects of Kubernetes: what `kubectl get pods,nodes,jobs,workloads -A -o json` printed",
        formats="lists, objects, several documents, events of `--watch`",
        seen="core v1, Kueue v1beta1 and v1beta2, resource.k8s.io v1",
        gives="who holds GPUs, who waits and why, nodes and their GPUs, quotas, claims",
        lacks="what GPUs did; pods that were deleted before",
        record="`kubectl get nodes,pods,replicasets,deployments,jobs -A -o json > cluster.json`",
        page="connect-kubernetes",
    ),
    SourceEntry(
        "slurm",
        "slurm",
        "what Slurm writes: `sacct -P`, scontrol show job and node, squeue -o, sinfo -o, JSON of these and of slurmrestd",
        formats="sacct with any delimiter, keys and values, scontrol, tables of squeue and sinfo, JSON (from v0.0.37), Slurm-web",
        seen="22.05 and later; slurmrestd v0.0.37 and later",
        gives="who held GPUs and waited, models of GPUs, nodes, their GPUs and whether these are out of use, jobstats' summaries",
        lacks="what GPUs did; which of a node's GPUs (scontrol show job -d says it of running jobs)",
        record="`sacct --allusers --parsable2 --duplicates --array --format …`, with the fields of the page below",
        page="import-slurm",
    ),
    SourceEntry(
        "training-log",
        "training_logs",
        "logs of one training job (--job): Megatron, DeepSpeed, verl, torchtitan, Hugging Face, TensorBoard, W&B, MLflow, CSV",
        formats="text, JSON, CSV, event files, W&B's and MLflow's folders",
        seen="those of docs/import-training-logs.md",
        gives="steps, samples, tokens, FLOPs, what was lost, times of checkpoints and evaluations",
        lacks="GPUs; what no line says; times, where the log has none: `--start`",
        record="the log that training writes anyway, whole",
        page="import-training-logs",
    ),
    SourceEntry(
        "tables",
        "own_tables",
        "your own data: CSV or Parquet in the tables that `loadfactor tables` prints",
        formats="CSV, gzipped CSV, Parquet",
        seen="this version's tables",
        gives="whatever its columns hold: devices, samples, allocations, prices, …",
        lacks="nothing but what is not in it",
        record="`loadfactor tables`",
        page="bring-your-own-data",
    ),
    SourceEntry(
        "prices",
        "price_lists",
        "a dated price list: CSV, TOML, JSON or Parquet in the columns of the prices table; price sheets of Azure",
        formats="CSV, TOML, JSON, Parquet; Azure's price sheets as CSV, also with semicolons and decimal commas",
        seen="this version's table; price sheets of Enterprise and Customer Agreements, by Microsoft's schema of 2023-05-01",
        gives="what a GPU-hour costs, by model, pool and time",
        lacks="charges: import bills for these; of a price sheet what spot, reservations, savings plans and Windows cost",
        record="`loadfactor tables prices`",
        page="price-owned-gpus",
    ),
    SourceEntry(
        "focus",
        "billing.focus",
        "bills in FOCUS 1.0 to 1.4, whoever exports them: CSV, gzipped, Parquet, or a folder of parts",
        formats="CSV (commas or semicolons), gzipped CSV, lines of JSON, Parquet, `s3://…`",
        seen="FOCUS 1.0 to 1.4: AWS, Microsoft, Oracle (its own names), Alibaba (of documentation), the specification's examples",
        gives="charges, exact: billed, effective, list and contracted cost, tags, commitments",
        lacks="GPUs; what an export leaves empty",
        record="the provider's FOCUS export",
        page="import-bills",
    ),
    SourceEntry(
        "aws-cur",
        "billing.aws_cur",
        "AWS Cost and Usage Reports: legacy and CUR 2.0",
        formats="CSV, gzipped CSV, Parquet, `s3://…`",
        seen="legacy and 2.0 (Data Exports)",
        gives="charges, savings plans and reservations amortized",
        lacks="GPUs",
        record="a Data Export of CUR 2.0 with resource ids",
        page="import-bills",
    ),
    SourceEntry(
        "azure-cost",
        "billing.azure_cost",
        "Azure cost exports: Enterprise, Customer Agreement, pay-as-you-go; actual and amortized",
        formats="CSV, gzipped CSV, Parquet",
        seen="the headers that Microsoft documents for each kind of agreement",
        gives="charges, actual and amortized",
        lacks="GPUs",
        record="two exports of Cost Management, actual and amortized",
        page="import-bills",
    ),
    SourceEntry(
        "gcp-billing",
        "billing.gcp_billing",
        "Google Cloud's billing export, standard or detailed: Parquet, CSV or lines of JSON",
        formats="Parquet, lines of JSON, a JSON array, CSV, `bigquery://…`",
        seen="standard and detailed",
        gives="charges, discounts, promotions, labels",
        lacks="GPUs; which usage the fee of a commitment pays for",
        record="the billing export to BigQuery, detailed",
        page="import-bills",
    ),
    SourceEntry(
        "runpod",
        "billing.runpod",
        "RunPod's billing records: what its API and `runpodctl billing` answer (JSON)",
        formats="what the API answers, a JSON array, lines of JSON, CSV of the same names",
        seen="of documentation: REST v1 (docs.runpod.io/api-reference/billing)",
        gives="charges in US dollars, a pod, endpoint or volume and interval each",
        lacks="how long an interval is: the distance of the nearest two counts, else a day; tags",
        record="`runpodctl billing pods --bucket-size hour --grouping podId > pods.json`",
        page="import-bills",
    ),
    SourceEntry(
        "vast",
        "billing.vast",
        "Vast.ai's charges: what its API answers (JSON)",
        formats="what the API answers, lines of JSON, a JSON array",
        seen="of documentation: API v0 (docs.vast.ai/api-reference/billing/show-charges)",
        gives="charges in US dollars, an instance, volume or endpoint and span each, with its label",
        lacks="payments and credits, which are invoices there",
        record="`curl -s -H \"Authorization: Bearer $VAST_API_KEY\" 'https://console.vast.ai/api/v0/charges/?select_filters=…' "
        "> charges.json`, each page",
        page="import-bills",
    ),
    SourceEntry(
        "modal",
        "billing.modal",
        "Modal's billing report of a workspace: JSON or CSV",
        formats="a JSON array, CSV",
        seen="of documentation: modal.com/docs/reference/cli/billing",
        gives="charges in US dollars, an app and day or hour each, with its tags",
        lacks="which GPUs an app had",
        record="`modal billing report --for 'last month' --resolution h --tag-names team,project --json > report.json`",
        page="import-bills",
    ),
    SourceEntry(
        "prometheus",
        "prometheus.query_answers",
        "a Prometheus-compatible server, by its URL, its saved answers (JSON) or pages of exporters: GPUs, nodes, pods, engines",
        formats="a URL; JSON of `query`, `query_range` and VictoriaMetrics' `export`; pages of exporters as text, with their times",
        seen="Prometheus, VictoriaMetrics; exporters of NVIDIA and AMD, Telegraf, jobstats, Omnistat, node-exporter, "
        "kube-state-metrics 2",
        gives="what the exporters behind it send; nodes and serving engines; from what was saved of kube-state-metrics who held "
        "GPUs, which nodes have some and when these were down",
        lacks="series that are not understood: they are counted by name; times of pages: `--at`, `--step`; pods by the URL",
        record="`loadfactor import prometheus http://HOST:9090 --last 30d`; `curl -s http://NODE:9100/metrics`",
        page="collect-live",
    ),
    SourceEntry(
        "progress",
        "progress_records",
        "what training loops wrote with `loadfactor.track`: a folder of their files",
        formats="lines of JSON, a file a process",
        seen="this version's records",
        gives="steps, tokens, FLOPs, sections, what was lost",
        lacks="GPUs",
        record="import loadfactor.track in the training loop",
        page="track-training",
    ),
    SourceEntry(
        "alibaba-genai",
        "public_traces.alibaba_genai",
        "Alibaba's published trace cluster-trace-v2026-GenAI: the folder with duty cycles, memory and requests",
        formats="CSV",
        seen="cluster-trace-v2026-GenAI",
        gives="how busy, memory, requests",
        lacks="power, prices",
        record="the published trace",
    ),
    SourceEntry(
        "alibaba-openb",
        "public_traces.alibaba_openb",
        "Alibaba's published trace cluster-trace-gpu-v2023: the folder with the lists of nodes and pods",
        formats="CSV",
        seen="cluster-trace-gpu-v2023",
        gives="GPUs, who held and waited for them",
        lacks="what GPUs did",
        record="the published trace",
    ),
)
"""Read without importing any decoder: the help of `loadfactor import` prints it."""


NOT_READ = (
    ("tpu-info", "a table for people, without times", "`gcp-monitoring`: GKE's duty_cycle and memory_used of TPUs"),
    (
        "nvidia-smi pmon",
        "processes by PID without their users, which no scheduler knows",
        "`nvidia-smi`, with `--job` or a scheduler's list",
    ),
    (
        "kube-state-metrics",
        "an exporter",
        "`prometheus`: its pages, saved as text, and answers of a Prometheus that scrapes it",
    ),
    (
        "node-exporter",
        "an exporter",
        "`prometheus`: its pages, saved as text, and answers of a Prometheus that scrapes it",
    ),
    ("squeue", "a command of Slurm", "`slurm`: what squeue, sacct, scontrol, sinfo and slurmrestd print"),
    ("sacct", "a command of Slurm", "`slurm`: what squeue, sacct, scontrol, sinfo and slurmrestd print"),
    ("kubectl", "a command of Kubernetes", "`kubernetes`: what `kubectl get … -o json` prints"),
    ("npu-smi info", "a table for people, without times", "`npu-smi`: what `npu-smi info watch` prints"),
    ("xpu-smi stats", "a table for people, without times", "`xpu-smi`: what `xpu-smi dump --date` prints"),
    ("neuron-top", "a screen for people", "`neuron-monitor`"),
    (
        "coreweave",
        "a FOCUS export that has quantities and no costs yet (docs.coreweave.com/billing/focus-export-api)",
        "`prices`, with what your contract says, and `focus` once the export has BilledCost",
    ),
    (
        "lambda",
        "an invoice whose format nobody publishes",
        "`focus`: its lines as CSV with BilledCost, EffectiveCost, ChargePeriodStart, ChargePeriodEnd, BillingCurrency",
    ),
    ("perfetto", "a capture of a profiler", "nothing: `loadfactor diagnose` says what to convert it to"),
    ("nsys-rep", "a capture of Nsight Systems", "nothing: `loadfactor diagnose` says what to convert it to"),
)
"""What people try, why it is no source, and what to import instead."""


def find_source(name: str) -> "Source":
    """The source called `name`, its decoder imported; its refusals name what a file is. InputError names the nearest one."""
    for entry in SOURCES:
        if entry.name == name:
            from loadfactor.sources.recognition import name_others  # which needs the readers of files

            return name_others(cast("Source", import_module(f"loadfactor.sources.{entry.module}").SOURCE))
    for other, what, instead in NOT_READ:
        if name == other:
            raise InputError(f"{name} is {what}, and no source of its own; import {instead}")
    raise no_such("source", name, (entry.name for entry in SOURCES))
