"""Requests as plain arrays, chunk by chunk, and what was met while they were read."""

import ast
import csv
import json
import re
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.errors import SourceError
from loadfactor.base.limits import Limits, shorten
from loadfactor.base.units import BYTES_PER_MIB, NS_PER_MS, NS_PER_S, S_PER_DAY
from loadfactor.sources.base import Input
from loadfactor.sources.files import PIECE_BYTES, check_plain, open_input, read_file
from loadfactor.sources.parsing.text_blocks import join_pieces, split_lines
from loadfactor.sources.parsing.times import parse_stamp

Ints = NDArray[np.int64]
TOKENS: Final = Limits(at_least=0, at_most=1e8)  # of a prompt or an answer
LONGEST_D: Final = 366  # from the first request of a trace to its last
MOST_HASH: Final = 2**63 - 1
_COLUMNS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
SPREAD_NS: Final = 30 * NS_PER_S  # a request repeated to scale a trace up comes again within half a minute
NAME = re.compile(r"chunk-(\d+)-(trace\.csv|dataset\.json)$")
WINDOW_S = 600.0  # the width of a window where there is only one
MOST_REQUESTS = 50_000_000  # of a client in a window
START_S = Limits(at_least=0, at_most=LONGEST_D * S_PER_DAY)
RATE_PER_S = Limits(at_least=0, at_most=1e6)
VARIATION = Limits(at_least=0, at_most=1000)
WEIGHT = Limits(at_least=0, at_most=1e12)
TokenTable = tuple[Ints, NDArray[np.float64]]  # values, cumulative probability
_LIMIT_BYTES: Final = 256 * BYTES_PER_MIB  # of the windows of one client
_CHECK: Final = "check that it is the right file"
BLOCK_TOKENS: Final = 512


@dataclass(frozen=True)
class RequestChunk:
    """Requests in order of time, `at_ns` from the first; `hashes[offsets[i]:offsets[i+1]]` are the prefix blocks of request i.

    `offsets` is empty where the trace has no prefix blocks.
    """

    at_ns: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    offsets: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    hashes: Ints = field(default_factory=lambda: np.zeros(0, np.int64))


@dataclass
class TraceReport:
    """Counts of a trace, filled while it streams: rows, rows with a number missing (left out), and the longest silence."""

    requests: int = 0
    unreadable: int = 0
    first_unreadable_line: int = 0
    span_s: float = 0.0
    longest_gap_s: float = 0.0
    block_tokens: int = 0
    _last_ns: int = field(default=0, repr=False)

    def count(self, at_ns: Ints) -> None:
        """Count the requests of a chunk."""
        if at_ns.size:
            gaps = np.diff(at_ns, prepend=self._last_ns)
            self.longest_gap_s = max(self.longest_gap_s, float(gaps.max()) / NS_PER_S)
            self._last_ns = int(at_ns[-1])
            self.span_s = self._last_ns / NS_PER_S
            self.requests += at_ns.size

    def count_unreadable(self, line: int) -> None:
        self.unreadable += 1
        self.first_unreadable_line = self.first_unreadable_line or line


class ChunkBuilder:
    """Collects the requests of a trace, timed from the first one, into chunks of `size`."""

    def __init__(self, label: str, size: int) -> None:
        self._label, self._size = label, size
        self._first_ns: int | None = None
        self._last_ns = 0
        self._requests: list[tuple[int, int, int]] = []
        self._blocks: list[list[int]] = []

    @property
    def full(self) -> bool:
        """True when a chunk should be taken."""
        return len(self._requests) >= self._size

    def add(self, line: int, written: object, at_ns: int, prompt: int, output: int, blocks: Iterable[int] = ()) -> None:
        """Add a request; `written` is its time as it stands in that line.

        Raises SourceError when it is before the one above, or a number makes no sense.
        """
        where = f"{self._label}, line {line}"
        for name, tokens in (("prompt", prompt), ("output", output)):
            if not TOKENS.admit(tokens):
                raise SourceError(f"{where}: {name} tokens must be {TOKENS.words}, got {shorten(str(tokens))}")
        if self._first_ns is None:
            self._first_ns = self._last_ns = at_ns
        if at_ns < self._last_ns:
            raise SourceError(f"{where}: {written} is before the line above it; sort the trace by time")
        if at_ns - self._first_ns > LONGEST_D * S_PER_DAY * NS_PER_S:
            raise SourceError(f"{where}: {shorten(str(written))} is more than {LONGEST_D} days after the first request")
        held = list(blocks)
        if held and not 0 <= min(held) <= max(held) <= MOST_HASH:
            raise SourceError(f"{where}: a hash of a prefix block must be at least 0 and at most {MOST_HASH:,}")
        self._last_ns = at_ns
        self._requests.append((at_ns - self._first_ns, prompt, output))
        self._blocks.append(held)

    def take(self, with_blocks: bool = False) -> RequestChunk:
        """The requests collected since the last call, at least one."""
        at_ns, prompts, outputs = (column.copy() for column in np.array(self._requests, np.int64).T)
        blocks, self._requests, self._blocks = self._blocks, [], []
        if not with_blocks:
            return RequestChunk(at_ns, prompts, outputs)
        offsets = np.concatenate([[0], np.cumsum([len(b) for b in blocks])]).astype(np.int64)
        return RequestChunk(at_ns, prompts, outputs, offsets, np.array([h for b in blocks for h in b], np.int64))

    def __len__(self) -> int:
        return len(self._requests)


