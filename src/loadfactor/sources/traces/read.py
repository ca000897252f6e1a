"""Any trace of a profiler as a capture: what a file is follows from its bytes, not from its name."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_KIB
from loadfactor.sources.databases import SQLITE
from loadfactor.sources.protobuf import BYTES, WireError, walk
from loadfactor.sources.recognition import recognize
from loadfactor.sources.traces.kineto import read_kineto
from loadfactor.sources.traces.memory_timeline import read_memory_timeline
from loadfactor.sources.traces.nsight import read_export
from loadfactor.sources.traces.pieces import TracePieces, read_first
from loadfactor.sources.traces.rocprof import RECORD, SDK, is_rocprof, read_rocpd, read_rocprof_json
from loadfactor.sources.traces.tables import ArrowTables, SqliteTables
from loadfactor.sources.traces.xplane import looks_like_xplane, read_xplane
from loadfactor.tables.trace_events import TraceCapture

_SNIFFED: Final = 4 * BYTES_PER_KIB
_SPACES: Final = b" \t\r\n\xef\xbb\xbf"
_TRACES_IN_FOLDERS: Final = (
    "*trace*.json",
    "*trace*.json.gz",
    "*.xplane.pb",
    "*.xplane.pb.gz",
    "*.sqlite",
    "*.sqlite.gz",
    "*_results.db",
    "*.rpd",
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
_REPORTS: Final = (".nsys-rep", ".qdrep", ".qdstrm")


_PERFETTO: Final = (".pftrace", ".perfetto-trace", ".perfetto", ".proto")
_XPROF: Final = re.compile(
    r"\b(overview_page|input_pipeline(?:_analyzer)?|tensorflow_stats|framework_op_stats|kernel_stats|op_stats|op_profile|memory_profile"
    r"|memory_viewer|pod_viewer|hlo_stats|hlo_proto|roofline_model|dcn_collective_stats|megascale_stats"
    r"|inference_profile|dcn_slack_analysis)"
    r"(?:\.(?:pb|json|csv))?(?:\.gz)?$"
)
"""Files of xprof's tools, which lie beside the XPlane that they are made from."""
_GVIZ: Final = re.compile(rb'^\[?\s*\{\s*"(?:cols|p|rows)"\s*:')
_ROCPROF_CSV: Final = re.compile(
    rb'(?:\xef\xbb\xbf)?"?(?:Kind"?,"?Agent_Id|Index"?,"?KernelName|Domain"?,"?Function|Name"?,"?Calls"?,"?TotalDurationNs)'
)
_FIELDS_OF_PLANE: Final = 6


def looks_like_perfetto(begin: bytes) -> bool:
    """Whether bytes begin as a list of packets: field 1, of bytes, with fields that no plane of an XPlane has."""
    if not looks_like_xplane(begin):
        return False
    view, inside = memoryview(begin), False
    try:
        for number, start, end, wire in walk(view, 0, len(begin)):
            inside = number == 1 and wire == BYTES
            if not inside:
                return False
            if any(of > _FIELDS_OF_PLANE for of, *_ in walk(view, start, end)):
                return True
    except WireError:
        pass  # the first bytes end within a packet
    return False


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
    if path.name.endswith(".ncu-rep"):
        raise SourceError(
            f"{path} is a report of Nsight Compute, of kernels one by one; record with Nsight Systems: `nsys profile`"
        )
    if begin.startswith(SQLITE):
        tables = SqliteTables(path)
        yield read_rocpd(tables) if is_rocprof(tables.names()) else read_export(tables)
        return
    if found := _XPROF.search(path.name):
        raise SourceError(
            f"{path} is what xprof's {found[1]} says, sums without a time line; name the *.xplane.pb beside it, in"
            " plugins/profile/RUN"
        )
    for magic, what in _REFUSED:
        if begin.startswith(magic):
            raise SourceError(f"{path} is {what}")
    text = begin.lstrip(_SPACES)
    if text.startswith((b"{", b"[")) and _GVIZ.search(text):
        raise SourceError(
            f"{path} is a table of a tool of xprof, without a time line; name the *.xplane.pb that it was made from, in"
            " plugins/profile/RUN"
        )
    if SDK.encode() in begin:
        yield read_rocprof_json(TracePieces(path))
    elif b'"BeginNs"' in begin:
        raise SourceError(
            f"{path} is JSON of rocprof before ROCm 6, which says little of launches; record again: `{RECORD}`"
        )
    elif _ROCPROF_CSV.match(begin):
        raise SourceError(f"{path} is a CSV of rocprof, which has no launches; record a database: `{RECORD}`")
    elif looks_like_perfetto(begin) or path.name.removesuffix(".gz").endswith(_PERFETTO):
        raise SourceError(
            f"{path} is a protobuf of Perfetto; `traceconv json {path.name} trace.json` makes Chrome JSON of it, and AMD's profiler"
            f" writes what can be read by `{RECORD}`"
        )
    elif text.startswith(b"[") and text[1:].lstrip(_SPACES).startswith(b"["):
        yield read_memory_timeline(TracePieces(path))
    elif text.startswith((b"{", b"[")):
        yield read_kineto(TracePieces(path))
    elif looks_like_xplane(begin) or ".xplane.pb" in path.name:
        yield read_xplane(TracePieces(path))
    elif not begin:
        raise SourceError(f"{path} is empty")
    else:
        known = recognize(begin, path.name)
        raise SourceError(
            f"{path} is {known[0]}, and no trace; {known[1]}"
            if known
            else f"{path} is no trace that is known: Kineto or Chrome JSON, XPlane, or an export of Nsight Systems"
            " (SQLite, Parquet, Arrow) or rocprofv3 (rocpd database, JSON)"
        )


def _read_folder(path: Path) -> Iterator[TraceCapture]:
    if any(found for pattern in _TABLES for found in path.glob(pattern)):
        yield read_export(ArrowTables(path))
        return
    files = sorted({found for pattern in _TRACES_IN_FOLDERS for found in path.rglob(pattern) if found.is_file()})
    if not files:
        raise SourceError(
            f"{path} holds no trace: no *trace*.json, *.xplane.pb, *.sqlite or tables of Nsight Systems; name the files"
        )
    for file in files:
        yield from read_trace(file)
