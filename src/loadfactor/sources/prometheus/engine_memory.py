"""What is remembered of the counts of serving engines, as a table and back; their targets are remembered as nodes are."""

from typing import Final

import pyarrow as pa

from loadfactor.sources.prometheus.engine_source import EngineSource

COUNTS: Final = pa.schema({"source": pa.string(), "counts": pa.binary()})


def list_counts(source: EngineSource) -> pa.Table:
    """The counts of all replicas."""
    return pa.table({"source": [source.name], "counts": [source.counts.state()]}, schema=COUNTS)


def restore_counts(source: EngineSource, counts: pa.Table) -> None:
    """Remembers the counts of `list_counts`."""
    source.counts.restore(counts["counts"][0].as_py())