def decode_azure(source: Input, report: TraceReport) -> Iterator[RequestChunk]:
    """The requests in chunks. A stamp has seven decimals (ticks of 100 ns) and no zone: only differences are used."""
    rows = csv.reader(split_lines(source))
    head = next(rows)
    try:
        when, context, generated = (head.index(name) for name in _COLUMNS)
    except ValueError:
        raise SourceError(f"{source.label}: needs the columns {', '.join(_COLUMNS)}, has {', '.join(head)}") from None
    chunk = ChunkBuilder(source.label, 65_536)
    for line, row in enumerate(rows, start=2):
        try:
            stamp, prompt, output = parse_stamp(row[when].strip()), int(float(row[context])), int(float(row[generated]))
        except (ValueError, IndexError, OverflowError):
            stamp = None
        if stamp is None:
            report.count_unreadable(line)
            continue
        chunk.add(line, row[when], stamp.at_ns, prompt, output)
        if chunk.full:
            yield chunk.take()
    if len(chunk):
        yield chunk.take()


def scale_requests(stream: Iterator[RequestChunk], scale: float, seed: int) -> Iterator[RequestChunk]:
    """The chunks with requests dropped or repeated, so that the rate is multiplied by `scale`; `seed` draws which.

    Repetitions come a little later, so that they are no burst of their own.
    """
    rng = np.random.default_rng(seed)
    later: RequestChunk | None = None
    for chunk in stream:
        copies = (np.floor(scale) + (rng.random(chunk.at_ns.size) < scale % 1.0)).astype(np.int64)
        picked = np.repeat(np.arange(copies.size), copies)
        repeated = np.diff(picked, prepend=-1) == 0
        at = chunk.at_ns[picked] + np.where(repeated, rng.integers(1, SPREAD_NS, picked.size), 0)
        upto = int(chunk.at_ns[-1]) if chunk.at_ns.size else 0
        chunk = _pick(chunk, picked, at)
        chunk = chunk if later is None else _join(later, chunk)
        order = np.argsort(chunk.at_ns, kind="stable")
        now = chunk.at_ns[order] <= upto
        later = _pick(chunk, order[~now], chunk.at_ns[order[~now]])
        yield _pick(chunk, order[now], chunk.at_ns[order[now]])
    if later is not None and later.at_ns.size:
        yield later


def _pick(chunk: RequestChunk, picked: Ints, at_ns: Ints) -> RequestChunk:
    prompts, outputs = chunk.prompt_tokens[picked], chunk.output_tokens[picked]
    if not chunk.offsets.size:
        return RequestChunk(at_ns, prompts, outputs, chunk.offsets, chunk.hashes)
    lengths = np.diff(chunk.offsets)[picked]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    hashes = chunk.hashes[np.repeat(chunk.offsets[:-1][picked], lengths) + within]
    return RequestChunk(at_ns, prompts, outputs, offsets, hashes)


def _join(first: RequestChunk, second: RequestChunk) -> RequestChunk:
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


def decode_population(files: Iterable[tuple[str, str]], label: str, scale: float, seed: int) -> Iterator[RequestChunk]:
    """Requests of all clients, window by window, drawn with `seed`; every client's rate is multiplied by `scale`.

    `files` are the names and texts of the chunks.
    """
    rng = np.random.default_rng(seed)
    windows, datasets = _parse_files(files)
    if not any(windows.values()):
        raise SourceError(f"{label}: no chunk-N-trace.csv with traffic inside")
    starts = sorted(windows)
    width_s = float(min(np.diff(starts), default=WINDOW_S))
    tables = {client: _parse_dataset(text) for client, text in datasets.items()}
    if not tables:
        raise SourceError(f"{label}: no chunk-N-dataset.json beside the traces, so no token counts; add at least one")
    clients = sorted(tables)
    for start in starts:
        at, prompts, outputs = [], [], []
        for client, rate, cv in windows[start]:
            gaps = _draw_arrivals(rng, rate * scale, cv, width_s)
            owner = client if client in tables else clients[int(rng.integers(len(clients)))]
            ins, outs = tables[owner]
            at.append(gaps + (start - starts[0]))
            prompts.append(_draw_tokens(rng, ins, len(gaps)))
            outputs.append(_draw_tokens(rng, outs, len(gaps)))
        joined = np.concatenate([np.zeros(0), *at])
        order = np.argsort(joined, kind="stable")
        if order.size:
            times = (joined[order] * NS_PER_S).astype(np.int64)
            yield RequestChunk(times, np.concatenate(prompts)[order], np.concatenate(outputs)[order])


