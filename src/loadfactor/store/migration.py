"""Migration of stores written by earlier versions, by whoever opens them: whole or not at all.

Formats 1 and 2 kept one file a day with the starts of samples worked out, rows of all imports in one, and the list of imports in
the manifest. Format 1 kept prices in dollars (`usd_per_gpu_hour`) and knew no currency. The ledger is booked anew.
"""

import json
from errno import ENOSPC
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from loadfactor.base.errors import StoreError
from loadfactor.store.import_records import ImportRecord, add_records
from loadfactor.store.manifest import NAME, Manifest, StoredFile, name_file
from loadfactor.store.sample_columns import AS_TAKEN
from loadfactor.store.sample_files import read
from loadfactor.store.sample_imports import Series, write_cell
from loadfactor.store.settle import settle
from loadfactor.store.small_imports import fold_table
from loadfactor.store.small_tables import LOGGED, name_columns
from loadfactor.store.writer import Writer
from loadfactor.tables.columns import Table
from loadfactor.tables.schema import TABLES

BEFORE: Final = 0
"""The number of an import that an earlier version made; it did not keep the rows of imports apart."""


def start_migration(folder: Path) -> Manifest:
    """What the books of today begin with in the folder of an earlier store: nothing but the number of its generation."""
    return Manifest(_read(folder)["generation"])


def migrate(writer: Writer) -> None:
    """Bring everything an earlier store holds into today's files. Raises StoreError where it cannot be read."""
    try:
        _migrate(writer, _read(writer.folder))
    except (KeyError, TypeError, ValueError, OSError, pa.ArrowException) as error:
        if getattr(error, "errno", None) == ENOSPC:
            raise  # says nothing of the store
        why = " ".join(str(error).split())
        raise StoreError(
            f"{writer.folder} is of an earlier version and could not be brought to this one ({why}); nothing in it was changed,"
            " restore it from a backup or import into a new store"
        ) from error


def _migrate(writer: Writer, raw: dict[str, Any]) -> None:
    writer.currency = raw.get("currency") or writer.currency
    paths: dict[str, list[tuple[int | None, Path]]] = {}
    for file in raw["files"]:
        paths.setdefault(file["table"], []).append((file["day"], writer.folder / file["name"]))
    for kept in TABLES:
        if kept.name != "samples" and kept.name in paths:
            _migrate_table(writer, kept, [path for _, path in paths[kept.name]])
    last: dict[Series, int] = {}
    for day, path in sorted(paths.get("samples", []), key=lambda of: of[0] or 0):
        settled = settle(_read_samples(writer, path), last, refuse=False)
        last |= settled.last
        writer.swap((), [write_cell(writer, settled, day or 0, (BEFORE, BEFORE), settled_alone=True)])
    records = [
        ImportRecord(
            number,
            i["digest"],
            i["source"],
            tuple(i["paths"]),
            i["rows"],
            tuple((w, t, n) for w, t, n in i["gaps"]),
            i.get("held_by"),
        )
        for number, i in enumerate(raw["imports"], start=1)
    ]
    if records:
        add_records(writer, records)
    writer.manifest = Manifest(**{**writer.manifest.__dict__, "last_import": len(records)})


def _migrate_table(writer: Writer, kept: Table, paths: list[Path]) -> None:
    there = pq.read_schema(paths[0]).names
    old = {name: name.replace("price_per", "usd_per") for name in kept.schema.names}
    columns = ", ".join(
        name if name in there else f"{old[name]} AS {name}" if old[name] in there else f"NULL AS {name}"
        for name in kept.schema.names
    )
    rows = f"SELECT {columns}, {BEFORE}::INTEGER AS import_no, row_number() OVER () AS seq, false AS watched FROM {read(paths)}"
    log = StoredFile(name_file(kept.name), kept.name, 0, 0, 0, is_log=True, imports=(BEFORE, BEFORE))
    log = writer.copy(f"SELECT {name_columns(kept)}, {LOGGED} FROM ({rows})", log)
    writer.swap((), [log])
    fold_table(writer, kept, read(writer.paths([log])))


def _read_samples(writer: Writer, path: Path) -> pa.Table:
    """The samples of a day of an earlier store, as they were taken."""
    there = pq.read_schema(path).names
    given = {
        "sampled_utc": "from_utc + length_ms",
        "began_utc": "from_utc + length_ms - reach_ms",
        "import_no": f"{BEFORE}",
        "seq": "row_number() OVER ()",
    }
    columns = ", ".join(f"{given.get(n, n if n in there else 'NULL')} AS {n}" for n in AS_TAKEN.names)
    return writer.fetch(f"SELECT {columns} FROM {read([path])} WHERE late_ms = 0").cast(AS_TAKEN)


def _read(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / NAME).read_bytes())
    return found
