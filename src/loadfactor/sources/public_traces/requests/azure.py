"""Which requests did Azure's LLM services get? AzureLLMInferenceTrace_*.csv: TIMESTAMP, ContextTokens, GeneratedTokens."""

import csv
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import numpy as np

from loadfactor.errors import SourceError
from loadfactor.sources.public_traces.requests import CHUNK_REQUESTS, RequestChunk, TraceReport, open_text

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  the file's stamps carry no zone and only differences are used


def read(path: Path, report: TraceReport) -> Iterator[RequestChunk]:
    """The requests in chunks, time from the first one. A stamp has seven decimals: hundred-nanosecond ticks."""
    none = np.zeros(0, np.int64)
    with open_text(path) as file:
        rows = csv.reader(file)
        head = next(rows)
        try:
            when, context, generated = (head.index(n) for n in ("TIMESTAMP", "ContextTokens", "GeneratedTokens"))
        except ValueError:
            raise SourceError(
                f"{path}: needs the columns TIMESTAMP, ContextTokens, GeneratedTokens, has {', '.join(head)}"
            ) from None
        start = last = None
        kept: list[tuple[int, int, int]] = []
        for line, row in enumerate(rows, start=2):
            try:
                at, prompt, output = _ns(row[when]), int(float(row[context])), int(float(row[generated]))
            except (ValueError, IndexError, OverflowError):
                report.missing(line)
                continue
            start = at if start is None else start
            if last is not None and at < last:
                raise SourceError(
                    f"{path}, line {line}: {row[when]} is before the line above it; sort the trace by time"
                )
            last = at
            kept.append((at - start, prompt, output))
            if len(kept) == CHUNK_REQUESTS:
                yield _chunk(kept, none)
                kept = []
        if kept:
            yield _chunk(kept, none)


def _chunk(kept: list[tuple[int, int, int]], none: np.ndarray) -> RequestChunk:
    at, prompt, output = np.array(kept, np.int64).T
    return RequestChunk(at.copy(), prompt.copy(), output.copy(), none, none)


def _ns(stamp: str) -> int:
    """Nanoseconds since 1970 of `2023-11-16 18:17:03.9799600`; `T`, `Z` and an offset are understood."""
    text = stamp.strip().replace("T", " ")
    for zone in ("Z", "+00:00"):
        text = text.removesuffix(zone)
    whole, _, fraction = text.partition(".")
    seconds = int((datetime.strptime(whole, "%Y-%m-%d %H:%M:%S") - EPOCH).total_seconds())  # noqa: DTZ007  as above
    return seconds * 1_000_000_000 + int((fraction + "000000000")[:9])
