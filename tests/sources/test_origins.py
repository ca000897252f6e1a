# ruff: noqa: E501 - lines of files as tools write them
"""Each reader has files from at least three origins where so many are public: the table of them, and files of further origins.

A file here has the shape that its origin has (the text of the case says where), typed anew; figures are our own unless they show a
trap. What is asserted are sums, so that a reader that misses a row, a unit or a column fails.
"""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from loadfactor.sources import SOURCES, find_source
from loadfactor.sources.base import ReadOptions, Rows
from loadfactor.sources.origins import FEWER, ORIGINS

AT_MS = int(datetime(2026, 10, 1, tzinfo=UTC).timestamp() * 1000)
MIB = 2**20


@dataclass(frozen=True)
class Case:
    """A file of one origin, and the sums of columns by table; a table alone stands for its rows."""

    source: str
    origin: str
    """Where the shape was seen; its part before a bracket is in the table of origins."""
    text: str
    sums: dict[str, float]
    name: str = "node-7.log"
    options: dict[str, Any] = field(default_factory=dict)


def node(name: str, capacity: dict[str, str], **labels: str) -> dict[str, Any]:
    """A node of Kubernetes; labels with dots and slashes are given as a mapping."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "creationTimestamp": "2026-09-01T00:00:00Z", "labels": labels},
        "status": {
            "capacity": {"cpu": "16", "pods": "110", **capacity},
            "allocatable": capacity,
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-09-01T00:00:00Z"}],
        },
    }


def pod(name: str, on: str, resource: str, units: str) -> dict[str, Any]:
    """A pod of Kubernetes that runs since the midnight of the cases."""
    bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-10-01T00:00:00Z"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns", "uid": name, "creationTimestamp": "2026-10-01T00:00:00Z"},
        "spec": {"nodeName": on, "containers": [{"name": "main", "resources": {"limits": {resource: units}}}]},
        "status": {"phase": "Running", "startTime": "2026-10-01T00:00:00Z", "conditions": [bound]},
    }


def listed(*items: dict[str, Any]) -> str:
    """What `kubectl get -o json` prints of these objects."""
    return json.dumps(
        {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items}, indent=4
    )


def neuron(runtimes: list[dict[str, float]], kind: str, chips: int, cores: int) -> str:
    """A report of neuron-monitor: of each runtime how busy its cores are."""
    return (
        json.dumps(
            {
                "neuron_runtime_data": [
                    {
                        "pid": 20843 + number,
                        "neuron_runtime_tag": "1",
                        "error": "",
                        "report": {
                            "neuroncore_counters": {
                                "period": 5.0007,
                                "neuroncores_in_use": {c: {"neuroncore_utilization": v} for c, v in used.items()},
                                "error": "",
                            },
                            "neuron_runtime_vcpu_usage": {
                                "period": 5.0,
                                "vcpu_usage": {},
                                "error": "open /proc/1/stat: no such",
                            },
                        },
                    }
                    for number, used in enumerate(runtimes)
                ],
                "system_data": {"vcpu_usage": {"period": 4.99}},
                "instance_info": {"instance_id": "i-0", "instance_type": kind, "error": ""},
                "neuron_hardware_info": {
                    "neuron_device_count": chips,
                    "neuroncore_per_device_count": cores,
                    "error": "",
                },
            }
        )
        + "\n"
    )


AT = {"at_ms": AT_MS}
EVERY_SECOND = {"at_ms": AT_MS, "step_s": 1.0}
RUN = {"held_by": "run", "begun_ms": AT_MS}
DASHES = "GPU 0     N/A          N/A          N/A\n"
CASES = (
    Case(
        "amd-smi",
        "henrygd/beszel#737 (Radeon Pro W7700: a list of JSON, codecs as objects)",
        '[\n    {\n        "gpu": 0,\n        "usage": {\n            "gfx_activity": {"value": 42, "unit": "%"},\n'
        '            "vcn_activity": [{"value": 0, "unit": "%"}, "N/A"]\n        }\n    }\n]\n',
        {"samples": 1, "busy_share": 0.42},
        options=AT,
    ),
    Case(
        "amd-smi",
        "ROCm/rocm-systems#2720 (watched as JSON: a line for people first, a list a reading, with its time)",
        "'CTRL' + 'C' to stop watching output:\n"
        + "".join(
            f'[\n    {{\n        "timestamp": {AT_MS // 1000 + second},\n        "gpu": 0,\n        "usage": "N/A",\n'
            f'        "power": {{"socket_power": {{"value": {30 + second}, "unit": "W"}}, "throttle_status": "N/A"}}\n    }}\n]\n'
            for second in (1, 2)
        ),
        {"samples": 2, "power_w": 63},
    ),
    Case(
        "rocm-smi",
        "marimo-team/marimo#9237 (Radeon RX 7900 XT as CSV)",
        "device,GPU use (%),VRAM Total Memory (B),VRAM Total Used Memory (B),Card Series,Card Model,Card Vendor,Card SKU,GFX Version\n"
        "card0,25,21458059264,27856896,Radeon RX 7900 XT,0x744c,Advanced Micro Devices Inc. [AMD/ATI],D70401XT,gfx1100\n",
        {"samples": 1, "busy_share": 0.25, "mem_used_bytes": 27856896},
        options=AT,
    ),
    Case(
        "rocm-smi",
        "sebhildebrandt/systeminformation#960 (ROCm 6.2, Radeon 780M: another name of the model and of power)",
        '{"card0": {"Device Name": "Phoenix3", "Unique ID": "N/A", "Temperature (Sensor edge) (C)": "31.0",'
        ' "sclk clock speed:": "(800Mhz)", "Current Socket Graphics Package Power (W)": "7.222", "GPU use (%)": "19",'
        ' "GPU Memory Allocated (VRAM%)": "87"}}',
        {"samples": 1, "busy_share": 0.19, "power_w": 7.222, "sm_clock_hz": 8e8, "accelerator=Phoenix3": 1},
        options=AT,
    ),
    Case(
        "rocm-smi",
        "wandb/wandb#5449 (ROCm 5, MI250: series before model, counters beside shares)",
        '{"card0": {"Unique ID": "0x8f3d", "Average Graphics Package Power (W)": "128.0", "GPU use (%)": "100",'
        ' "GFX Activity": "1141796410", "Card series": "AMD INSTINCT MI200 (MCM) OAM", "Card model": "FirePro W4300"},'
        ' "card1": {"Average Graphics Package Power (W)": "N/A (Secondary die)", "GPU use (%)": "3"}}',
        {"samples": 2, "busy_share": 1.03, "power_w": 128, "accelerator=AMD INSTINCT MI200 (MCM) OAM": 1},
        options=AT,
    ),
    Case(
        "xpu-smi",
        "intel/xpumanager#98 (Aurora, Max 1550: utilization N/A, temperature of memory too)",
        "Timestamp, DeviceId, GPU Utilization (%), GPU Power (W), GPU Frequency (MHz), GPU Core Temperature (Celsius Degree),"
        " GPU Memory Temperature (Celsius Degree), GPU Memory Utilization (%)\n"
        "08:08:16.817,    0,  N/A, 281.13, 1600.00, 35.50, 31.50,  N/A\n08:08:16.817,    1,  N/A, 286.48, 1600.00, 38.50, 35.00,  N/A\n"
        "08:08:17.817,    0,  N/A, 293.78, 1600.00, 35.50, 32.00, 20.41\n",
        {"samples": 3, "power_w": 861.39, "sm_clock_hz": 4.8e9, "temperature_c": 109.5, "busy_share": 0},
        options=AT,
    ),
    Case(
        "xpu-smi",
        "henrygd/beszel#755 (Arc A310: a clock without decimals)",
        "Timestamp, DeviceId, GPU Power (W), GPU Frequency (MHz), GPU Memory Utilization (%), GPU Memory Used (MiB)\n"
        "15:44:36.481,    0, 15.97, 2450, 2.03, 82.44\n15:44:37.481,    0, 15.47, 2450, 2.03, 82.44\n",
        {"samples": 2, "power_w": 31.44, "mem_used_bytes": 2 * 82.44 * MIB, "sm_clock_hz": 4.9e9},
        options=AT,
    ),
    Case(
        "xpu-smi",
        "intel/xpumanager#76 (four Arc A770 of a workstation, engines in another column)",
        "Timestamp, DeviceId, GPU Utilization (%), GPU Memory Utilization (%), GPU Memory Used (MiB), 3D Engine (%)\n"
        "14:15:20.490,    0,  N/A, 0.10, 17.52,  N/A\n14:15:20.490,    2,  12.5, 0.30, 49.21,  N/A\n",
        {"samples": 2, "busy_share": 0.125, "mem_used_bytes": 66.73 * MIB},
        options=AT,
    ),
    Case(
        "hl-smi",
        "2maz/slurm-monitor (HL-205, hl-1.18.0: `nounits`, units in the heading alone)",
        "name, uuid, power.draw [W], temperature.aip [C], utilization.aip [%], memory.used [MiB], memory.total [MiB]\n"
        "HL-205, 00P1-HL2000A1-14-P64X00-16-07-11, 102, 29, 14, 512, 32768\n"
        "HL-205, 00P1-HL2000A1-14-P64W98-10-03-11, 103, 32, 15, 512, 32768\n",
        {"samples": 2, "busy_share": 0.29, "power_w": 205, "mem_total_bytes": 65536 * MIB},
        options=AT,
    ),
    Case(
        "hl-smi",
        "tests of a Go program's parseHLSMICSV (HL-325L of driver 1.24: indices and modules in another order, no utilization)",
        "index, name, bus_id, driver_version, uuid, module_id, memory.total [MiB], memory.free [MiB], memory.used [MiB]\n"
        "0, HL-325L, 0000:3b:00.0, 1.24.1-b336d5e, 01P4-HL3090A0-18-UAN071-12-03-01, 1, 131072 MiB, 130400 MiB, 672 MiB\n"
        "1, HL-325L, 0000:4c:00.0, 1.24.1-b336d5e, 01P4-HL3090A0-18-UAN071-05-08-05, 3, 131072 MiB, 130400 MiB, 672 MiB\n",
        {"samples": 2, "mem_used_bytes": 1344 * MIB, "accelerator=gaudi3": 2},
        options=AT,
    ),
    Case(
        "neuron-monitor",
        "neuron-monitor-prometheus.py (its sample of an Inferentia: four runtimes that each list all cores, with errors beside)",
        neuron([{str(c): 8.0 if c == r else 0 for c in range(4)} for r in range(4)], "inf1.xlarge", 1, 4),
        {"samples": 1, "busy_share": 0.08},
        options=EVERY_SECOND,
    ),
    Case(
        "neuron-monitor",
        "aws-neuron documentation, v2.29 (an instance without a runtime: idle, and no zero of what was not read)",
        neuron([], "inf2.48xlarge", 12, 2),
        {"samples": 12, "busy_share": 0, "accelerator=inferentia2": 12},
        options=EVERY_SECOND,
    ),
    Case(
        "npu-smi",
        "Ascend documentation of 2026 (Atlas A3: no chips, NPU and cube utilization behind)",
        "NpuID(Idx)  Pwr(W)      Temp(C)     AI Core(%)  AI Cpu(%)   Ctrl Cpu(%) Memory(%)   Memory BW(%)   NPU Util(%)    AI Cube(%)\n"
        "0           290.4       51          0           0           16          3           0              0              0           \n"
        "1           292.1       49          7           0           4           3           2              11             5           \n",
        {"samples": 2, "busy_share": 0.07, "power_w": 582.5, "dram_active_share": 0.02},
        options=AT,
    ),
    Case(
        "npu-smi",
        "a tutorial of the Atlas 200I DK A2 (davinci-mini: the prompt of the shell first)",
        "(base) root@davinci-mini:~# npu-smi info watch\n"
        "NpuID(Idx)  ChipId(Idx) Pwr(W)      Temp(C)     AI Core(%)  AI Cpu(%)   Ctrl Cpu(%) Memory(%)   Memory BW(%)\n"
        "0           0           8.7         55          0           2           64          71          7           \n"
        "0           0           8.7         56          25          2           67          71          7           \n",
        {"samples": 2, "busy_share": 0.25, "power_w": 17.4},
        options=EVERY_SECOND,
    ),
    Case(
        "npu-smi",
        "MindIE-PyMotor (its tests: three columns, names with single blanks)",
        "NpuID  ChipID  AI Core(%)\n0  0  37\n0  1  38\n",
        {"samples": 2, "busy_share": 0.75},
        options=AT,
    ),
    Case(
        "dcgmi",
        "DCGM 3.3.9 on Azure's NC40ads_H100_v5 (profiling fields are N/A in the first reading)",
        "#Entity   GRACT        SMACT        DRAMA        \nID                                               \n"
        f"{DASHES}GPU 0     0.500        0.250        0.125        \n",
        {"samples": 2, "engine_active_share": 0.5, "sm_active_share": 0.25, "dram_active_share": 0.125},
        options=EVERY_SECOND,
    ),
    Case(
        "dcgmi",
        "ahb-sjsu/agi-hpc (NRP's Nautilus: wide columns, units below the heading, NVLink's errors between)",
        "#Entity   GPUTL             MCUTL             POWER             TMPTR        ESVTL        EDVTL        FBUSD             \n"
        "ID                                             W                 C                                                       \n"
        "GPU 0     75                42                185.300           68           0            0            28456             \n",
        {"samples": 1, "busy_share": 0.75, "power_w": 185.3, "temperature_c": 68, "mem_used_bytes": 28456 * MIB},
        options=AT,
    ),
    Case(
        "dcgmi",
        "jtonini/nomad-hpc (RTX 6000 Ada: GPUs in falling order, headings that come again, no units)",
        "# worker=3\n#Entity   GRACT        SMACT        TENSO        DRAMA\nGPU 2     0.984        0.930        0.000        0.252\n"
        "GPU 1     1.000        0.926        0.038        0.869\n#Entity   GRACT        SMACT        TENSO        DRAMA\n"
        "GPU 2     0.016        0.070        0.002        0.048\nGPU-I 0   0.500        0.500        0.500        0.500\n",
        {"samples": 3, "engine_active_share": 2.0, "sm_active_share": 1.926, "tensor_active_share": 0.04},
        options=EVERY_SECOND,
    ),
    Case(
        "dcgmi",
        "NVIDIA/DCGM (dcgm_fields.cpp and DeviceMonitor.cpp: other fields; a model with blanks, and one that is cut)",
        "#Entity   DVNAM                       UUID#                                         PCITX       PCIRX       NVLTX       NVLRX       DVCCTR    \n"
        "ID                                                                                                                              \n"
        "GPU 0     NVIDIA H100 80GB HBM3       GPU-74f7fe3b-48f2-6d8b-3cb4-e70426fb6690      1500000     250000      3000000     1000000     4         \n"
        "GPU 1     NVIDIA RTX 6000 Ada Gen...  GPU-74f7fe3b-48f2-6d8b-3cb4-e70426fb6691      N/A         N/A         0           N/A         0         \n",
        {
            "samples": 2,
            "accelerator=h100-sxm": 1,
            "pcie_tx_bytes_per_s": 1.5e6,
            "pcie_rx_bytes_per_s": 2.5e5,
            "nvlink_bytes_per_s": 4e6,
            "throttle_mask": 4,
        },
        options=AT,
    ),
    Case(
        "gateway",
        "BerriAI/litellm#1575 (January 2024: tokens in `usage`, no columns of their own)",
        '[{"request_id":"chatcmpl-6d","call_type":"acompletion","api_key":"51**","spend":7.25e-05,"startTime":"2024-01-18T18:07:54.071000Z",'
        '"endTime":"2024-01-18T18:07:55.510000Z","model":"cohere.command-text-v14","user":"u","modelParameters":{},"messages":[],'
        '"usage":{"total_tokens":38,"prompt_tokens":7,"completion_tokens":31},"metadata":{"headers":{"host":"0.0.0.0:8000"}}}]',
        {"served_requests": 1, "prompt_tokens": 7, "output_tokens": 31},
        name="spend.json",
    ),
    Case(
        "gateway",
        "ponti-studios/toolbox (costlens' export of OpenRouter, March 2026: no generation ids)",
        "cost_total,cost_cache,tokens_prompt,tokens_completion,provider_name,model_permaslug,app_name,created_at\n"
        "0.01,0.0,100,200,openai,gpt-4-turbo,vscode,2026-03-30 02:37:51.271\n"
        "0.02,-0.005,150,250,anthropic,claude-3-opus,cursor,2026-03-30 03:37:51.271\n",
        {"served_requests": 2, "prompt_tokens": 250, "output_tokens": 450},
        name="activity.csv",
    ),
    Case(
        "gateway",
        "envoyproxy/ai-gateway#1148 (the log of `aigw run`: numbers as texts, dashes, reasoning tokens since #2438)",
        '{"start_time":"2026-10-01T00:00:00.000Z","method":"POST","x-envoy-origin-path":"/v1/chat/completions","response_code":"200",'
        '"duration":"950","x-request-id":"r1","gen_ai.request.model":"qwen3","gen_ai.response.model":"qwen3-8b",'
        '"gen_ai.usage.input_tokens":"21","gen_ai.usage.output_tokens":"9","gen_ai.usage.reasoning_tokens":"4","session.id":"-"}\n',
        {"served_requests": 1, "prompt_tokens": 21, "output_tokens": 9},
        name="access.log",
    ),
    Case(
        "kubernetes",
        "davidB/kubectl-view-allocations#258 (H100 cut `all-balanced`: no unit of nvidia.com/gpu, seven slices)",
        listed(
            node(
                "n1",
                {
                    "nvidia.com/gpu": "0",
                    "nvidia.com/mig-1g.12gb": "2",
                    "nvidia.com/mig-2g.24gb": "1",
                    "nvidia.com/mig-3g.47gb": "1",
                },
            ),
            pod("p", "n1", "nvidia.com/mig-3g.47gb", "1"),
        ),
        {"devices": 1, "allocations": 1, "share": 3 / 7, "said: part that they requested": 1},
        name="cluster.json",
        options=AT,
    ),
    Case(
        "kubernetes",
        "NVIDIA/k8s-device-plugin#1501 (eight H100, the label counts them while MIG is on)",
        listed(
            node(
                "n1",
                {"nvidia.com/mig-1g.10gb": "56"},
                **{
                    "nvidia.com/gpu.count": "8",
                    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
                    "nvidia.com/gpu.replicas": "1",
                },
            ),
            pod("p", "n1", "nvidia.com/mig-1g.10gb", "7"),
        ),
        {"devices": 8, "accelerator=h100-sxm": 8, "gpus": 7, "share": 1 / 7, "said: part that they requested": 1},
        name="cluster.json",
        options=AT,
    ),
    Case(
        "kubernetes",
        "ROCm's, AWS', Google's, Huawei's and Intel's device plugins (one node each)",
        listed(
            node("amd", {"amd.com/gpu": "8"}, **{"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}),
            node(
                "aws",
                {"aws.amazon.com/neuron": "16", "aws.amazon.com/neuroncore": "32", "aws.amazon.com/neurondevice": "16"},
            ),
            node("tpu", {"google.com/tpu": "4"}, **{"cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice"}),
            node("npu", {"huawei.com/Ascend910": "8"}),
            node("xe", {"gpu.intel.com/xe": "2", "gpu.intel.com/xe_monitoring": "2"}),
            pod("a", "amd", "amd.com/gpu", "2"),
            pod("b", "aws", "aws.amazon.com/neuroncore", "4"),
            pod("c", "tpu", "google.com/tpu", "4"),
            pod("d", "npu", "huawei.com/Ascend910", "1"),
        ),
        {"devices": 38, "accelerator=mi300x": 8, "accelerator=tpu-v5e": 4, "gpus": 11, "share": 0.5},
        name="cluster.json",
        options=AT,
    ),
    Case(
        "runpod",
        "runpod_rest_v1_billing_records_envelope (records with sums behind them)",
        '{"records":[{"amount":0.5,"podId":"p","time":"2026-10-01T00:00:00Z","timeBilledMs":1000},'
        '{"amount":0.25,"podId":"p","time":"2026-10-04T00:00:00Z","timeBilledMs":1000}],"metadata":{"recordCount":2}}',
        {"charges": 2, "BilledCost": 0.75, "days": 2},
        name="pods.json",
    ),
    Case(
        "runpod",
        "rest.runpod.io/v1/billing/endpoints (serverless: no pods, a disk in another spelling)",
        '[{"time":"2026-10-01T00:00:00Z","endpointId":"endpoint-abc","amount":0.0049,"timeBilledMs":1000,"diskSpaceBilledGB":0}]',
        {"charges": 1, "BilledCost": 0.0049, "days": 1},
        name="endpoints.json",
    ),
    Case(
        "vast",
        "console.vast.ai/api/v0/charges (an answer as it comes, one page of two)",
        '{"success":true,"count":2,"total":3,"results":[{"start":1790812800,"end":1790899200,"type":"instance","source":"instance-312",'
        '"amount":2.5,"items":[],"metadata":{"label":"train"}},{"start":1790812800,"end":1790899200,"type":"volume","source":"volume-7",'
        '"amount":0.5,"items":[]}],"next_token":"abc"}\n',
        {"charges": 2, "BilledCost": 3.0, "days": 2, "said: further page": 1},
        name="charges.json",
    ),
    Case(
        "modal",
        "workspace_billing_report (Python: `environment`, times without a zone, days without a row)",
        '[{"object_id":"ap-1","environment":"dev","description":"serving","interval_start":"2026-09-15T00:00:00","cost":"0.23026748"},'
        '{"object_id":"ap-2","environment":"dev","description":"serving","interval_start":"2026-09-21T00:00:00","cost":"0.22239952"}]',
        {"charges": 2, "BilledCost": 0.452667, "days": 2},
        name="report.json",
    ),
    Case(
        "modal",
        "modal billing report --show-resources (a row a resource)",
        '[{"object_id":"ap-1","description":"run","environment":"main","interval_start":"2026-08-08T04:00:00","resource":"CPU","cost":"1.25"},'
        '{"object_id":"ap-1","description":"run","environment":"main","interval_start":"2026-08-08T04:00:00","resource":"Memory","cost":"0.5"},'
        '{"object_id":"ap-1","description":"run","environment":"main","interval_start":"2026-08-08T05:00:00","resource":"CPU","cost":"0.25"}]',
        {"charges": 3, "BilledCost": 2.0, "days": 3 / 24},
        name="report.json",
    ),
    Case(
        "gcp-billing",
        "Voormedia's estimate of emissions (May 2024, EUR, as BigQuery's console shows it: times with a space and UTC, objects that are empty)",
        json.dumps(
            [
                {
                    "billing_account_id": "01A",
                    "service": {"id": "95FF", "description": "Cloud Storage"},
                    "sku": {"id": "E5F0", "description": "Standard Storage"},
                    "usage_start_time": "2024-05-12 15:00:00.000000 UTC",
                    "usage_end_time": "2024-05-12 16:00:00.000000 UTC",
                    "project": {"id": "p", "ancestors": []},
                    "labels": [],
                    "location": {"location": "us", "region": None},
                    "export_time": "2024-05-13 01:49:02.981774 UTC",
                    "cost": 0.012434,
                    "currency": "EUR",
                    "currency_conversion_rate": 0.93364999999987552,
                    "credits": [],
                    "invoice": {"month": "202405"},
                    "usage": {"amount": 204816252928000, "unit": "byte-seconds"},
                    "cost_type": "regular",
                    "adjustment_info": {},
                }
            ],
            indent=2,
        ),
        {"charges": 1, "BilledCost": 0.012434, "days": 1 / 24},
        name="bq.json",
    ),
    Case(
        "gcp-billing",
        "Google's documentation of billing exports (a query for some columns: no end of usage, no invoice, credits without a type, a tax)",
        '[{"service":{"description":"Compute Engine"},"usage_start_time":"2026-06-01T00:00:00Z","project":{"id":"a"},"labels":[],'
        '"cost":100.0,"currency":"USD","cost_type":"regular","usage":{"amount":2105.26},"credits":[{"name":"CUD","amount":-30.0}]},'
        '{"service":{"description":"Tax"},"usage_start_time":"2026-06-01T00:00:00Z","project":{"id":"b"},"labels":[],"cost":8.5,'
        '"currency":"USD","cost_type":"tax","usage":{},"credits":[]}]',
        {"charges": 3, "BilledCost": 78.5},
        name="bq.json",
    ),
    Case(
        "aws-cur",
        "tests of finops-cur.ts (a Data Export of chosen columns: no period, no end, no amount of use)",
        "line_item_id,line_item_usage_account_id,product_servicecode,line_item_line_item_type,line_item_usage_start_date,"
        "line_item_unblended_cost,line_item_currency_code\na-1,111122223333,AmazonEC2,Usage,2026-10-01T00:00:00Z,1.00,USD\n"
        "a-2,111122223333,AmazonEC2,Tax,2026-10-01T00:00:00Z,0.19,USD\n",
        {"charges": 2, "BilledCost": 1.19},
        name="export.csv",
    ),
    Case(
        "aws-cur",
        "AWS' dictionary of CUR 2.0 (split cost allocation: pods of EKS beside their instance, whose charge counts once)",
        "bill_billing_period_start_date,bill_payer_account_id,line_item_usage_account_id,line_item_usage_start_date,line_item_product_code,"
        "line_item_line_item_type,line_item_resource_id,line_item_usage_amount,line_item_unblended_cost,resource_tags,"
        "split_line_item_split_usage,split_line_item_split_cost,split_line_item_unused_cost,split_line_item_parent_resource_id\n"
        '2026-10-01 00:00:00,1,2,2026-10-02 00:00:00,AmazonEC2,Usage,i-1,1,32.77,"{""user_team"":""nlp""}",,,,\n'
        '2026-10-01 00:00:00,1,2,2026-10-02 00:00:00,AmazonEKS,Usage,arn:pod/p,1,0,"{""aws_eks_namespace"":""ns""}",0.5,16.0,0.385,i-1\n',
        {"charges": 2, "BilledCost": 32.77, "said: AWS split": 1},
        name="export.csv",
        options={"currency": "USD"},
    ),
    Case(
        "training-log",
        "notes on verl on AutoDL (Ray: lines of the task's runner between bars)",
        "(TaskRunner pid=3165) step:71 - global_seqlen/min:69484 - timing_s/gen:14.07 - timing_s/update_actor:22.2 - timing_s/step:56.9"
        " - perf/total_num_tokens:69484 - perf/throughput:1220.4\n"
        "Training Progress:  16%|█████▌      | 71/435 [1:10:40<6:31:06, 64.47s/it]\n"
        "(TaskRunner pid=3165) step:72 - global_seqlen/min:67965 - timing_s/gen:13.0 - timing_s/step:55.0 - perf/total_num_tokens:67965\n",
        {"step": 2, "train_token": 137449, "job_sections": 2},
        name="verl.log",
        options=RUN,
    ),
    Case(
        "training-log",
        "a run of OpenRLHF on ROCm (a step whose time is not logged)",
        "✨ Global step 1: {'reward': 0.4499, 'rollout/num_samples': 16.0, 'timing/generation': 2.97, 'timing/step_total': 12.19}\n"
        "✨ Global step 2: {'reward': 0.6182, 'rollout/num_samples': 16.0}\n"
        "✨ Global step 3: {'reward': 0.4096, 'rollout/num_samples': 8.0, 'timing/step_total': 11.0}\n",
        {"step": 3, "train_sample": 40},
        name="rlhf.log",
        options=RUN,
    ),
    Case(
        "dcgm",
        "a guide to scaling GPUs of EKS by DCGM (Tesla K80: labels of pods that are empty: nobody holds it)",
        "".join(
            f'DCGM_FI_DEV_GPU_UTIL{{gpu="{gpu}",UUID="GPU-74f7fe3b-48f2-6d8b-3cb4-e70426fb669{gpu}",device="nvidia{gpu}",modelName="Tesla K80",'
            f'Hostname="dcgm-exporter-cmhft",container="",namespace="",pod=""}} {50 * gpu}\n'
            for gpu in (0, 1)
        ),
        {"samples": 2, "busy_share": 0.5, "accelerator=Tesla K80": 2, "allocations": 0},
        options=AT,
    ),
    Case(
        "dcgm",
        "a guide to scaling GPUs of EKS by DCGM (Tesla K80: two pods on one GPU that time slices divide: equal parts, which is said)",
        "".join(
            f'DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="GPU-74f7fe3b-48f2-6d8b-3cb4-e70426fb6690",namespace="ns",pod="{pod}"}} 50 {AT_MS + 30_000 * at}\n'
            for at in (0, 1)
            for pod in "ab"
        ),
        {"samples": 2, "allocations": 2, "share": 1.0, "said: an equal part of it each": 2},
        options=AT,
    ),
    Case(
        "serving",
        "SGLang's documentation (ranks of data parallelism apart, cached tokens by where they were, numbers as 5e+2)",
        "".join(
            f"# 2026-10-01T00:0{minute}:00Z\n"
            f'sglang:prompt_tokens_total{{model_name="q",engine_type="unified",tp_rank="0",dp_rank="0"}} {300 + 100 * minute}\n'
            f'sglang:prompt_tokens_total{{model_name="q",engine_type="unified",tp_rank="0",dp_rank="1"}} {200 + 50 * minute}\n'
            f'sglang:cached_tokens_total{{model_name="q",cache_source="device",dp_rank="0"}} {40 + 20 * minute}\n'
            f'sglang:cached_tokens_total{{model_name="q",cache_source="host",dp_rank="0"}} {5 + 10 * minute}\n'
            f'sglang:generation_tokens_total{{model_name="q",tp_rank="0",dp_rank="0"}} {5 + 4 * minute}e+2\n'
            for minute in (0, 1)
        ),
        {"prompt_token": 150, "cached_prompt_token": 30, "output_token": 400},
        name="sglang-0.prom",
        options={"held_by": "chat"},
    ),
    Case(
        "serving",
        "vllm-project/vllm (loggers.py of V1: engines of data parallelism, times of creation, renamed histograms and gauges)",
        "".join(
            f"# 2026-10-01T00:0{minute}:00Z\n"
            + "".join(
                f'vllm:num_requests_running{{engine="{engine}",model_name="q"}} {2 + engine}\n'
                f'vllm:kv_cache_usage_perc{{engine="{engine}",model_name="q"}} 0.5\n'
                f'vllm:prefix_cache_queries_total{{engine="{engine}",model_name="q"}} {900 * minute}\n'
                f'vllm:prefix_cache_hits_total{{engine="{engine}",model_name="q"}} {64 * minute}\n'
                f'vllm:prompt_tokens_total{{engine="{engine}",model_name="q"}} {1000 + 400 * minute}\n'
                f'vllm:prompt_tokens_created{{engine="{engine}",model_name="q"}} 1.79e+09\n'
                f'vllm:request_prompt_tokens_sum{{engine="{engine}",model_name="q"}} {7000 * minute}\n'
                f'vllm:generation_tokens_total{{engine="{engine}",model_name="q"}} {50 * (engine + 1) * minute}\n'
                f'vllm:inter_token_latency_seconds_count{{engine="{engine}",model_name="q"}} {9 * minute}\n'
                + "".join(
                    f'vllm:request_success_total{{engine="{engine}",finished_reason="{why}",model_name="q"}} {2 * minute}\n'
                    for why in ("stop", "length", "abort", "error", "repetition")
                )
                for engine in (0, 1)
            )
            for minute in (0, 1)
        ),
        {"prompt_token": 800, "cached_prompt_token": 128, "output_token": 150, "request": 12, "running_request_s": 300},
        name="vllm-0.prom",
        options={"held_by": "chat"},
    ),
    Case(
        "serving",
        "text-generation-inference (histograms with their buckets, requests by method since 2.0)",
        "".join(
            f"# 2026-10-01T00:0{minute}:00Z\ntgi_queue_size 0\n"
            f'tgi_request_success{{method="generate"}} {100 + 20 * minute}\ntgi_request_generated_tokens_bucket{{le="10"}} {20 + minute}\n'
            f"tgi_request_generated_tokens_sum {25000 + 1000 * minute}\ntgi_request_generated_tokens_count {100 + 20 * minute}\n"
            f"tgi_request_input_length_sum {5000 + 700 * minute}\ntgi_request_input_length_count {100 + 20 * minute}\n"
            for minute in (0, 1)
        ),
        {"prompt_token": 700, "output_token": 1000},
        name="tgi.prom",
        options={"held_by": "chat"},
    ),
    Case(
        "gce",
        "gcloud compute instances describe (one object: paths in short, Pacific time, four T4 beside an N1)",
        json.dumps(
            {
                "creationTimestamp": "2026-09-30T16:00:00.000-07:00",
                "lastStartTimestamp": "2026-09-30T17:00:00.000-07:00",
                "guestAccelerators": [
                    {
                        "acceleratorCount": 4,
                        "acceleratorType": "projects/v/zones/us-central1-a/acceleratorTypes/nvidia-tesla-t4",
                    }
                ],
                "id": "1",
                "kind": "compute#instance",
                "machineType": "projects/v/zones/us-central1-a/machineTypes/n1-standard-32",
                "name": "t4x4",
                "scheduling": {"preemptible": False},
                "status": "RUNNING",
                "zone": "projects/v/zones/us-central1-a",
            },
            indent=2,
        ),
        {"devices": 4, "accelerator=t4": 4, "gpus": 4},
        name="vm.json",
        options={"at_ms": AT_MS + 3_600_000},
    ),
    Case(
        "slurm",
        "scontrol on Jean Zay (2023: TresPerNode as gres:gpu:4, cores that are hyperthreads, a feature instead of a model)",
        "JobId=1201 JobName=jupyterhub_slurm\n   UserId=ann(302113) GroupId=g(300002) MCS_label=N/A\n"
        "   JobState=COMPLETED Reason=None Dependency=(null)\n   RunTime=08:00:00 TimeLimit=08:00:00 TimeMin=N/A\n"
        "   SubmitTime=2026-10-01T00:45:25 EligibleTime=2026-10-01T00:45:25\n"
        "   StartTime=2026-10-01T00:45:35 EndTime=2026-10-01T08:45:35 Deadline=N/A\n   Partition=gpu_p13 AllocNode:Sid=login:500994\n"
        "   NodeList=r13i5n0\n   ReqTRES=cpu=32,mem=128G,node=1,billing=40,gres/gpu=4\n"
        "   AllocTRES=cpu=64,mem=128G,node=1,billing=40,gres/gpu=4\n   Features=v100-16g DelayBoot=00:00:00\n   Power=\n"
        "   TresPerNode=gres:gpu:4\n",
        {"allocations": 1, "gpus": 4, "hours": 8},
        name="job.txt",
    ),
    Case(
        "slurm",
        "scontrol of Slurm 21.08 in Aalborg (a node with GPUs of no type, a blank after keys)",
        "NodeName=a256-t4-01.srv.aau.dk Arch=x86_64 CoresPerSocket=16 \n   Gres=gpu:6\n   NodeHostName=a256-t4-01.srv.aau.dk Version=21.08.0\n"
        "   State=IDLE ThreadsPerCore=2 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A\n   Partitions=batch,prioritized \n"
        "   BootTime=2022-01-04T10:56:32 SlurmdStartTime=2022-01-04T10:58:45\n   CfgTRES=cpu=64,mem=244603M,billing=64,gres/gpu=6\n   AllocTRES=\n",
        {"devices": 6},
        name="node.txt",
        options=AT,
    ),
    Case(
        "slurm",
        "pytorch/torchx (sacct -P of a heterogeneous job: 1853+0, steps without an account; and an array that is cut)",
        "JobID|JobIDRaw|State|Start|End|AllocTRES|NodeList|User\n"
        "1853+0|1853|COMPLETED|2026-10-01T00:00:00|2026-10-01T01:00:00|billing=8,cpu=8,gres/gpu:a100=4,gres/gpu=4,node=1|n1|ann\n"
        "1853+0.batch|1853.batch|COMPLETED|2026-10-01T00:00:00|2026-10-01T01:00:00|cpu=8,gres/gpu=4|n1|\n"
        "1853+1|1854|COMPLETED|2026-10-01T00:00:00|2026-10-01T01:00:00|cpu=8,gres/gpu=2,node=1|n2|ann\n"
        "90_[5-9%2]|90|PENDING|Unknown|Unknown||None assigned|bob\n"
        "90_2|92|CANCELLED by 1001|2026-10-01T00:00:00|2026-10-01T00:15:00|cpu=1,gres/gpu=1|n3|bob\n"
        "95|95|COMPLETED|2026-10-01T00:00:00|2026-10-01T01:00:00|cpu=1,gres/gpu:a100_3g.20gb=1,gres/gpu=1|n4|eve\n",
        {"allocations": 4, "gpus": 8, "gpu_hours": 7.25, "share": 3 / 7, "said: the part that they requested": 1},
        name="sacct.txt",
    ),
    Case(
        "prometheus",
        "Prometheus' answer to an instant query (Telegraf's and dcgm-exporter's series beside each other, times with fractions)",
        json.dumps(
            {
                "status": "success",
                "data": {
                    "resultType": "vector",
                    "result": [
                        {
                            "metric": {
                                "__name__": "nvidia_smi_utilization_gpu",
                                "host": "h",
                                "index": "0",
                                "name": "NVIDIA A10G",
                                "uuid": "GPU-1",
                            },
                            "value": [AT_MS / 1000, "37"],
                        },
                        {
                            "metric": {"__name__": "DCGM_FI_DEV_POWER_USAGE", "gpu": "0", "UUID": "GPU-2"},
                            "value": [AT_MS / 1000 + 0.123, "71.5"],
                        },
                    ],
                },
            }
        ),
        {"samples": 2, "busy_share": 0.37, "power_w": 71.5, "accelerator=a10g": 1},
        name="answer.json",
    ),
)


def read_sums(case: Case, path: Path) -> dict[str, float]:
    """What the reader makes of a case: rows by table, and sums by column, by unit of work, by model and by what gaps say."""
    path.write_text(case.text, encoding="utf-8")
    source = find_source(case.source)
    sums: dict[str, float] = dict.fromkeys(case.sums, 0.0)
    for item in source.read(source.files((path,)), ReadOptions(**{"timezone": UTC, **case.options})):
        if not isinstance(item, Rows):
            for said in (name for name in sums if name.startswith("said: ") and name[6:] in item.what):
                sums[said] += item.count
            continue
        for row in item.data.to_pylist():
            row["hours"] = ((row.get("to_utc") or 0) - (row.get("from_utc") or 0)) / 3_600_000
            row["gpu_hours"] = row["hours"] * (row.get("gpus") or 0)
            row["days"] = ((row.get("ChargePeriodEnd") or 0) - (row.get("ChargePeriodStart") or 0)) / 86_400_000
            found = {
                item.table: 1,
                row.get("unit"): row.get("amount"),
                f"accelerator={row.get('accelerator')}": 1,
                **row,
            }
            for name in sums.keys() & found.keys():
                sums[name] += float(found[name] or 0)
    return sums


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.source}: {case.origin.partition(' (')[0]}")
def test_a_file_of_another_origin(tmp_path: Path, case: Case) -> None:
    """Every row counts once, in our units."""
    assert read_sums(case, tmp_path / case.name) == pytest.approx(case.sums, rel=1e-12)


def test_each_reader_has_files_of_three_origins_where_so_many_are_public() -> None:
    """By the table that docs/sources.md shows; each origin is named where its file is tested, and where there are fewer it says why."""
    texts = [path.read_text(encoding="utf-8") for path in Path(__file__).parent.rglob("*.py")]
    names = {entry.name for entry in SOURCES}
    assert (ORIGINS | FEWER).keys() == names
    for name in names:
        origins = [origin.partition(" (")[0] for origin in ORIGINS.get(name, ())]
        assert (len(origins) >= 3) is (name not in FEWER), f"{name} has {len(origins)} origins"
        for origin in origins:
            assert any(origin in text for text in texts), f"no test names {origin}, an origin of {name}"
    tested = {(case.source, case.origin.partition(" (")[0]) for case in CASES}
    declared = {(name, origin.partition(" (")[0]) for name, origins in ORIGINS.items() for origin in origins}
    assert tested <= declared, sorted(tested - declared)
