"""Decoder of the traces of Mooncake's service, JSON lines: timestamp (ms), lengths, and hash_ids of 512-token blocks."""

import json
from collections.abc import Iterator
from typing import Final

from loadfactor.base.units import NS_PER_MS
from loadfactor.sources.base import Input
from loadfactor.sources.parsing.text_blocks import split_lines
from loadfactor.sources.public_traces.requests.chunk import ChunkBuilder, RequestChunk, TraceReport

BLOCK_TOKENS: Final = 512
CHUNK_REQUESTS: Final = 4096  # a request carries dozens of hashes


def decode_mooncake(source: Input, report: TraceReport) -> Iterator[RequestChunk]:
    """The requests in chunks, with their prefix blocks."""
    report.block_tokens = BLOCK_TOKENS
    chunk = ChunkBuilder(source.label, CHUNK_REQUESTS)
    for line, text in enumerate(split_lines(source), start=1):
        if not text.strip():
            continue
        try:
            row = json.loads(text)
            at_ns = round(float(row["timestamp"]) * NS_PER_MS)
            prompt, output = int(row["input_length"]), int(row["output_length"])
            blocks = [int(h) for h in row.get("hash_ids", ())]
        except (ValueError, KeyError, TypeError, OverflowError):
            report.count_unreadable(line)
            continue
        chunk.add(line, f"timestamp {row['timestamp']}", at_ns, prompt, output, blocks)
        if chunk.full:
            yield chunk.take(with_blocks=True)
    if len(chunk):
        yield chunk.take(with_blocks=True)
