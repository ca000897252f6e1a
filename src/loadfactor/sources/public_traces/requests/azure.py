"""Decoder of the traces of Azure's LLM services, AzureLLMInferenceTrace_*.csv: TIMESTAMP, ContextTokens, GeneratedTokens."""

import csv
from collections.abc import Iterator
from typing import Final

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import Input
from loadfactor.sources.parsing.text_blocks import split_lines
from loadfactor.sources.parsing.times import parse_stamp
from loadfactor.sources.public_traces.requests.chunk import ChunkBuilder, RequestChunk, TraceReport

CHUNK_REQUESTS: Final = 65_536
_COLUMNS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def decode_azure(source: Input, report: TraceReport) -> Iterator[RequestChunk]:
    """The requests in chunks. A stamp has seven decimals (ticks of 100 ns) and no zone: only differences are used."""
    rows = csv.reader(split_lines(source))
    head = next(rows)
    try:
        when, context, generated = (head.index(name) for name in _COLUMNS)
    except ValueError:
        raise SourceError(f"{source.label}: needs the columns {', '.join(_COLUMNS)}, has {', '.join(head)}") from None
    chunk = ChunkBuilder(source.label, CHUNK_REQUESTS)
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
