"""Which requests did Mooncake's service get? JSON lines: timestamp (ms), lengths, and hash_ids of 512-token blocks."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from loadfactor.errors import SourceError
from loadfactor.sources.public_traces.requests import RequestChunk, TraceReport, open_text
from loadfactor.units import MS_PER_S, NS_PER_S

BLOCK_TOKENS = 512
CHUNK_REQUESTS = 4096  # a request carries dozens of hashes


def read(path: Path, report: TraceReport) -> Iterator[RequestChunk]:
    """The requests in chunks, time from the first one."""
    report.block_tokens = BLOCK_TOKENS
    at: list[int] = []
    prompts: list[int] = []
    outputs: list[int] = []
    blocks: list[list[int]] = []
    start = last = None
    with open_text(path) as file:
        for line, text in enumerate(file, start=1):
            if not text.strip():
                continue
            try:
                row = json.loads(text)
                now = round(float(row["timestamp"]) * (NS_PER_S // MS_PER_S))
                prompt, output = int(row["input_length"]), int(row["output_length"])
                known = [int(h) for h in row.get("hash_ids", ())]
            except (ValueError, KeyError, TypeError, OverflowError):
                report.missing(line)
                continue
            start = now if start is None else start
            if last is not None and now < last:
                raise SourceError(
                    f"{path}, line {line}: timestamp {row['timestamp']} is before the line above it; sort the trace by time"
                )
            last = now
            at.append(now - start)
            prompts.append(prompt)
            outputs.append(output)
            blocks.append(known)
            if len(at) == CHUNK_REQUESTS:
                yield _chunk(at, prompts, outputs, blocks)
                at, prompts, outputs, blocks = [], [], [], []
    if at:
        yield _chunk(at, prompts, outputs, blocks)


def _chunk(at: list[int], prompts: list[int], outputs: list[int], blocks: list[list[int]]) -> RequestChunk:
    offsets = np.concatenate([[0], np.cumsum([len(b) for b in blocks])]).astype(np.int64)
    hashes = np.array([h for b in blocks for h in b], np.int64)
    return RequestChunk(
        np.array(at, np.int64), np.array(prompts, np.int64), np.array(outputs, np.int64), offsets, hashes
    )
