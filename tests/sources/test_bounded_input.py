"""What could go on for ever, or fill the memory, is one line: pipes, devices, bombs, files that change while they are read."""

import gzip
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from loadfactor.base.errors import InputError, SourceError
from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.catalog.models import from_hf_config
from loadfactor.planner.validation.measurement_files import read_measurement_files
from loadfactor.planner.validation.serving import read_sweeps
from loadfactor.sources import SOURCES, find_source
from loadfactor.sources.base import Gap, Input, ReadOptions, Rows
from loadfactor.sources.demand_files import read_demand
from loadfactor.sources.files import PIECE_BYTES, FileChunks, read_file
from loadfactor.sources.own_tables import SOURCE as TABLES
from loadfactor.sources.parsing.text_blocks import split_blocks
from loadfactor.sources.public_traces.request_traces import read_requests
from loadfactor.sources.traces.read import read_trace

NAMES = {
    "tables": "samples.csv",
    "prices": "prices.csv",
    "dcgm": "gpu.prom",
    "alibaba-genai": "pod_gpu_duty_cycle.csv",
    "alibaba-openb": "openb_node_list.csv",
    "kubernetes": "pods.json",
    "cloudwatch": "stream.json",
    "gcp-monitoring": "series.json",
    "ec2": "instances.json",
    "gce": "instances.json",
    "serving": "metrics.prom",
    "progress": "progress.jsonl",
    "prometheus": "answer.json",
}
OPTIONS = ReadOptions(at_ms=1_700_000_000_000, held_by="job")
HEADING = b"device_id,to_utc,busy_share\n"


def pack(piece: bytes, times: int) -> bytes:
    """A gzip file that unpacks to one piece repeated; it has as many members."""
    return gzip.compress(piece) * times


def import_of(source: str, path: Path) -> list[Rows | Gap]:
    chosen = find_source(source)
    return list(chosen.read(chosen.files((path,)), OPTIONS))


def assert_one_line(error: pytest.ExceptionInfo[InputError], path: Path) -> None:
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("source", [entry.name for entry in SOURCES])
def test_every_source_refuses_a_pipe(tmp_path, source):
    """A pipe that nobody writes to is refused before it is opened, named itself and through a link."""
    name = NAMES.get(source, "gpu.log")
    pipe, link = tmp_path / "pipe" / name, tmp_path / "link" / name
    pipe.parent.mkdir()
    link.parent.mkdir()
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link):
        with pytest.raises(SourceError, match="a pipe; save what comes out") as refused:
            import_of(source, path)
        assert_one_line(refused, path)


@pytest.mark.parametrize("source", [entry.name for entry in SOURCES])
def test_a_pipe_in_a_folder_is_passed_over(tmp_path, source):
    """In a folder only plain files are looked at."""
    for name in {NAMES.get(source, "gpu.log"), "openb_pod_list.csv"}:
        os.mkfifo(tmp_path / name)
    with pytest.raises(SourceError, match="holds no") as refused:
        import_of(source, tmp_path)
    assert_one_line(refused, tmp_path)


