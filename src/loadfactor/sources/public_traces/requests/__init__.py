"""Which requests did somebody's service get? Traces, streamed as plain chunks: time, prompt and output tokens, prefix blocks.

`read_trace` knows the format by looking: Azure's CSV (TIMESTAMP, ContextTokens, GeneratedTokens), Mooncake's JSON lines
(timestamp ms, input_length, output_length, hash_ids) and ServeGen's client populations (a folder or tar of chunk-N-trace.csv and
chunk-N-dataset.json). Files may be gzipped. Memory does not grow with the file.
"""

import gzip
import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadfactor.errors import SourceError
from loadfactor.units import NS_PER_S

Ints = NDArray[np.int64]
CHUNK_REQUESTS = 65_536


@dataclass(frozen=True)
class RequestChunk:
    """Requests in order of time, `at_ns` from the first; `hashes[offsets[i]:offsets[i+1]]` are the prefix blocks of request i."""

    at_ns: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    offsets: Ints
    hashes: Ints


@dataclass
class TraceReport:
    """What was read, filled while a trace streams: rows, rows with a number missing (left out), and the longest silence."""

    requests: int = 0
    unreadable: int = 0
    first_unreadable_line: int = 0
    span_s: float = 0.0
    longest_gap_s: float = 0.0
    block_tokens: int = 0
    _last_ns: int = field(default=0, repr=False)

    def saw(self, at_ns: Ints) -> None:
        """Count a chunk."""
        if at_ns.size:
            gaps = np.diff(at_ns, prepend=self._last_ns)
            self.longest_gap_s = max(self.longest_gap_s, float(gaps.max()) / NS_PER_S)
            self._last_ns = int(at_ns[-1])
            self.span_s = self._last_ns / NS_PER_S
            self.requests += at_ns.size

    def missing(self, line: int) -> None:
        """Count a row that lacks a number."""
        self.unreadable += 1
        self.first_unreadable_line = self.first_unreadable_line or line


def read_trace(
    path: Path, report: TraceReport | None = None, scale: float = 1.0, seed: int = 1
) -> Iterator[RequestChunk]:
    """Stream a trace's requests. `scale` thins or repeats them at random so that the rate is multiplied; `seed` draws that.

    Rows with a missing number are left out and counted in `report`. Raises SourceError, naming the line, when time runs backwards
    or the format is not known.
    """
    from loadfactor.sources.public_traces.requests import azure, mooncake, servegen

    report = report if report is not None else TraceReport()
    if scale <= 0:
        raise SourceError(f"the scale of a trace must be positive, got {scale:g}; 1 leaves it as it is")
    if not path.exists():
        raise SourceError(f"{path}: there is no such trace")
    if servegen.is_population(path):
        stream = servegen.read(path, scale, seed)
        scale = 1.0  # its clients' rates are scaled before requests are drawn
    else:
        head = _first_line(path)
        if head.lstrip().startswith("{"):
            stream = mooncake.read(path, report)
        elif "ContextTokens" in head:
            stream = azure.read(path, report)
        else:
            raise SourceError(
                f"{path}: not a trace this can read; an Azure CSV (TIMESTAMP, ContextTokens, GeneratedTokens), Mooncake JSON lines "
                "or a ServeGen folder work"
            )
    return _scaled(stream, report, scale, seed)


def open_text(path: Path) -> io.TextIOBase:
    """A text file, unzipped on the way when it is gzip."""
    raw: Any = path.open("rb")
    if raw.peek(2)[:2] == b"\x1f\x8b":
        raw = gzip.GzipFile(fileobj=raw)
    return io.TextIOWrapper(raw, encoding="utf-8-sig")


def _first_line(path: Path) -> str:
    try:
        with open_text(path) as file:
            return file.readline()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{path}: cannot be read as text: {error}") from None


SPREAD_NS = 30 * NS_PER_S  # a request repeated to scale a trace up comes again within half a minute


def _scaled(stream: Iterator[RequestChunk], report: TraceReport, scale: float, seed: int) -> Iterator[RequestChunk]:
    """The chunks with requests dropped or repeated; repetitions come a little later, so that they are no burst of their own."""
    rng = np.random.default_rng(seed)
    later: RequestChunk | None = None
    for chunk in stream:
        if scale != 1.0:
            copies = (np.floor(scale) + (rng.random(chunk.at_ns.size) < scale % 1.0)).astype(np.int64)
            picked = np.repeat(np.arange(copies.size), copies)
            repeated = np.diff(picked, prepend=-1) == 0
            at = chunk.at_ns[picked] + np.where(repeated, rng.integers(1, SPREAD_NS, picked.size), 0)
            upto = int(chunk.at_ns[-1]) if chunk.at_ns.size else 0
            chunk = _picked(chunk, picked, at)
            chunk = chunk if later is None else _joined(later, chunk)
            order = np.argsort(chunk.at_ns, kind="stable")
            now = chunk.at_ns[order] <= upto
            later = _picked(chunk, order[~now], chunk.at_ns[order[~now]])
            chunk = _picked(chunk, order[now], chunk.at_ns[order[now]])
        report.saw(chunk.at_ns)
        yield chunk
    if later is not None and later.at_ns.size:
        report.saw(later.at_ns)
        yield later


def _picked(chunk: RequestChunk, picked: Ints, at_ns: Ints) -> RequestChunk:
    """These requests of a chunk, at other times."""
    prompts, outputs = chunk.prompt_tokens[picked], chunk.output_tokens[picked]
    if not chunk.offsets.size:
        return RequestChunk(at_ns, prompts, outputs, chunk.offsets, chunk.hashes)
    lengths = np.diff(chunk.offsets)[picked]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    hashes = chunk.hashes[np.repeat(chunk.offsets[:-1][picked], lengths) + within]
    return RequestChunk(at_ns, prompts, outputs, offsets, hashes)


def _joined(first: RequestChunk, second: RequestChunk) -> RequestChunk:
    offsets = first.offsets
    if second.offsets.size:
        offsets = np.concatenate([first.offsets, second.offsets[1:] + (first.offsets[-1] if first.offsets.size else 0)])
    return RequestChunk(
        np.concatenate([first.at_ns, second.at_ns]),
        np.concatenate([first.prompt_tokens, second.prompt_tokens]),
        np.concatenate([first.output_tokens, second.output_tokens]),
        offsets,
        np.concatenate([first.hashes, second.hashes]),
    )
