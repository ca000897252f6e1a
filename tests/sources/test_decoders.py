"""Decoders give the same rows whatever brings the bytes; states that earlier versions of live decoders stored are read."""

import ast
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from tests.sources.kubernetes.test_live_decoder import EVENTS as CLUSTER_EVENTS

import loadfactor.sources
from loadfactor.base.errors import SourceError
from loadfactor.sources import dcgm, nvidia_smi, price_lists
from loadfactor.sources.base import Decoder, Gap, Input, ReadOptions, Rows, Source
from loadfactor.sources.dcgm.decoder import decode_scrapes
from loadfactor.sources.demand_files import decode_demand
from loadfactor.sources.kubernetes.live_decoder import LiveKubernetesDecoder
from loadfactor.sources.nvidia_smi.sections import decode_logs
from loadfactor.sources.price_lists import decode_price_lists
from loadfactor.sources.progress_records.live_decoder import LiveProgressDecoder
from loadfactor.sources.slurm.live_decoder import LiveSlurmDecoder

AT_MS = 1_700_000_000_000
LOG = b"timestamp, index, name, utilization.gpu [%]\n" + b"".join(
    b"2026/05/01 12:00:%02d.000, 0, NVIDIA H100 80GB HBM3, %d %%\n" % (i, 2 * i) for i in range(0, 50, 10)
)
SCRAPE = (
    b'DCGM_FI_DEV_GPU_UTIL{gpu="0",modelName="Tesla T4"} 42\n'
    b'DCGM_FI_PROF_SM_ACTIVE{gpu="0",modelName="Tesla T4"} 0.250000\n'
    b"go_threads 9\n"
)
PRICES = b"basis,price_per_gpu_hour,currency\nlist,2.5,EUR\n"
READERS = {
    "base.py",  # the type of a reader
    "file_chunks.py",
    "files.py",
    "demand_files.py",
    "billing/bill_file.py",
    "billing/bill_reader.py",
    "billing/deliveries.py",
    "own_tables/table_files.py",
    "own_tables/templates.py",  # writes them
    "public_traces/request_traces.py",
    "recognition.py",  # looks at how a file begins that a reader refused
    "training_logs/__init__.py",  # finds the files of a run
    "training_logs/run_folders.py",  # a database of MLflow, which only its library opens
    "traces/nsight.py",  # databases and folders of tables, which only their libraries open
    "traces/pieces.py",
    "traces/read.py",
    "traces/rocprof.py",
    "traces/tables.py",
}
OUTSIDE = {
    *("pathlib", "os", "glob", "gzip", "tarfile", "tempfile"),
    *("shutil", "socket", "http", "httpx", "time", "logging"),
}


def decode(decoder: Decoder, data: Sequence[bytes], name: str, **options: object) -> list[Rows | Gap]:
    """What a decoder makes of bytes that came from an address."""
    return list(decoder([Input("node-7:9400", data, name)], ReadOptions(**options)))  # type: ignore[arg-type]


def rows(items: list[Rows | Gap]) -> dict[str, list[dict[str, object]]]:
    return {item.table: item.data.to_pylist() for item in items if isinstance(item, Rows)}


@pytest.mark.parametrize(
    ("source", "decoder", "data", "name", "options"),
    [
        (nvidia_smi.SOURCE, decode_logs, LOG, "node-7.csv", {"timezone": UTC}),
        (dcgm.SOURCE, decode_scrapes, SCRAPE, "node-7.prom", {"at_ms": AT_MS}),
        (price_lists.SOURCE, decode_price_lists, PRICES, "list.csv", {}),
    ],
)
def test_bytes_and_files_make_the_same_rows(
    tmp_path: Path, source: Source, decoder: Decoder, data: bytes, name: str, options: dict[str, object]
) -> None:
    """Decoding from memory, in pieces of any size, gives the rows of the file, under the label of the address."""
    path = tmp_path / name
    path.write_bytes(data)
    wanted = rows(list(source.read((path,), ReadOptions(**options))))  # type: ignore[arg-type]
    assert wanted
    for size in (1, 7, len(data)):
        pieces = [data[i : i + size] for i in range(0, len(data), size)]
        found = decode(decoder, pieces, name, **options)
        assert rows(found) == wanted
        assert {item.where for item in found if isinstance(item, Gap)} <= {"node-7:9400"}


def test_an_answer_is_named_by_its_label() -> None:
    """The label stands in errors, and names the machine where the answer does not."""
    with pytest.raises(SourceError, match=r"^node-7:9400: no DCGM fields"):
        decode(decode_scrapes, [b"nothing\n"], "", at_ms=AT_MS)
    with pytest.raises(SourceError, match=r"^node-7:9400 is empty"):
        decode(decode_logs, [b""], "")
    with pytest.raises(SourceError, match=r"^node-7:9400: cannot tell demand"):
        decode_demand(Input("node-7:9400", [b"a,b\n1,2\n"]))
    (sample,) = rows(decode(decode_scrapes, [SCRAPE], "", at_ms=AT_MS))["samples"]
    assert sample["device_id"] == "node-7:9400/0"