@pytest.mark.parametrize(
    "read",
    [
        read_demand,
        lambda path: list(read_requests(path)),
        lambda path: list(read_sweeps(path)),
        lambda path: read_measurement_files([path]),
        from_hf_config,
        lambda path: read_file(path, 10),
    ],
)
def test_every_other_reader_refuses_pipes_and_devices(tmp_path, read):
    """Demand, request traces, measurements and model configurations are plain files too."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(InputError) as refused:
            read(path)
        assert_one_line(refused, path)


def test_a_pipe_among_the_files_of_a_population_is_refused(tmp_path):
    """The chunks of a request trace are opened one by one, each checked."""
    os.mkfifo(tmp_path / "chunk-0-trace.csv")
    with pytest.raises(SourceError, match="a pipe"):
        list(read_requests(tmp_path))


def test_devices_and_folders_are_named(tmp_path):
    """A device never ends, a folder has no bytes."""
    for path, says in ((Path("/dev/zero"), "a device"), (tmp_path, "a folder")):
        with pytest.raises(SourceError, match=says) as refused:
            list(FileChunks(path))
        assert_one_line(refused, path)


def test_pieces_are_bounded(tmp_path):
    """A file is handed on in pieces of at most 1 MiB, packed or not."""
    data = os.urandom(3 * BYTES_PER_MIB)
    for name, stored in (("plain", data), ("packed", gzip.compress(data))):
        (tmp_path / name).write_bytes(stored)
        pieces = list(FileChunks(tmp_path / name))
        assert b"".join(pieces) == data
        assert max(map(len, pieces)) <= PIECE_BYTES


@pytest.mark.parametrize(("piece", "says"), [(b"\n", "empty lines"), (b"x", "a line of more than 1 MiB")])
@pytest.mark.parametrize("packed", [True, False])
def test_bombs_are_refused_after_a_few_pieces(piece, says, packed, tmp_path):
    """Gigabytes of empty lines, or one line without end, are refused when little of them was read."""
    path, handed = tmp_path / ("bomb.csv.gz" if packed else "bomb.csv"), 0

    def watch() -> Iterator[bytes]:
        nonlocal handed
        for chunk in FileChunks(path):
            handed += len(chunk)
            yield chunk

    megabyte, times = piece * BYTES_PER_MIB, 64 if packed else 16
    path.write_bytes(pack(megabyte, times) if packed else megabyte * times)
    for start in (b"", HEADING):
        chunks = (chunk for part in ([start], watch()) for chunk in part)
        with pytest.raises(SourceError, match=says) as refused:
            list(split_blocks(Input(str(path), chunks)))
        assert_one_line(refused, path)
        assert handed <= 3 * BYTES_PER_MIB
        handed = 0


@pytest.mark.parametrize("blank", [b"\n", b"\r\n", b" \n"])
def test_empty_lines_are_counted_across_pieces(blank):
    """Half a MiB of empty lines is read over, wherever the pieces begin; more than a MiB is refused."""
    half = blank * (BYTES_PER_MIB // 2 // len(blank))
    for size in (1000, 7 * 65536):
        few, many = b"a" + half + b"b" + half, b"a\n" + half * 3 + b"b\n"
        cut = [few[i : i + size] for i in range(0, len(few), size)]
        assert sum(len(b.data.replace(b"\n", b"").strip()) for b in split_blocks(Input("few", cut))) >= 2
        with pytest.raises(SourceError, match="empty lines"):
            list(split_blocks(Input("many", [many[i : i + size] for i in range(0, len(many), size)])))


@pytest.mark.long
@pytest.mark.parametrize("source", [entry.name for entry in SOURCES])
@pytest.mark.parametrize("byte", [b"\n", b"x"])
def test_every_source_refuses_bombs(tmp_path, source, byte):
    """Whatever reads it, a gzip file of 256 MiB of one byte ends in one line."""
    names = [f"{NAMES.get(source, 'gpu.log')}.gz"]
    names += ["openb_pod_list.csv.gz"] if source == "alibaba-openb" else []
    for name in names:
        (tmp_path / name).write_bytes(pack(byte * BYTES_PER_MIB, 256))
    with pytest.raises(SourceError, match=r"empty|1 MiB|250 times") as refused:
        import_of(source, tmp_path)
    assert_one_line(refused, tmp_path)


@pytest.mark.parametrize("source", [entry.name for entry in SOURCES])
def test_every_source_refuses_json_that_is_nested_without_end(tmp_path, source):
    """JSON of 100,000 brackets is no JSON of anything: one line, or lines that are passed over and counted."""
    path = tmp_path / NAMES.get(source, "gpu.log")
    path.write_text('{"metric_name": ' + "[" * 100_000 + "]" * 100_000 + "}\n")
    read: list[Rows | Gap] = []
    with suppress(InputError):
        read = import_of(source, path)
    assert not [item for item in read if isinstance(item, Rows)]


@pytest.mark.parametrize("ending", [".toml", ".json", ".parquet"])
def test_a_price_list_that_is_read_whole_has_a_limit(tmp_path, ending):
    """TOML, JSON and Parquet are held in memory, so 16 MiB is the most."""
    path = tmp_path / f"prices{ending}.gz"
    path.write_bytes(pack((b"#" * 999 + b"\n") * 1000, 40))
    with pytest.raises(SourceError, match="larger than 16 MiB"):
        import_of("prices", path)


def test_rows_that_unpack_to_far_too_much_are_refused(tmp_path):
    """Rows that differ in nothing are a bomb as well: its size gives it away before it is unpacked."""
    path, unpacked = tmp_path / "samples.csv.gz", list[int]()
    path.write_bytes(pack(b"g0,1777636800000,0.5\n" * 50_000, 300))
    with pytest.raises(SourceError, match="unpacks to more than 250 times its size") as refused:
        unpacked.extend(len(piece) for piece in FileChunks(path))
    assert sum(unpacked) <= 65 * BYTES_PER_MIB
    assert_one_line(refused, path)


def test_a_trace_that_unpacks_to_far_too_much_is_refused(tmp_path):
    """A trace of 256 MiB of spaces in 300 kB is refused as a log is."""
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents":[') + pack(b" " * BYTES_PER_MIB, 256))
    with pytest.raises(SourceError, match="unpacks to more than 250 times its size") as refused:
        list(read_trace(path))
    assert_one_line(refused, path)


def test_parquet_that_claims_too_much_is_refused(tmp_path):
    """30 million rows in a kilobyte, in a table, a bill and a trace; and texts of a bill that a dictionary repeats."""
    rows = pa.table({"device_id": pa.nulls(30_000_000, pa.bool_())})
    again = pa.DictionaryArray.from_arrays(pa.array([0] * 20_000, pa.int32()), pa.array(["x" * 1_000_000]))
    (tmp_path / "StringIds").mkdir()
    for path, table, said, read in (
        (tmp_path / "samples.parquet", rows, "claims 30,000,000 rows", lambda path: import_of("tables", path)),
        (tmp_path / "bill.parquet", rows, "claims 30,000,000 rows", lambda path: import_of("focus", path)),
        (tmp_path / "bill.parquet", pa.table({"Tags": again}), "texts of Tags", lambda path: import_of("focus", path)),
        (tmp_path / "StringIds" / "StringIds.parquet", rows, "claims 30,", lambda path: list(read_trace(path.parent))),
    ):
        pq.write_table(table, path, write_statistics=False)
        with pytest.raises(SourceError, match=said) as refused:
            read(path)
        assert_one_line(refused, path)


def test_xml_whose_entities_multiply_is_passed_over(tmp_path):
    """Ten entities, each ten of the one before: the document is passed over, and nothing is left to import."""
    entities = '<!ENTITY a0 "laugh at this">' + "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))
    path = tmp_path / "gpu.xml"
    gpu = "<nvidia_smi_log><timestamp>&a9;</timestamp><gpu id='0'><uuid>&a9;</uuid></gpu></nvidia_smi_log>\n"
    path.write_text(f"<?xml version='1.0'?>\n<!DOCTYPE nvidia_smi_log [{entities}]>\n{gpu}")
    with pytest.raises(SourceError, match="nothing of nvidia-smi in it"):
        import_of("nvidia-smi", path)


def test_a_file_that_grows_is_read_as_it_was_opened(tmp_path):
    """What comes in while a file is read is not read, save the end of the line being written; a gap says so."""
    path = tmp_path / "samples.csv"
    path.write_bytes(HEADING + b"g0,1777636800000,0.5\ng0,17776368")
    chunks = FileChunks(path)
    pieces = iter(chunks)
    got = next(pieces)
    with path.open("ab") as file:
        file.write(b"30000,0.25\ng0,1777636860000,0.75\n")
    assert got + b"".join(pieces) == HEADING + b"g0,1777636800000,0.5\ng0,1777636830000,0.25\n"
    assert b"".join(chunks) == HEADING + b"g0,1777636800000,0.5\ng0,1777636830000,0.25\n"
    (gap,) = chunks.note_growth()
    assert gap.where == str(path)
    assert "grew while it was read" in gap.what


def test_a_growing_file_adds_a_gap_to_its_import(tmp_path):
    """A source that reads a file to which something is added meanwhile yields its rows and the gap, and ends."""
    row = b"2026/05/01 12:00:00.000Z, 0, 5\n"
    for source, name, text, more in (
        (find_source("nvidia-smi"), "gpu.csv", b"timestamp, index, utilization.gpu\n", row),
        (TABLES, "samples.csv", HEADING, b"g0,1777636800000,0.5\n"),
    ):
        path = tmp_path / name
        path.write_bytes(text + more)
        found = []
        for item in source.read((path,), ReadOptions()):
            found.append(item)
            with path.open("ab") as file:
                file.write(more)
        assert sum(i.data.num_rows for i in found if isinstance(i, Rows) and i.table == "samples") == 1
        assert [i for i in found if isinstance(i, Gap) and "grew" in i.what]


def test_a_file_that_is_not_touched_has_no_gap(tmp_path):
    """Nothing is said of a file that stays as it is."""
    (tmp_path / "samples.csv").write_bytes(HEADING + b"g0,1777636800000,0.5\n")
    assert not [i for i in import_of("tables", tmp_path) if isinstance(i, Gap) and "grew" in i.what]


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_that_shrinks_is_refused(tmp_path, packed):
    """A log that is rewritten while it is read is no log of anything."""
    path = tmp_path / "gpu.csv"
    data = os.urandom(4 * BYTES_PER_MIB)
    path.write_bytes(gzip.compress(data) if packed else data)
    pieces = iter(FileChunks(path))
    next(pieces)
    os.truncate(path, 2 * BYTES_PER_MIB)
    with pytest.raises(SourceError, match="became shorter while it was read") as refused:
        list(pieces)
    assert_one_line(refused, path)
