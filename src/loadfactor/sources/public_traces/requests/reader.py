"""The reader of request traces: finds out the format by looking into the file, and hands its bytes to the decoder.

Azure's CSV (TIMESTAMP, ContextTokens, GeneratedTokens), Mooncake's JSON lines (timestamp ms, input_length, output_length, hash_ids)
and ServeGen's client populations (a folder or tar of chunk-N-trace.csv and chunk-N-dataset.json). Files may be gzipped. Memory does
not grow with the file.
"""

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.sources.files import PIECE_BYTES, check_plain, open_input, read_file
from loadfactor.sources.parsing.text_blocks import join_pieces, split_lines
from loadfactor.sources.public_traces.requests.azure import decode_azure
from loadfactor.sources.public_traces.requests.chunk import RequestChunk, TraceReport
from loadfactor.sources.public_traces.requests.mooncake import decode_mooncake
from loadfactor.sources.public_traces.requests.scaling import scale_requests
from loadfactor.sources.public_traces.requests.servegen import NAME, decode_population

_LIMIT_BYTES: Final = 256 * BYTES_PER_MIB  # of the windows of one client
_CHECK: Final = "check that it is the right file"


def read_requests(
    path: Path, report: TraceReport | None = None, scale: float = 1.0, seed: int = 1
) -> Iterator[RequestChunk]:
    """Stream a trace's requests. `scale` thins or repeats them at random so that the rate is multiplied; `seed` draws that.

    Rows with a missing number are left out and counted in `report`. Raises SourceError, naming the line, when time runs backwards
    or the format is not known.
    """
    report = report if report is not None else TraceReport()
    if scale <= 0:
        raise SourceError(f"the scale of a trace must be positive, got {scale:g}; 1 leaves it as it is")
    if not path.exists():
        raise SourceError(f"{path}: there is no such trace")
    if _is_population(path):
        stream = decode_population(_read_files(path), str(path), scale, seed)  # scaled before requests are drawn
    else:
        stream = _decode_file(path, report)
        if scale != 1.0:
            stream = scale_requests(stream, scale, seed)
    return _count(stream, report)


def _decode_file(path: Path, report: TraceReport) -> Iterator[RequestChunk]:
    source = open_input(path)
    head = next(split_lines(source), "")
    if head.lstrip().startswith("{"):
        return decode_mooncake(source, report)
    if "ContextTokens" in head:
        return decode_azure(source, report)
    raise SourceError(
        f"{path}: not a trace this can read; an Azure CSV (TIMESTAMP, ContextTokens, GeneratedTokens), Mooncake JSON lines "
        "or a ServeGen folder work"
    )


def _count(stream: Iterator[RequestChunk], report: TraceReport) -> Iterator[RequestChunk]:
    for chunk in stream:
        report.count(chunk.at_ns)
        yield chunk


def _is_population(path: Path) -> bool:
    """Whether this is a folder or tar of client chunks."""
    if path.is_dir():
        return any(NAME.search(p.name) for p in path.iterdir())
    return path.is_file() and ".tar" in path.name and tarfile.is_tarfile(path)


def _read_files(path: Path) -> Iterator[tuple[str, str]]:
    """The client chunks of the folder or tar; a tar named …traces… is read together with its sibling …datasets…."""
    if path.is_dir():
        for file in sorted(path.iterdir()):
            if NAME.search(file.name):
                yield file.name, _decode(str(file), read_file(file, _LIMIT_BYTES))
        return
    for tar in (path, path.with_name(path.name.replace("traces", "datasets"))):
        if tar.exists() and (tar == path or tar.name != path.name):
            check_plain(tar)
            with tarfile.open(tar) as archive:
                for member in archive:
                    held = archive.extractfile(member) if member.isfile() and NAME.search(member.name) else None
                    if held is not None:
                        label = f"{tar}: {member.name}"
                        pieces = iter(lambda held=held: held.read(PIECE_BYTES), b"")  # type: ignore[misc]
                        yield member.name, _decode(label, join_pieces(label, pieces, _LIMIT_BYTES, _CHECK))


def _decode(label: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise SourceError(f"{label}: not text (bytes that are not UTF-8); {_CHECK}") from None
