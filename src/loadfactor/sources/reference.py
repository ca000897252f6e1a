"""docs/sources.md: every source with what it reads, gives and lacks, generated from the declarations."""

from typing import Final

from loadfactor.base.limits import (
    MOST_INPUT_BYTES,
    MOST_INPUT_ROWS,
    MOST_INPUT_S,
    MOST_TEXT_BYTES,
    MOST_UNPACKED_TIMES,
    UNPACKED_FREELY_BYTES,
)
from loadfactor.base.units import BYTES_PER_GIB, BYTES_PER_MIB
from loadfactor.sources import NOT_READ, SOURCES, find_source
from loadfactor.sources.origins import FEWER, ORIGINS
from loadfactor.sources.parsing.text_blocks import LINE_LIMIT_BYTES

_HEAD: Final = """# What can be read

Every source of `loadfactor import`, generated from its declaration. What a source lacks stays unknown, never zero; what a file
holds and nothing reads is counted on the receipt. Live, the same decoders run behind [collect live](collect-live.md),
[Kubernetes](connect-kubernetes.md), [Slurm](connect-slurm.md) and [the clouds](connect-clouds.md).

"""
_LIMITS: Final = f"""
## How much of a file is read

A file may come from anybody, also by `POST /api/v1/imports`. One that takes more than is said here is refused in one line, and
nothing of it is kept. Text and tables in Parquet have no fixed limit of rows or seconds, because rows there cost their bytes.

| input | at most |
|---|---|
| SQLite (MLflow, Nsight Systems, rocprof) | {MOST_INPUT_ROWS:,} rows, {MOST_INPUT_BYTES // BYTES_PER_GIB} GiB of cells and {MOST_INPUT_S} seconds per file; views and virtual tables are not read |
| gzip | {MOST_UNPACKED_TIMES} times its size, from {UNPACKED_FREELY_BYTES // BYTES_PER_MIB} MiB on |
| Parquet | {MOST_UNPACKED_TIMES} times its size, from {MOST_TEXT_BYTES // BYTES_PER_MIB} MiB per column of a row group and {MOST_INPUT_BYTES // BYTES_PER_GIB} GiB per file on; from {MOST_INPUT_ROWS:,} rows on, {MOST_UNPACKED_TIMES} rows per byte |
| Parquet of Nsight Systems, read whole | {MOST_INPUT_ROWS:,} rows per table, {MOST_INPUT_BYTES // BYTES_PER_GIB} GiB of texts per column |
| text | {LINE_LIMIT_BYTES // BYTES_PER_MIB} MiB per line |
| XML of nvidia-smi | 16 MiB and 100,000 elements per GPU; no entities |
| JSON | as deep as Python reads, less than 1,000 levels |
"""  # noqa: E501
_OPTIONS: Final = {"begun": "--start"}


def write_sources_page() -> str:
    """The text of docs/sources.md."""
    parts = [_HEAD, "| source | reads |\n|---|---|\n"]
    parts += [f"| [`{entry.name}`](#{entry.name}) | {_escape(entry.reads)} |\n" for entry in SOURCES]
    for entry in SOURCES:
        options = ", ".join(f"`{_OPTIONS.get(name, f'--{name}')}`" for name in find_source(entry.name).uses)
        rows = [
            ("formats", entry.formats),
            ("versions seen", entry.seen),
            ("gives", entry.gives),
            ("lacks", entry.lacks),
            ("record", entry.record),
            ("tested with", _list_origins(entry.name)),
            ("options", options or "none"),
        ]
        parts.append(f"\n## {entry.name}\n\n| | |\n|---|---|\n")
        parts += [f"| {name} | {_escape(text)} |\n" for name, text in rows]
        if entry.page:
            parts.append(f"\nMore: [{entry.page.replace('-', ' ')}]({entry.page}.md).\n")
    parts.append("\n## No sources of their own\n\n| | what it is | instead |\n|---|---|---|\n")
    parts += [f"| {' | '.join(map(_escape, row))} |\n" for row in NOT_READ]
    parts.append(_LIMITS)
    return "".join(parts)


def _list_origins(name: str) -> str:
    """The origins of the files of a source's tests and, where they are fewer than three, why."""
    return "; ".join((*ORIGINS.get(name, ()), *([f"fewer are public: {FEWER[name]}"] if name in FEWER else [])))


def _escape(text: str) -> str:
    return text.replace("|", "\\|")
