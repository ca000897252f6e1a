"""How fast is text of dcgm-exporter imported? Four nodes of 8 GPUs, a scrape every 30 s: the usual fields, each line with its time.

`dcgm_over_floor` is the processor time of the whole import into an empty store, not booked, over the floor: the barest scan of the
same bytes that can give the same numbers, all of the text at once, and one sorted Parquet file (zstd) of the same rows. The scan
knows where a line should begin, compares that byte by byte (labels are the identity of a series), reads number and time digit by
digit and puts them into arrays; it checks nothing else, makes no rows and looks a beginning up in a list where the guess fails.
It is compiled and warm, and so is the import. `dcgm_decode_over_floor` is decoding alone over the same floor.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba as nb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from loadfactor.base.units import MS_PER_S
from loadfactor.books.books import Books
from loadfactor.sources.base import ReadOptions, Rows
from loadfactor.sources.dcgm import SOURCE
from loadfactor.store.importing import import_files

NAME = "dcgm"
NODES, GPUS, STEP_S, BEGAN_MS = 4, 8, 30, 1_770_000_000_000
POD_SCRAPES = 400  # after so many another pod holds the node
FIELDS = (
    ("DEV_SM_CLOCK", "gauge", 1980, "{:.0f}"),
    ("DEV_MEM_CLOCK", "gauge", 2619, "{:.0f}"),
    ("DEV_GPU_TEMP", "gauge", 80, "{:.0f}"),
    ("DEV_POWER_USAGE", "gauge", 700, "{:.6f}"),
    ("DEV_TOTAL_ENERGY_CONSUMPTION", "counter", 1e6, "{:.0f}"),
    ("DEV_GPU_UTIL", "gauge", 100, "{:.0f}"),
    ("DEV_XID_ERRORS", "gauge", 0, "{:.0f}"),
    ("DEV_FB_FREE", "gauge", 40_000, "{:.0f}"),
    ("DEV_FB_USED", "gauge", 40_000, "{:.0f}"),
    ("PROF_GR_ENGINE_ACTIVE", "gauge", 1, "{:.6f}"),
    ("PROF_SM_ACTIVE", "gauge", 1, "{:.6f}"),
    ("PROF_PIPE_TENSOR_ACTIVE", "gauge", 1, "{:.6f}"),
    ("PROF_DRAM_ACTIVE", "gauge", 1, "{:.6f}"),
    ("PROF_PCIE_TX_BYTES", "gauge", 1e10, "{:.0f}"),
    ("PROF_PCIE_RX_BYTES", "gauge", 1e10, "{:.0f}"),
)
POWERS = np.array([10.0**i for i in range(19)])


def run(quick: bool) -> dict[str, float]:
    """Ratios of processor time within one run; `quick` takes a quarter of the scrapes."""
    scrapes = 500 if quick else 2000
    with tempfile.TemporaryDirectory() as folder:
        path, some = Path(folder) / "dcgm.prom", Path(folder) / "some.prom"
        texts = list(make_scrapes(scrapes))
        path.write_bytes(b"".join(texts))
        some.write_bytes(b"".join(texts[:300]))
        _import(Path(folder) / "warm", some)
        decoded: list[pa.Table] = []
        decode = _cpu_s(lambda: decoded.append(_decode(path)))
        samples = decoded[0].sort_by([("device_id", "ascending"), ("to_utc", "ascending")])
        data = path.read_bytes()
        heads = _list_heads(data)
        _scan(texts[0], heads)
        scan = min(_cpu_s(lambda: _scan(data, heads)) for _ in range(3))
        write = min(_cpu_s(lambda: _write_sorted(decoded[0], Path(folder) / "floor.parquet")) for _ in range(3))
        whole = _cpu_s(lambda: _import(Path(folder) / "books", path))
    floor = scan + write
    return {
        "dcgm_rows": float(len(samples)),
        "dcgm_floor_us_per_row": 1e6 * floor / len(samples),
        "dcgm_over_floor": whole / floor,
        "dcgm_decode_over_floor": decode / floor,
    }


def make_scrapes(scrapes: int) -> Iterator[bytes]:
    """The text of each scrape of each node, in the order of time."""
    random = np.random.default_rng(1)
    for step in range(scrapes):
        values = random.random((NODES, len(FIELDS), GPUS))
        for node in range(NODES):
            at_ms = BEGAN_MS + step * STEP_S * MS_PER_S + node
            lines = []
            for (name, kind, scale, form), of_field in zip(FIELDS, values[node], strict=True):
                lines.append(f"# HELP DCGM_FI_{name} What it says (in units).\n# TYPE DCGM_FI_{name} {kind}\n")
                for gpu, value in enumerate(of_field):
                    total = 1.5e7 * step if kind == "counter" else 0
                    text = form.format(value * scale + total)
                    lines.append(f"DCGM_FI_{name}{{{_labels(node, gpu, step)}}} {text} {at_ms}\n")
            yield "".join(lines).encode()


def _labels(node: int, gpu: int, step: int) -> str:
    return (
        f'gpu="{gpu}",UUID="GPU-5f587dd4-6505-0873-c6{node:02d}-8324dbfe5b{gpu:02d}",pci_bus_id="00000000:1{gpu}:00.0",'
        f'device="nvidia{gpu}",modelName="NVIDIA H100 80GB HBM3",Hostname="node-{node}",DCGM_FI_DRIVER_VERSION="550.90.07",'
        f'container="trainer",namespace="team-{node}",pod="pretrain-{step // POD_SCRAPES}-worker-{node}"'
    )


def _import(folder: Path, path: Path) -> None:
    with Books(folder).store.write() as writer:
        import_files(writer, SOURCE, (path,), ReadOptions(), lambda _what, _share: None)


def _decode(path: Path) -> pa.Table:
    rows = SOURCE.read((path,), ReadOptions())
    return pa.concat_tables(item.data for item in rows if isinstance(item, Rows) and item.table == "samples")


def _write_sorted(samples: pa.Table, path: Path) -> None:
    ordered = samples.sort_by([("device_id", "ascending"), ("to_utc", "ascending")])
    pq.write_table(ordered, path, compression="zstd")


def _list_heads(data: bytes) -> tuple[Any, Any]:
    """Every beginning of a line there is, joined, and where each starts: titles whole, else up to behind the labels."""
    heads = list(dict.fromkeys(line[: line.rfind(b"}") + 1] or line for line in data.split(b"\n")[:-1]))
    return np.frombuffer(b"".join(heads), np.uint8), np.cumsum([0, *map(len, heads)])


def _scan(data: bytes, heads: tuple[Any, Any]) -> Any:
    """Series, value and time of each line; raises where one begins otherwise or is no number."""
    lines = data.count(b"\n")
    series, values, at_ms = np.empty(lines, np.int32), np.empty(lines), np.empty(lines, np.int64)
    after = np.full(len(heads[1]) - 1, 0, np.int64)
    if _scan_lines(np.frombuffer(data, np.uint8), *heads, after, series, values, at_ms, POWERS) != lines:
        raise AssertionError("the floor did not read every line")
    return series, values, at_ms


@nb.njit(cache=True, _nrt=False)
def _is_same(heads: Any, data: Any) -> bool:
    differ = np.uint8(0)
    for k in range(len(heads)):
        differ = np.uint8(differ | np.uint8(heads[k] ^ data[k]))
    return differ == 0


@nb.njit(cache=True, _nrt=False)
def _scan_lines(
    data: Any, heads: Any, starts: Any, after: Any, series: Any, values: Any, at_ms: Any, powers: Any
) -> int:
    i, line, last, n = 0, 0, 0, len(data)
    while i < n:
        found, tries = after[last], 0
        while True:
            end = i + starts[found + 1] - starts[found]
            behind = end < n and (data[end] == 32 or data[end] == 10)
            if behind and _is_same(heads[starts[found] : starts[found + 1]], data[i:end]):
                break
            found, tries = (found + 1) % len(after), tries + 1
            if tries > len(after):
                return -1
        after[last], last, i = found, found, end
        series[line] = found
        if data[i] == 32:
            whole, scale, point = 0, 0, False
            i += 1
            while data[i] != 32:
                if data[i] == 46:
                    point = True
                else:
                    whole = 10 * whole + (data[i] - 48)
                    scale += point
                i += 1
            values[line], time = whole / powers[scale], 0
            i += 1
            while data[i] != 10:
                time = 10 * time + (data[i] - 48)
                i += 1
            at_ms[line] = time
        i, line = i + 1, line + 1
    return line


def _cpu_s(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