def modules() -> Iterator[tuple[str, set[str], set[str]]]:
    """Every module of the sources: its path, what it imports, and the names it calls."""
    folder = Path(loadfactor.sources.__file__).parent
    for path in sorted(folder.rglob("*.py")):
        imported, called = set(), set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                imported.add(node.module or "")
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                called.add(node.func.id)
        yield path.relative_to(folder).as_posix(), imported, called


def test_only_readers_open_files() -> None:
    """A decoder imports nothing that reaches files, network or clock, and the sources know nothing of the store."""
    for name, imported, called in modules():
        assert not any(module.startswith(("loadfactor.store", "loadfactor.books")) for module in imported), name
        if name not in READERS:
            assert not {module.partition(".")[0] for module in imported} & OUTSIDE, name
            assert "open" not in called, name


STATES = Path(__file__).parent / "earlier_states"
STATE_AT_MS = 1_790_000_000_000
BEGIN = {
    "kind": "begin",
    "format": 1,
    "id": "f1",
    "job": "j",
    "at": STATE_AT_MS,
    "run": "r",
    "host": "h",
    "pid": 4,
    "rank": 0,
}


def spent(kind: str, number: int, from_s: int, to_s: int, **more: Any) -> dict[str, Any]:
    """A record of an interval of the run."""
    return {"kind": kind, "n": number, "from": STATE_AT_MS + 1000 * from_s, "to": STATE_AT_MS + 1000 * to_s, **more}


RUN = [
    BEGIN,
    spent("work", 1, 0, 9, step=1, steps=3, samples=[4, None, 5], tokens=9),
    {"kind": "epoch", "n": 2, "at": STATE_AT_MS + 9500, "epoch": 1, "step": 3},
    spent("section", 3, 10, 12, us=1500000, section="checkpoint"),
    spent("work", 4, 12, 19, step=4, steps=2),
    {**BEGIN, "id": "f2", "at": STATE_AT_MS + 30_000},
    spent("work", 1, 40, 50, step=3, steps=3),
]
JOB = {"job_id": "7", "submitted": 9_990_000_000, "asked": "gres/gpu=2", "user": "u", "cluster": "c1"}
RUNNING = {**JOB, "started": 10_000_050_000, "state": "running", "nodes": "n1", "held": "gres/gpu=2"}
WAITING = {
    **JOB,
    "job_id": "8",
    "submitted": 10_000_055_000,
    "asked": "gres/gpu=1",
    "state": "pending",
    "reason": "Priority",
}
STARTED = {**WAITING, "state": "running", "started": 10_000_070_000, "nodes": "n1", "held": "gres/gpu=1"}
JOBS = [
    [10_000_000_000, "nodes", [["n1", "gpu:h100:8", ["down"], "bad fan", 9_000_000_000, ["p"], 10_000_000_000]]],
    [10_000_000_000, "queue", [{**JOB, "state": "pending", "reason": "Resources"}]],
    [10_000_060_000, "queue", [RUNNING]],
    [10_000_060_000, "queue", [WAITING]],
    [10_000_090_000, "nodes", [["n1", "gpu:h100:8", ["idle"], None, None, ["p"], 10_000_090_000]]],
    [10_000_090_000, "accounting", [{**RUNNING, "state": "completed", "ended": 10_000_080_000}]],
    [10_000_090_000, "queue", [STARTED]],
]


@pytest.mark.parametrize(
    ("kind", "name", "stored", "events", "before", "unknown"),
    [
        (LiveKubernetesDecoder, "prod", "kubernetes-2", CLUSTER_EVENTS, 12, "devices"),
        (LiveSlurmDecoder, "c1", "slurm-1", JOBS, 4, ""),
        (LiveProgressDecoder, "x", "progress-1", RUN, 5, ""),
    ],
)
def test_a_state_of_an_earlier_version_is_read(
    kind: Callable[..., Any], name: str, stored: str, events: list[Any], before: int, unknown: str
) -> None:
    """A decoder that read the first events and stored its state then, and one of today that read all, emit the same.

    But for a table that the earlier version did not emit (`unknown`): it follows when its things are next listed.
    """
    went_on, restored = kind(name), kind(name, (STATES / f"{stored}.state").read_bytes())
    went_on.feed(events[:before])
    assert list(went_on.drain())
    assert not list(restored.drain())
    rows = []
    for decoder in (went_on, restored):
        decoder.feed(events[before:])
        drained = [item for item in decoder.drain() if isinstance(item, Rows) and item.table != unknown]
        rows.append([(item.table, item.data.to_pylist()) for item in drained])
    assert rows[0] == rows[1]
    assert rows[0]
