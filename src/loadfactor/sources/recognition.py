"""What a file is, by how it begins, for the refusal of a source that cannot read it: one table for all of them."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import Gap, ReadFiles, ReadOptions, Rows, Source
from loadfactor.sources.files import FileChunks

_LOOKED_AT_BYTES: Final = 4096
_IMPORT: Final = "`loadfactor import"
_BINARY: Final = (
    (b"%PDF", "a PDF", "export the same as CSV"),
    (b"\x89PNG", "a picture", "save the text or the CSV that it shows"),
    (b"\xff\xd8\xff", "a picture", "save the text or the CSV that it shows"),
    (b"PK\x03\x04", "an Excel workbook or another zip archive", "save it as CSV, or unpack it"),
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook", "save it as CSV"),
    (b"SQLite format 3", "a database of SQLite", "`loadfactor diagnose` reads those of Nsight Systems and rocprof"),
    (b"PAR1", "Parquet", f"{_IMPORT} tables` reads your own, and those of bills are `focus`, `aws-cur`, `gcp-billing`"),
    (b"\x7fELF", "a program", "name what it printed"),
)
_JSON: Final = (
    (("traceEvents",), "a trace of a profiler", "`loadfactor diagnose` reads it"),
    (("status", "resultType"), "an answer of Prometheus", f"{_IMPORT} prometheus`"),
    (("metric", "timestamps"), "an export of VictoriaMetrics", f"{_IMPORT} prometheus`"),
    (("apiVersion", "metadata"), "objects of Kubernetes", f"{_IMPORT} kubernetes`"),
    (("kind", "metadata"), "objects of Kubernetes", f"{_IMPORT} kubernetes`"),
    (("jobs", "meta"), "JSON of Slurm", f"{_IMPORT} slurm`"),
    (("Reservations",), "an answer of EC2", f"{_IMPORT} ec2`"),
    (("neuron_runtime_data",), "a report of neuron-monitor", f"{_IMPORT} neuron-monitor`"),
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
            "record `nvidia-smi --query-gpu=timestamp,uuid,name,utilization.gpu,memory.used,power.draw --format=csv"
            " -l 30`",
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


def recognize(start: bytes) -> tuple[str, str] | None:
    """What a file is that begins like this, and what to do with it; None where nobody can tell.

    >>> recognize(b"%PDF-1.7"), recognize(b"a,b")
    (('a PDF', 'export the same as CSV'), None)
    """
    known = next(((what, how) for magic, what, how in _BINARY if start.startswith(magic)), None)
    if known is not None:
        return known
    text = start.decode("utf-8-sig", "replace").lstrip()
    if text[:1] in ("{", "["):
        return next(((what, how) for names, what, how in _JSON if all(f'"{name}"' in text for name in names)), None)
    return next(((what, how) for shape, what, how in _TEXT if shape.search(text)), None)


def name_others(source: Source) -> Source:
    """The source, whose refusals name what a file is where it is none of its own. Nothing else of it changes."""
    return replace(source, read=_read_and_name(source.read, source.name))


def _read_and_name(read: ReadFiles, name: str) -> ReadFiles:
    def read_named(paths: tuple[Path, ...], options: ReadOptions) -> Iterator[Rows | Gap]:
        try:
            yield from read(paths, options)
        except SourceError as error:
            message = str(error)
            found = None if "`loadfactor " in message else _look(paths, message)
            if found is None or f"import {name}" in found[1] or f"`{name}`" in found[1]:
                raise
            raise type(error)(f"{message}; this is {found[0]}: {found[1]}") from None

    return read_named


def _look(paths: Iterable[Path], message: str) -> tuple[str, str] | None:
    """What the file is that a refusal names."""
    path = next((path for path in paths if str(path) in message and path.is_file()), None)
    if path is None:
        return None
    try:
        start = next(iter(FileChunks(path)), b"")[:_LOOKED_AT_BYTES]
    except SourceError:
        return None
    return recognize(start)
