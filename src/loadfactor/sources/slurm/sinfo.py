"""Decoder of sinfo's text with a heading, `-o` or `--Format`: nodes, their GPUs and states."""

import re
from collections.abc import Iterator
from datetime import tzinfo
from typing import Final

import numpy as np
import pyarrow as pa

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import Input
from loadfactor.sources.slurm.gpus import Notes, expand_hostlist
from loadfactor.sources.slurm.jobs import JobTimes, read_text
from loadfactor.sources.slurm.node_rows import NodeRecord, read_node_state
from loadfactor.sources.slurm.printed_tables import TableHeading, TableKind, read_table

REMEDY: Final = 'save `sinfo --all -N -o "%N|%P|%T|%G|%H|%E"`, `sinfo --json` or `scontrol show node`'
IS_SINFO: Final = re.compile(
    rb"\s*(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [^\n]*\n\s*)?"
    rb"(?![^\n]*\bJOBID)(?=[^\n]*\b(?:NODELIST|HOSTNAMES)\b)(?=[^\n]*\b(?:GRES|STATE|AVAIL|PARTITION|REASON)\b)"
)
"""How its heading tells itself from those of squeue and sacct; --long and --iterate write a date above it."""


def decode_sinfo(source: Input, zone: tzinfo | None, notes: Notes) -> Iterator[NodeRecord]:
    """The nodes of a table. SourceError names what is missing, and the line and column of what may be cut off."""
    clock = JobTimes(source.label, zone, notes)
    for line, of in read_table(source, _TABLE, notes):
        texts = {"since": pa.array([of.get("TIMESTAMP")], pa.string())}
        since = clock.convert(texts, np.array([line], dtype=np.int64), None)["since"][0].as_py()
        partition = of.get("PARTITION", "").removesuffix("*")
        try:
            names = expand_hostlist(of.get("NODELIST") or of.get("HOSTNAMES") or "")
        except ValueError as error:
            raise SourceError(f"{source.label}, line {line}: {error}") from None
        for name in names:
            yield NodeRecord(
                name,
                read_text(of["GRES"]),
                read_node_state(of["STATE"]),
                read_text(of.get("REASON")),
                since,
                (partition,) if partition else (),
            )


def _check_columns(label: str, heading: TableHeading) -> None:
    missing = [name for name in ("STATE", "GRES") if name not in heading.names]
    if missing:
        raise SourceError(f"{label} is a table of sinfo without {' and '.join(missing)}; {REMEDY}")
    if heading.is_cut:
        raise SourceError(f"{label} is a table of sinfo whose columns are aligned to the right, and cut off; {REMEDY}")


_TABLE: Final = TableKind(
    "NODELIST|HOSTNAMES", ("NODELIST", "HOSTNAMES", "STATE", "GRES", "TIMESTAMP"), ("REASON",), REMEDY, _check_columns
)
