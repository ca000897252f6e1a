"""Where the files come from that each source was tested with: docs/sources.md shows them, and a test looks for each by its name."""

from typing import Final

ORIGINS: Final[dict[str, tuple[str, ...]]] = {
    "nvidia-smi": (
        "utkuozdemir/nvidia_gpu_exporter (drivers 590 to 610: H100, RTX 2080 Super, RTX 4080 Super)",
        "influxdata/telegraf (XML of schemas 10 to 12: A100, A10G, T4, RTX and Quadro)",
        "a public report of driver 550 (`-q` as text)",
    ),
    "amd-smi": (
        "AMD SMI 26.2 (MI355X, watched as CSV)",
        "henrygd/beszel#737 (Radeon Pro W7700, JSON)",
        "ROCm/rocm-systems#2720 (watched as JSON)",
    ),
    "rocm-smi": (
        "Telegraf's samples (MI100 of ROCm 5.7, Vega 10 and 20)",
        "marimo-team/marimo#9237 (Radeon RX 7900 XT, CSV)",
        "sebhildebrandt/systeminformation#960 (ROCm 6.2, Radeon 780M)",
        "wandb/wandb#5449 (ROCm 5, MI250)",
    ),
    "xpu-smi": (
        "intel/xpumanager#98 (Max 1550 of Aurora)",
        "intel/xpumanager#76 (Arc A770)",
        "henrygd/beszel#755 (Arc A310)",
    ),
    "hl-smi": (
        "Intel's documentation of hl-smi (Gaudi 2)",
        "2maz/slurm-monitor (HL-205, 1.18)",
        "tests of a Go program's parseHLSMICSV (HL-325L of driver 1.24)",
    ),
    "neuron-monitor": (
        "neuron-monitor-prometheus.py (Inferentia)",
        "aws-neuron documentation, v2.29 (Inferentia 2)",
    ),
    "npu-smi": (
        "Ascend documentation of 2026 (Atlas A3)",
        "a tutorial of the Atlas 200I DK A2 (davinci-mini)",
        "MindIE-PyMotor (its tests: three columns)",
    ),
    "dcgm": (
        "run-ai/fake-gpu-operator (A100 with and without MIG, shared GPUs)",
        "DataDog/integrations-core (T4)",
        "a guide to scaling GPUs of EKS by DCGM (Tesla K80: empty labels of pods)",
    ),
    "dcgmi": (
        "NVIDIA/DCGM (the code that prints it)",
        "DCGM 3.3.9 on Azure's NC40ads_H100_v5",
        "ahb-sjsu/agi-hpc (NRP's Nautilus: wide columns, units)",
        "jtonini/nomad-hpc (RTX 6000 Ada: no units, headings again)",
    ),
    "serving": (
        "DataDog/integrations-core (vLLM)",
        "vllm-project/vllm (V1: names of today)",
        "SGLang's documentation (ranks apart)",
        "text-generation-inference (histograms)",
    ),
    "gateway": (
        "BerriAI/litellm#1575 (January 2024)",
        "ponti-studios/toolbox (costlens' export of OpenRouter)",
        "envoyproxy/ai-gateway#1148 (the log of `aigw run`)",
        "A row of LiteLLM_SpendLogs (its schema of 2025)",
    ),
    "cloudwatch": ("opentelemetry-proto 1.0.0 and 0.7.0", "Amazon's documentation of metric streams"),
    "ec2": ("moto's EC2", "Amazon's documentation of describe-instance-types"),
    "gce": ("Google's documentation of instances.list", "gcloud compute instances describe (four T4)"),
    "gcp-monitoring": ("Google's documentation of timeSeries.list",),
    "kubernetes": (
        "davidB/kubectl-view-allocations#258 (H100 under MIG)",
        "NVIDIA/k8s-device-plugin#1501 (eight H100)",
        "ROCm's, AWS', Google's, Huawei's and Intel's device plugins",
    ),
    "slurm": (
        "influxdata/telegraf (slurmrestd)",
        "scontrol on Jean Zay (2023)",
        "scontrol of Slurm 21.08 in Aalborg",
        "pytorch/torchx (sacct of heterogeneous jobs)",
    ),
    "training-log": (
        "bigscience-workshop/bigscience (Megatron-DeepSpeed, Transformers)",
        "KellerJordan/modded-nanogpt",
        "NVIDIA/Megatron-LM (golden values)",
        "notes on verl on AutoDL (Ray)",
        "a run of OpenRLHF on ROCm",
    ),
    "focus": (
        "FOCUS-Sample-Data (AWS, Microsoft, Oracle)",
        "FOCUS_Spec's examples",
        "Oracle's FOCUS reports",
        "Microsoft's FinOps toolkit (Alibaba's columns)",
    ),
    "aws-cur": (
        "finopsfoundation/focus_converters (legacy)",
        "tests of finops-cur.ts (a Data Export of chosen columns)",
        "AWS' dictionary of CUR 2.0 (split cost allocation, maps)",
    ),
    "azure-cost": (
        "finopsfoundation/focus_converters (Enterprise)",
        "opencost/opencost (headers of two agreements, virtual machines)",
        "Microsoft's documentation of cost exports",
    ),
    "gcp-billing": (
        "Google's documentation of billing exports",
        "Voormedia's estimate of emissions (BigQuery's console, 2024, euros)",
    ),
    "runpod": (
        "docs.runpod.io/api-reference/billing",
        "runpod_rest_v1_billing_records_envelope",
        "rest.runpod.io/v1/billing/endpoints",
    ),
    "vast": ("docs.vast.ai/api-reference/billing", "console.vast.ai/api/v0/charges (as it comes)"),
    "modal": (
        "modal.com/docs/reference/cli/billing",
        "workspace_billing_report (Python)",
        "modal billing report --show-resources",
    ),
    "prometheus": (
        "nvidia_gpu_exporter's and node-exporter's pages",
        "Prometheus' answer to an instant query",
        "DataDog/integrations-core (vLLM's page)",
    ),
    "alibaba-genai": ("alibaba/clusterdata, cluster-trace-v2026-GenAI",),
    "alibaba-openb": ("alibaba/clusterdata, cluster-trace-gpu-v2023",),
}
FEWER: Final = {
    "cloudwatch": "accounts' metric streams are not published: code that reads `nvidia_smi_utilization_gpu` has the names alone",
    "gcp-billing": "fewer are public: rows of accounts' exports are not published, but for one in a report",
    "neuron-monitor": "fewer are public: reports show what its exporter makes of it",
    "ec2": "accounts' answers are not published with GPUs: tests of others make them up as these do",
    "gce": "others of the same two forms were found, full and short addresses",
    "gcp-monitoring": "ten programs that ask for agent.googleapis.com/gpu/utilization were read, none with an answer",
    "vast": "ten programs that ask for /api/v0/charges were read, all with the fields of the documentation",
    "tables": "our own format",
    "prices": "our own format; of price sheets Microsoft's documentation alone",
    "progress": "our own format",
    "alibaba-genai": "one published trace",
    "alibaba-openb": "one published trace",
}
"""Sources with fewer than three origins, and why: what was sought in November 2026, in public repositories and documents."""
