"""Decoders give the same rows whatever brings the bytes."""

import ast
from collections.abc import Iterator, Sequence
from datetime import UTC
from pathlib import Path

import pytest

import loadfactor.sources
from loadfactor.base.errors import SourceError
from loadfactor.sources import dcgm, nvidia_smi, price_lists
from loadfactor.sources.base import Decoder, Gap, Input, ReadOptions, Rows, Source
from loadfactor.sources.dcgm.decoder import decode_scrapes
from loadfactor.sources.demand_files import decode_demand
from loadfactor.sources.nvidia_smi.sections import decode_logs
from loadfactor.sources.price_lists import decode_price_lists

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
    "databases.py",  # SQLite files, which only their library opens, within a budget of time
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
    "training_logs/run_folders.py",  # runs of MLflow
    "traces/nsight.py",  # folders of tables, which only their library opens
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
