"""Migration of stores written by earlier versions: each step takes a store from one format to the next, whole or not at all.

Format 1 kept prices in dollars (`usd_per_gpu_hour`) and knew no currency; the books are worked out anew from the samples.
"""

import fcntl
import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from loadfactor.errors import StoreError
from loadfactor.store import manifest
from loadfactor.store.manifest import FORMAT, NAME, ImportRecord, Manifest, StoredFile
from loadfactor.tables import PRICES

OLDEST = 1


def migrate(folder: Path) -> None:
    """Bring the store in a folder to today's format; nothing to do where it has that, or where there is none.

    Raises StoreError where the store is newer than this version, or cannot be written.
    """
    found = _read_format(folder)
    if found is None or found == FORMAT:
        return
    if found > FORMAT:
        raise StoreError(
            f"{folder} was written by a newer loadfactor (format {found}; this one knows {FORMAT}); install the newest version"
        )
    try:
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            raw = json.loads((folder / NAME).read_text(encoding="utf-8"))
            if raw["format"] == OLDEST:  # nobody was quicker
                old = _read_first(raw)
                manifest.publish(folder, old, _rename_prices(folder, old))
    except (OSError, KeyError, TypeError, ValueError, pa.ArrowInvalid) as error:
        why = " ".join(str(error).split())
        raise StoreError(
            f"{folder} is of an earlier version and could not be brought to this one ({why}); nothing in it was changed,"
            " restore it from a backup or import into a new store"
        ) from error


def _read_format(folder: Path) -> int | None:
    """The format of the store's manifest; None where there is none, or none that can be read: loading it says why."""
    try:
        found = json.loads((folder / NAME).read_text(encoding="utf-8"))["format"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, int) else None


def _read_first(raw: dict[str, Any]) -> Manifest:
    """A manifest of format 1 in today's words. The ledger is left out: it is booked anew."""
    return Manifest(
        generation=raw["generation"],
        files=tuple(StoredFile(**f) for f in raw["files"]),
        imports=tuple(
            ImportRecord(
                i["digest"], i["source"], tuple(i["paths"]), i["rows"], tuple((g[0], g[1], g[2]) for g in i["gaps"])
            )
            for i in raw["imports"]
        ),
        currency="USD",
        quarantined=tuple((s[0], s[1]) for s in raw["set_aside"]),
        retired=tuple(raw["retired"]),
    )


def _rename_prices(folder: Path, old: Manifest) -> Manifest:
    """The manifest with price files rewritten under today's columns, and without the ledger."""
    files = []
    for file in old.files:
        if file.table == "prices":
            rows = pq.read_table(folder / file.name)
            rows = rows.rename_columns([name.replace("usd_per", "price_per") for name in rows.column_names])
            columns = {c: rows[c] if c in rows.column_names else pa.nulls(rows.num_rows) for c in PRICES.schema.names}
            path = folder / f"prices-{uuid4().hex}.parquet"
            pq.write_table(pa.table(columns).cast(PRICES.schema), path, compression="zstd")
            size = path.stat().st_size
            files.append(replace(file, name=path.name, bytes=size, crc32=manifest.crc32(path)))
        elif file.table != "ledger":
            files.append(file)
    return replace(old, files=tuple(files))