def _draw_arrivals(rng: np.random.Generator, rate: float, cv: float, width: float) -> NDArray[np.float64]:
    """Times in a window whose gaps are gamma with this coefficient of variation."""
    if rate <= 0:
        return np.zeros(0)
    if rate * width > MOST_REQUESTS:
        raise SourceError(
            f"a ServeGen client sends {rate * width:,.3g} requests in a window, more than {MOST_REQUESTS:,}; scale it down"
        )
    shape = 1 / max(cv, 0.05) ** 2
    first = rng.random() / rate
    times = first + np.cumsum(rng.gamma(shape, 1 / (shape * rate), int(rate * width * 1.5 + 20 * cv + 20)))
    return times[times < width]


def _draw_tokens(rng: np.random.Generator, table: TokenTable, count: int) -> NDArray[np.int64]:
    values, cumulative = table
    return values[np.minimum(np.searchsorted(cumulative, rng.random(count)), len(values) - 1)]


def _parse_dataset(text: str) -> tuple[TokenTable, TokenTable]:
    sums: dict[str, dict[int, float]] = {"input_tokens": {}, "output_tokens": {}}
    try:
        for window in json.loads(text).values():
            for kind, sums_of in sums.items():
                written = window.get(kind) if isinstance(window, dict) else None
                found = ast.literal_eval(written) if isinstance(written, str) else written
                for tokens, chance in (found or {}).items():
                    count = int(_read(str(tokens), TOKENS))
                    sums_of[count] = sums_of.get(count, 0.0) + _read(str(chance), WEIGHT)
    except (ValueError, SyntaxError, AttributeError, TypeError, RecursionError, MemoryError) as error:
        raise SourceError(
            f"a ServeGen dataset is not {{tokens: probability}} per window, with tokens {TOKENS.words}: {error or 'out of range'}"
        ) from None
    return _accumulate(sums["input_tokens"]), _accumulate(sums["output_tokens"])


def _accumulate(weights: dict[int, float]) -> TokenTable:
    values = np.array(sorted(weights), np.int64)
    if not sum(weights.values()) > 0:
        raise SourceError(
            "a ServeGen dataset without input_tokens or output_tokens; expected {tokens: probability} per window"
        )
    cumulative = np.cumsum([weights[int(v)] for v in values])
    return values, cumulative / cumulative[-1]


def _read(text: str, limits: Limits) -> float:
    number = float(text)
    if not limits.admit(number):
        raise ValueError
    return number


def _parse_files(
    files: Iterable[tuple[str, str]],
) -> tuple[dict[float, list[tuple[int, float, float]]], dict[int, str]]:
    windows: dict[float, list[tuple[int, float, float]]] = {}
    datasets: dict[int, str] = {}
    for name, content in files:
        match = NAME.search(name)
        if match is None:
            continue
        client = int(match.group(1))
        if match.group(2).startswith("dataset"):
            datasets[client] = content
            continue
        for line, text in enumerate(content.splitlines(), start=1):
            cells = text.split(",")
            try:
                start, rate = _read(cells[0], START_S), _read(cells[1] or "0", RATE_PER_S)
                cv = _read(cells[2], VARIATION) if cells[2] else 1.0
            except (ValueError, IndexError):
                raise SourceError(
                    f"{name}, line {line}: expected window start (s, {START_S.words}), rate (a second, {RATE_PER_S.words}), "
                    f"variation ({VARIATION.words}), pattern, got {text[:60]!r}"
                ) from None
            open_now = windows.setdefault(start, [])
            if len(cells) > 3 and cells[3].strip() and rate > 0:
                open_now.append((client, rate, cv))
    return windows, datasets


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


def decode_mooncake(source: Input, report: TraceReport) -> Iterator[RequestChunk]:
    report.block_tokens = BLOCK_TOKENS
    chunk = ChunkBuilder(source.label, 4096)  # a request carries dozens of hashes
    for line, text in enumerate(split_lines(source), start=1):
        if not text.strip():
            continue
        try:
            row = json.loads(text)
            at_ns = round(float(row["timestamp"]) * NS_PER_MS)
            prompt, output = int(row["input_length"]), int(row["output_length"])
            blocks = [int(h) for h in row.get("hash_ids", ())]
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            report.count_unreadable(line)
            continue
        chunk.add(line, f"timestamp {row['timestamp']}", at_ns, prompt, output, blocks)
        if chunk.full:
            yield chunk.take(with_blocks=True)
    if len(chunk):
        yield chunk.take(with_blocks=True)
