"""What a file is, by how it begins, for the refusal of a source that cannot read it: one table for all of them."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import Gap, ReadOptions, Rows, Source
from loadfactor.sources.files import FileChunks
from loadfactor.sources.parsing.cells import quote

_LOOKED_AT_BYTES: Final = 4096
_IMPORT: Final = "`loadfactor import"
_SMI: Final = "nvidia-smi --query-gpu=timestamp,uuid,name,utilization.gpu,memory.used,power.draw --format=csv -l 30"
_SACCT: Final = f"save `sacct --parsable2 --duplicates --allusers`, and {_IMPORT} slurm`"
_AMD: Final = f"record `amd-smi metric --watch 30 --csv`, and {_IMPORT} amd-smi`"
_SCHEDULERS: Final = (
    f"no Slurm: write who held GPUs as allocations (`loadfactor tables allocations`), and {_IMPORT} tables`"
)
_TRACES: Final = (
    "record the GPUs with PyTorch's profiler, Nsight Systems or rocprofv3, and name it to `loadfactor diagnose`"
)
_AS_TEXT: Final = "save the text or the CSV that it shows"
_BY_NAME: Final = (
    (
        (".nsys-rep", ".qdrep", ".qdstrm"),
        "a report of Nsight Systems",
        "`nsys export --type sqlite FILE`, and `loadfactor diagnose FILE.sqlite`",
    ),
    ((".ncu-rep",), "a report of Nsight Compute, of kernels one by one", _TRACES),
    (
        (".perfetto-trace", ".pftrace", ".perfetto"),
        "a protobuf of Perfetto",
        "`traceconv json FILE trace.json`, and `loadfactor diagnose trace.json`",
    ),
    ((".xplane.pb",), "a profile of XLA", "`loadfactor diagnose` reads it"),
    ((".rocpd",), "a profile of rocprofv3", "`loadfactor diagnose` reads it"),
    ((".safetensors", ".ckpt"), "a model's weights", "it says nothing of what ran"),
)
"""Ends of names of files that only their own tools open, what they are, and what to do."""
_ZIP: Final = b"PK\x03\x04"
_ZIPPED: Final = (
    (
        b".nsys-rep",
        "a zip archive of reports of Nsight Systems",
        "unpack it, `nsys export --type sqlite FILE`, and `loadfactor diagnose`",
    ),
    (b"trace.json", "a zip archive of traces", "unpack it, and name them to `loadfactor diagnose`"),
    (b"data.pkl", "a checkpoint of PyTorch", "it says nothing of what ran"),
    (b".npy", "arrays of NumPy", "save them as CSV or Parquet in one of our tables (`loadfactor tables`)"),
    (b"mimetype", "a document of OpenDocument", "save it as CSV"),
    (b"[Content_Types]", "an Excel workbook or a document of Word", "save it as CSV"),
    (b"", "an Excel workbook or another zip archive", "save it as CSV, or unpack it"),
)
"""Names of files in the beginning of a zip archive, what it is then, and what to do."""
_BINARY: Final = (
    (b"%PDF", "a PDF", "export the same as CSV"),
    (b"\x89PNG", "a picture", "save the text or the CSV that it shows"),
    (b"\xff\xd8\xff", "a picture", "save the text or the CSV that it shows"),
    (b"GIF8", "a picture", _AS_TEXT),
    (b"RIFF", "a picture, a sound or a film", _AS_TEXT),
    (b"{\\rtf", "a text of a word processor", "save it as plain text or CSV"),
    (b"\xd4\xc3\xb2\xa1", "a capture of network packets", "it says nothing of GPUs"),
    (b"\x0a\x0d\x0d\x0a", "a capture of network packets", "it says nothing of GPUs"),
    (b"PERFILE2", "a profile of perf, of processors", _TRACES),
    (b"GGUF", "a model's weights", "it says nothing of what ran"),
    (b"\x93NUMPY", "an array of NumPy", "save it as CSV or Parquet in one of our tables (`loadfactor tables`)"),
    (b"\x80\x04\x95", "a pickle, which runs code when it is opened", "save it as CSV or Parquet"),
    (b"\x80\x05\x95", "a pickle, which runs code when it is opened", "save it as CSV or Parquet"),
    (b"ARROW1", "Arrow or Feather", "save it as Parquet (`df.to_parquet`)"),
    (b"\xff\xff\xff\xff", "a stream of Arrow", "save it as Parquet"),
    (b"ORC", "ORC", "save it as Parquet"),
    (b"Obj\x01", "Avro", "export it as Parquet or lines of JSON; BigQuery does either"),
    (b"\x89HDF", "HDF5", "save it as CSV or Parquet"),
    (b"\xba\xaa\xd7\x00", "a part of a Prometheus' own store", f"name its address: {_IMPORT} prometheus URL`"),
    (b"\x04\x22\x4d\x18", "packed with lz4", "unpack it (`lz4 -d FILE`) or pack it with gzip"),
    (b"\xff\x06\0\0sNaPpY", "packed with snappy", "unpack it, or pack it with gzip"),
    (b"\0\0\0\x01Bud1", "what macOS keeps of a folder", "name the other files"),
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook", "save it as CSV"),
    (
        b"SQLite format 3",
        "a database of SQLite",
        f"`loadfactor diagnose` reads those of Nsight Systems and rocprof, {_IMPORT} training-log FILE --job NAME` that of MLflow",
    ),
    (b"PAR1", "Parquet", f"{_IMPORT} tables` reads your own, and those of bills are `focus`, `aws-cur`, `gcp-billing`"),
    (b"\x7fELF", "a program", "name what it printed"),
    (b"\x28\xb5\x2f\xfd", "packed with zstd", "unpack it (`zstd -d FILE`) or pack it with gzip"),
    (b"\xfd7zXZ", "packed with xz", "unpack it (`xz -d FILE`) or pack it with gzip"),
    (b"7z\xbc\xaf", "packed with 7z", "unpack it"),
    (b"BZh", "packed with bzip2", "unpack it (`bzip2 -d FILE`) or pack it with gzip"),
    (
        b"NVR\0",
        "a report of Nsight Compute, of kernels one by one",
        "record with Nsight Systems, and name it to `loadfactor diagnose`",
    ),
)
_LOG_TIME: Final = re.compile(r"\[\s*\d+[.-]\d")
"""How a line of a log begins that has its time in brackets, as JSON does not."""
_TAR: Final = 257, b"ustar"
"""Where an archive of tar says what it is."""
_JSON: Final = (
    (("traceEvents",), "a trace of a profiler", "`loadfactor diagnose` reads it"),
    (("status", "resultType"), "an answer of Prometheus", f"{_IMPORT} prometheus`"),
    (("metric", "timestamps"), "an export of VictoriaMetrics", f"{_IMPORT} prometheus`"),
    (("apiVersion", "metadata"), "objects of Kubernetes", f"{_IMPORT} kubernetes`"),
    (("kind", "metadata"), "objects of Kubernetes", f"{_IMPORT} kubernetes`"),
    (("jobs", "meta"), "JSON of Slurm", f"{_IMPORT} slurm`"),
    (("Reservations",), "an answer of EC2", f"{_IMPORT} ec2`"),
    (("neuron_runtime_data",), "a report of neuron-monitor", f"{_IMPORT} neuron-monitor`"),
    (
        ("neuron_device", "nc_count"),
        "a list of devices from neuron-ls, which says nothing of what they do",
        f"record neuron-monitor, and {_IMPORT} neuron-monitor`",
    ),
    (
        ("query_time", "gpus"),
        "a snapshot of gpustat",
        f"record `{_SMI}`, and {_IMPORT} nvidia-smi`",
    ),
    (("device_name", "gpu_util"), "a snapshot of nvtop", f"record `{_SMI}`, and {_IMPORT} nvidia-smi`"),
    (("nbformat", "cells"), "a notebook of Jupyter", "save the table that it shows as CSV"),
    (
        ("hidden_size", "architectures"),
        "a configuration of a network",
        "`loadfactor plan train --network FILE` reads it",
    ),
    (
        ("zero_optimization",),
        "a configuration of DeepSpeed",
        f"the log that it made: {_IMPORT} training-log FILE --job NAME`",
    ),
    (
        ("terraform_version",),
        "a state of Terraform, which says what was made and not when it ran",
        "import bills, or `ec2` and `gce`",
    ),
    (
        ("request_throughput", "mean_ttft_ms"),
        "a result of vLLM's benchmark",
        "`loadfactor validate serve` compares such with the plan; of what was served save /metrics",
    ),
    (("HostConfig", "State"), "what docker inspect printed", f"record `{_SMI}`, and {_IMPORT} nvidia-smi` with --job"),
    (
        ("resourceMetrics",),
        "metrics of OpenTelemetry",
        f"send them to Prometheus, and {_IMPORT} prometheus URL`; of CloudWatch's streams {_IMPORT} cloudwatch`",
    ),
    (
        ("panels", "title"),
        "a dashboard of Grafana, which holds no data",
        f"{_IMPORT} prometheus URL` asks its data source",
    ),
    (
        ("_runtime", "_step"),
        "a summary of W&B, the last values alone",
        f"name the run's folder (`wandb/run-…`): {_IMPORT} training-log FOLDER --job NAME`",
    ),
    (("gen_ai.request.model",), "an access log of Envoy AI Gateway", f"{_IMPORT} gateway`"),
    (("timeSeries",), "an answer of Cloud Monitoring", f"{_IMPORT} gcp-monitoring`"),
    (("MetricDataResults",), "an answer of CloudWatch", f"{_IMPORT} cloudwatch`"),
    (("prompt_tokens", "model"), "a log of a gateway", f"{_IMPORT} gateway`"),
    (("log_history",), "a trainer's state of Hugging Face", f"{_IMPORT} training-log FILE --job NAME`"),
    (("timeBilledMs",), "billing records of RunPod", f"{_IMPORT} runpod`"),
    (("interval_start", "object_id"), "a billing report of Modal", f"{_IMPORT} modal`"),
    (
        ("gpuCost", "window"),
        "an allocation of OpenCost, which is worked out already",
        "import what its Prometheus has",
    ),
    (("error",), "an error that a server answered", "ask again where the answer is no error"),
)
"""Names that are in the beginning of JSON, what it is then, and what to do."""
_TEXT: Final = tuple(
    (re.compile(shape, re.IGNORECASE | re.MULTILINE), what, how)
    for shape, what, how in (
        (r"\A#Entity ", "what dcgmi dmon printed", f"{_IMPORT} dcgmi FILE --at TIME --step SECONDS`"),
        (
            r"\AGPU: \d+\s*\n +[A-Z]",
            "what amd-smi prints for people",
            _AMD,
        ),
        (
            r"ROCm System Management Interface",
            "what rocm-smi prints for people",
            _AMD,
        ),
        (r"\AGPU \d+: .*\(UUID: ", "a list of nvidia-smi -L, without times", f"record `{_SMI}`"),
        (r"\A\s*GPU0\s", "the topology of nvidia-smi, without times", f"record `{_SMI}`"),
        (r"\ASuccessfully ran diagnostic", "a diagnosis of dcgmi diag, without times", f"record `{_SMI}`"),
        (
            r"NCCL INFO ",
            "a log of NCCL, without steps",
            f"the log of training: {_IMPORT} training-log FILE --job NAME`",
        ),
        (r"\A# nThread \d+ nGpus", "a result of nccl-tests", "it measures links, and says nothing of jobs"),
        (
            r"\A,?(rank,)?idle_time",
            "a table of HolisticTraceAnalysis",
            "name the traces themselves to `loadfactor diagnose`",
        ),
        (r"\A#!.*sh\b", "a script", "name what it printed"),
        (r"\Asrun: job \d+", "what srun printed of one job", _SACCT),
        (
            r"\AJob ID: \d+\s*\nCluster: ",
            "what seff printed of one job",
            _SACCT,
        ),
        (
            r"\A-+\n\S+ Utilization ",
            "a report of sreport, of sums alone",
            _SACCT,
        ),
        (
            r"\A[^\n]*\bAccount\b[^\n]*\bShare\b",
            "a list of sacctmgr, without jobs",
            _SACCT,
        ),
        (r"\Agroups:\s*\n", "rules of alerts", f"the Prometheus that judges them: {_IMPORT} prometheus URL`"),
        (r"\A(compute_environment|replicaCount): ", "a configuration", "name what ran with it printed"),
        (
            r"\A\"Time\",",
            "a table that Grafana saved, whose columns have no units",
            f"its data source: {_IMPORT} prometheus URL`",
        ),
        (
            r"\A\"Step\",|\A[^\n]*__MIN\"",
            "a chart that W&B saved",
            f"name the run's folder (`wandb/run-…`): {_IMPORT} training-log FOLDER --job NAME`",
        ),
        (r"\A<\?xml ", "XML", "export the same as CSV or JSON"),
        (r"\A-----BEGIN ", "a key or a certificate, which nobody should read", "name another file"),
        (r"\A(From|Subject|Return-Path|Received): ", "a mail", "save what is attached to it"),
        (r"<nvidia_smi_log", "XML of nvidia-smi -q -x", f"{_IMPORT} nvidia-smi`"),
        (r"\A\s*<(!doctype )?html", "a web page", "download the file itself, with what it takes to log in"),
        (
            r"\A#\s*gpu\s+pid\s+type",
            "processes of nvidia-smi pmon, by PID",
            f"record `nvidia-smi dmon -s pum -o DT`, and {_IMPORT} nvidia-smi`",
        ),
        (r"\A#\s*(date\s+time\s+)?gpu\s+(pwr|sm|gtemp)", "a log of nvidia-smi dmon", f"{_IMPORT} nvidia-smi`"),
        (
            r"^\| NVIDIA-SMI ",
            "the table that nvidia-smi prints for people",
            f"record `{_SMI}`",
        ),
        (r"\A[^\n]*utilization\.gpu", "a log of nvidia-smi", f"{_IMPORT} nvidia-smi`"),
        (r"\A[^\n]*\bgfx(_activity)?\b[^\n]*,", "what amd-smi printed", f"{_IMPORT} amd-smi`"),
        (r"^DCGM_FI_", "a scrape of dcgm-exporter", f"{_IMPORT} dcgm`"),
        (
            r"^(ray_)?(vllm|sglang|trtllm|llamacpp)[:_]|^(nv_inference|tgi)_",
            "a page of a serving engine",
            f"{_IMPORT} serving`",
        ),
        (
            r"^# (HELP|TYPE) \w|^\w+\{\w+=\"[^\n]*\} \S+$",
            "a page of an exporter",
            f"{_IMPORT} prometheus FILE --at TIME`",
        ),
        (
            r"\ATPU (Chips|Runtime)|\ALibtpu version",
            "the table that tpu-info prints for people, without times",
            f"on GKE save `duty_cycle` and `memory_used` of Cloud Monitoring, and {_IMPORT} gcp-monitoring`",
        ),
        (
            r"\Ainstance-type: |^\| NEURON +\|",
            "the table of neuron-ls, which says nothing of what devices do",
            f"record neuron-monitor, and {_IMPORT} neuron-monitor`",
        ),
        (
            r"^\| HL-SMI Version",
            "the table that hl-smi prints for people",
            "record `hl-smi -Q timestamp,index,uuid,name,utilization.aip,memory.used,memory.total,power.draw -f csv -l 30`,"
            f" and {_IMPORT} hl-smi`",
        ),
        (r"\A[^\n]*utilization\.aip", "a log of hl-smi", f"{_IMPORT} hl-smi`"),
        (r"\ATimestamp, *DeviceId,", "a log of xpu-smi dump", f"{_IMPORT} xpu-smi`"),
        (
            r"^\| (Device ID|GPU Utilization \(%\)) +\|",
            "the table that xpu-smi prints for people, without times",
            f"record `xpu-smi dump -d -1 -m 0,1,2,3,17,18,31 -i 30 --date`, and {_IMPORT} xpu-smi`",
        ),
        (
            r"^\| npu-smi ",
            "the table that npu-smi prints for people, without times",
            f"record `npu-smi info watch -d 30`, and {_IMPORT} npu-smi`",
        ),
        (r"\A[^\n]*\d{2}:\d{2}:\d{2} +\d{4}\b[^\n]*\n\[0\] ", "what gpustat prints for people", f"record `{_SMI}`"),
        (
            r"\AINFO \d\d-\d\d [^\n]*throughput|^\S+ INFO [^\n]*Avg generation throughput",
            "a log of vLLM, whose rates are means of moments",
            f"save its /metrics from time to time, and {_IMPORT} serving`",
        ),
        (
            r"\A\[[^\n\]]*\] (Decode|Prefill) batch",
            "a log of SGLang, whose rates are of single moments",
            f"serve with --enable-metrics, save /metrics from time to time, and {_IMPORT} serving`",
        ),
        (
            r"\A\S+ \S+ \S+ \[[^\]]+\] \"(GET|POST) /",
            "an access log of a web server, without tokens",
            f"{_IMPORT} gateway` reads logs with tokens",
        ),
        (
            r"NVRM: Xid",
            "a kernel's log with errors of GPUs",
            "DCGM's exporter counts them: DCGM_FI_DEV_XID_ERRORS; `loadfactor agent` reads them",
        ),
        (r"\A\s*JOBID +USER +STAT +QUEUE", "a list of LSF's jobs", _SCHEDULERS),
        (r"\A(Job id +Name +User|\S+:\s*\n +Req'd)", "a list of PBS's jobs", _SCHEDULERS),
        (r"\A=+\nqname ", "what qacct of Grid Engine printed", _SCHEDULERS),
        (r"\A-- Schedd: ", "a list of HTCondor's jobs", _SCHEDULERS),
        (
            r"\A=+ Autoscaler status",
            "what `ray status` printed, without times of jobs",
            f"Ray's /metrics: {_IMPORT} prometheus`",
        ),
        (
            r"\Aglobal:|^scrape_configs:",
            "a configuration of Prometheus",
            f"name its address: {_IMPORT} prometheus URL`",
        ),
        (
            r"\ANAME +CPU\(cores\)",
            "what kubectl top printed, which has no GPUs",
            f"save `kubectl get pods,nodes -A -o json`, and {_IMPORT} kubernetes`",
        ),
        (r"\A[^\n]*\btokens_prompt\b", "generations of OpenRouter", f"{_IMPORT} gateway`"),
        (
            r"\Anvidia_smi,",
            "lines of InfluxDB",
            f"let Telegraf serve them as Prometheus does, and {_IMPORT} prometheus`",
        ),
        (r"\A\s*JOBID\b|\AJobID(Raw)?\W", "a list of Slurm's jobs", f"{_IMPORT} slurm`"),
        (r"\AJobI[dD]=|\ANodeName=", "what scontrol printed", f"{_IMPORT} slurm`"),
        (
            r"\A\s*(PARTITION +AVAIL|NODELIST|HOSTNAMES)\b",
            "a table of sinfo",
            f"save it with its GPUs, `sinfo --all -N -o '%N|%P|%T|%G|%H|%E'`, and {_IMPORT} slurm`",
        ),
        (
            r"\AapiVersion:|\A---\napiVersion:",
            "YAML of Kubernetes",
            f"save it with `kubectl get … -o json`, and {_IMPORT} kubernetes`",
        ),
        (
            r"\ANAME(SPACE)?\s+(READY|STATUS|NAME)",
            "a table of kubectl",
            f"save it with `kubectl get … -o json`, and {_IMPORT} kubernetes`",
        ),
        (r"\A[^\n]*line_?item[/_]", "a Cost and Usage Report of AWS", f"{_IMPORT} aws-cur`"),
        (r"\A[^\n]*\bBilledCost\b", "a FOCUS bill", f"{_IMPORT} focus`"),
        (r"\A[^\n]*\b(CostInBillingCurrency|PreTaxCost)\b", "a cost export of Azure", f"{_IMPORT} azure-cost`"),
        (
            r"\A[^\n]*meter ?id[^\n]*unit ?price",
            "a price sheet of Azure",
            f"{_IMPORT} prices FILE --region REGION`; azure-cost reads what was paid",
        ),
        (r"\A[^\n]*\bprice_per_gpu_hour\b", "a list of prices", f"{_IMPORT} prices`"),
        (
            r"^[^\n]*\biteration\b[^\n]*\b(loss|elapsed time per iteration)\b",
            "a log of training",
            f"{_IMPORT} training-log FILE --job NAME`",
        ),
    )
)
"""Shapes in the beginning of text, what it is then, and what to do."""


def recognize(start: bytes, name: str = "") -> tuple[str, str] | None:
    """What a file of this name is that begins like this, and what to do with it; None where nobody can tell.

    >>> recognize(b"%PDF-1.7"), recognize(b"a,b"), recognize(b"", "r.ncu-rep")[0]
    (('a PDF', 'export the same as CSV'), None, 'a report of Nsight Compute, of kernels one by one')
    """
    for ends, what, how in _BY_NAME:
        if name.endswith(ends):
            return what, how
    if start.startswith(_ZIP):
        return next((what, how) for inside, what, how in _ZIPPED if inside in start)
    known = next(((what, how) for magic, what, how in _BINARY if start.startswith(magic)), None)
    if known is not None:
        return known
    if start[_TAR[0] :].startswith(_TAR[1]):
        return "an archive of tar", "unpack it, and name the files"
    text = start.decode("utf-8-sig", "replace").lstrip()
    if text[:1] in ("{", "[") and not _LOG_TIME.match(text):
        return next(((what, how) for names, what, how in _JSON if all(f'"{name}"' in text for name in names)), None)
    return next(((what, how) for shape, what, how in _TEXT if shape.search(text)), None)


def name_others(source: Source) -> Source:
    """The source, whose refusals name what a file is where it is none of its own. Nothing else of it changes."""
    name = source.name

    def find_named(paths: tuple[Path, ...]) -> tuple[Path, ...]:
        try:
            return source.files(paths)
        except SourceError as error:
            raise _explain(error, paths, name) from None

    def read_named(paths: tuple[Path, ...], options: ReadOptions) -> Iterator[Rows | Gap]:
        has_rows = False
        try:
            for item in source.read(paths, options):
                has_rows = has_rows or isinstance(item, Rows)
                yield item
        except SourceError as error:
            raise _explain(error, paths, name) from None
        except UnicodeEncodeError as error:  # half a character, which JSON may hold as "\\ud800"
            text = quote(str(error.object))
            raise SourceError(f"{paths[0]}: {text} is no text in Unicode; write it in UTF-8") from None
        except RecursionError:
            raise SourceError(f"{paths[0]} is nested deeper than can be read; write it flat") from None
        if not has_rows and len(paths) == 1 and (found := _look(paths, str(paths[0]), name)):
            raise SourceError(f"{paths[0]}: nothing of {name} in it; this is {found[0]}: {found[1]}")

    return replace(source, files=find_named, read=read_named)


def _explain(error: SourceError, paths: Iterable[Path], name: str) -> SourceError:
    """A refusal of the source `name` with what the file is, where it does not say that itself."""
    message = str(error)
    says_it = "`loadfactor " in message or "a page of the" in message
    found = None if says_it else _look(paths, message, name)
    return error if found is None else type(error)(f"{message}; this is {found[0]}: {found[1]}")


def _look(paths: Iterable[Path], message: str, name: str) -> tuple[str, str] | None:
    """What the file is that a refusal of the source `name` names; None where nobody can tell, or it is one of that source."""
    path = next((path for path in paths if str(path) in message and path.is_file()), None)
    if path is None:
        return None
    try:
        start = next(iter(FileChunks(path)), b"")[:_LOOKED_AT_BYTES]
    except SourceError:
        return None
    found = recognize(start, path.name)
    return None if found is None or f"import {name}" in found[1] or f"`{name}`" in found[1] else found
