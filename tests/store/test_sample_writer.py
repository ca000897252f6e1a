"""Files of samples: what was written is read, by pyarrow and by DuckDB, with the store's description in the footer."""

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from loadfactor.store.normalize import AS_TAKEN, ON_DISK, normalize
from loadfactor.store.sample_imports import write_samples


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """Every column comes back with its type; the texts stand in the footer; nothing is left open."""
    rows = [
        dict.fromkeys(AS_TAKEN.names)
        | {"device_id": f"gpu{i % 3}", "source": "smi", "sampled_utc": 1_777_593_600_000 + i * 1000}
        | {"measured_mask": 1, "busy_share": i / 100, "import_no": 1, "seq": i}
        for i in range(100)
    ]
    normalized = normalize(pa.Table.from_pylist(rows, schema=AS_TAKEN), {}, refuse=True)
    path = tmp_path / "samples.parquet"
    write_samples(normalized.rows, path, {"loadfactor": "described"})
    found = pq.read_table(path)
    assert found.schema.equals(ON_DISK)
    assert found.equals(normalized.rows)
    assert pq.read_metadata(path).metadata[b"loadfactor"] == b"described"
    totals = duckdb.sql(
        f"SELECT count(*), count(DISTINCT device_id), sum(to_utc) FROM '{path}' WHERE late_ms = 0"
    ).fetchone()
    assert totals == (100, 3, sum(r["sampled_utc"] for r in rows))
