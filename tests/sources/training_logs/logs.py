"""Logs of training made up for tests, and what the source makes of them."""

import struct
from collections import defaultdict
from pathlib import Path

from tests.sources.reading import read

from loadfactor.sources.base import ReadOptions
from loadfactor.sources.training_logs import SOURCE
from loadfactor.sources.training_logs.decoder import NO_TOKENS
from loadfactor.sources.training_logs.event_files import mask_crc32c

Amounts = dict[tuple[str, bool], float]


def read_run(*paths: Path, **options: object) -> tuple[list[dict[str, object]], dict[str, int]]:
    """Rows of progress of one job, as they enter the books, and gaps with their counts, but not why there are no tokens."""
    reading = read(SOURCE, *paths, options=ReadOptions(held_by="run", **options))  # type: ignore[arg-type]
    gaps: dict[str, int] = defaultdict(int)
    for gap in reading.gaps:
        if not gap.what.startswith(NO_TOKENS):
            gaps[gap.what] += gap.count
    return (reading.tables["progress"].to_pylist() if "progress" in reading.tables else []), gaps


def add_up(rows: list[dict[str, object]]) -> Amounts:
    total: Amounts = defaultdict(float)
    for row in rows:
        total[str(row["unit"]), bool(row["kept"])] += float(row["amount"])  # type: ignore[arg-type]
    return total


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def megatron_line(step: int, more: str = "", *, samples: int = 4, skipped: int = 0) -> str:
    return (
        f" iteration {step:8d}/    1000 | consumed samples: {step * samples:12d} | elapsed time per iteration (ms): 2000.0 |"
        f" learning rate: 1.485E-04 | global batch size: {samples:5d} | lm loss: 2.02E+01 | loss scale: 12.0 |{more}"
        f" number of skipped iterations: {skipped:3d} | number of nan iterations:   0 |\n"
    )


def event(at_s: float, step: int, tag: str = "", number: float = 0.0) -> bytes:
    """An event of TensorBoard with one scalar, or with none, as a record."""
    data = b"\x09" + struct.pack("<d", at_s) + b"\x10" + _varint(step)
    if tag:
        name = tag.encode()
        value = b"\x0a" + _varint(len(name)) + name + b"\x15" + struct.pack("<f", number)
        summary = b"\x0a" + _varint(len(value)) + value
        data += b"\x2a" + _varint(len(summary)) + summary
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", mask_crc32c(length)) + data + struct.pack("<I", mask_crc32c(data))


def _varint(number: int) -> bytes:
    out = b""
    while number >= 0x80:
        out, number = out + bytes([number & 0x7F | 0x80]), number >> 7
    return out + bytes([number])
