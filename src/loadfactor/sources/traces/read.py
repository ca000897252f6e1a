"""Any trace of a profiler as a capture: what a file is follows from its bytes, not from its name."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_KIB
from loadfactor.sources.traces.kineto import read_kineto
from loadfactor.sources.traces.memory_timeline import read_memory_timeline
from loadfactor.sources.traces.nsight import read_sqlite, read_tables
from loadfactor.sources.traces.pieces import TracePieces, read_first
from loadfactor.sources.traces.xplane import looks_like_xplane, read_xplane
from loadfactor.tables.trace_events import TraceCapture

_SNIFFED: Final = 4 * BYTES_PER_KIB
_SQLITE: Final = b"SQLite format 3\0"
_SPACES: Final = b" \t\r\n\xef\xbb\xbf"
_TRACES_IN_FOLDERS: Final = (
    "*trace*.json",
    "*trace*.json.gz",
    "*.xplane.pb",
    "*.xplane.pb.gz",
    "*.sqlite",
    "*.sqlite.gz",
)
_TABLES: Final = ("*.parquet", "*.arrow", "*.feather")
_REFUSED: Final = (
    (b"PK\x03\x04", "a zip archive; unpack it and name the files in it"),
    (b"\x80", "a pickle, which runs code when it is opened; export the memory timeline as JSON instead"),
    (b"<", "a page of HTML; name the trace that it was made from"),
    (b"PAR1", "one Parquet file; name the folder that `nsys export --type parquetdir` wrote"),
    (b"ARROW1", "one Arrow file; name the folder that `nsys export --type arrowdir` wrote"),
    (b"\x28\xb5\x2f\xfd", "packed with zstd; unpack it with `zstd -d`"),
    (b"BZh", "packed with bzip2; unpack it with `bunzip2`"),
    (b"\xfd7zXZ", "packed with xz; unpack it with `unxz`"),
    (b"\x89HDF", "HDF5; export it with `nsys export --type sqlite`"),
)
_REPORTS: Final = (".nsys-rep", ".qdrep", ".qdstrm", ".ncu-rep")


def read_trace(path: Path) -> Iterator[TraceCapture]:
    """The captures of one path: a file has one, a folder as many as it has traces. Raises SourceError saying what it is instead."""
    if path.is_dir():
        yield from _read_folder(path)
        return
    if path.name.endswith(_REPORTS):
        raise SourceError(
            f"{path} is a report that only NVIDIA's tools open; `nsys export --type sqlite {path.name}` makes a file"
            " of it that can be read"
        )
    begin = read_first(path, _SNIFFED)
    if begin.startswith(_SQLITE):
        yield read_sqlite(path)
        return
    for magic, what in _REFUSED:
        if begin.startswith(magic):
            raise SourceError(f"{path} is {what}")
    text = begin.lstrip(_SPACES)
    if text.startswith(b"[") and text[1:].lstrip(_SPACES).startswith(b"["):
        yield read_memory_timeline(TracePieces(path))
    elif text.startswith((b"{", b"[")):
        yield read_kineto(TracePieces(path))
    elif looks_like_xplane(begin) or ".xplane.pb" in path.name:
        yield read_xplane(TracePieces(path))
    elif not begin:
        raise SourceError(f"{path} is empty")
    else:
        raise SourceError(
            f"{path} is no trace that is known: Kineto or Chrome JSON, XPlane, or an export of Nsight Systems"
            " (SQLite, Parquet, Arrow)"
        )


def _read_folder(path: Path) -> Iterator[TraceCapture]:
    if any(found for pattern in _TABLES for found in path.glob(pattern)):
        yield read_tables(path)
        return
    files = sorted({found for pattern in _TRACES_IN_FOLDERS for found in path.rglob(pattern) if found.is_file()})
    if not files:
        raise SourceError(
            f"{path} holds no trace: no *trace*.json, *.xplane.pb, *.sqlite or tables of Nsight Systems; name the files"
        )
    for file in files:
        yield from read_trace(file)
