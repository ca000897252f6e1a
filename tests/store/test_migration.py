"""Stores of earlier versions open with today's code, and newer ones are refused."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from loadfactor.books.books import Books
from loadfactor.errors import StoreError
from loadfactor.store import manifest

TABLES = {
    "devices": "device_id,node,accelerator,from_utc,to_utc\ng0,n0,h100-sxm,2026-05-01T00:00:00Z,2026-05-01T10:00:00Z\n",
    "allocations": "job_id,node,gpus,team,from_utc,to_utc\na,n0,1,red,2026-05-01T00:00:00Z,2026-05-01T04:00:00Z\n",
    "prices": "basis,price_per_gpu_hour\ncontracted,2.5\n",
}


@pytest.fixture
def old_store(tmp_path: Path) -> Path:
    """A store as version 0.1 wrote it: format 1, prices in dollars by name, no currency."""
    (tmp_path / "tables").mkdir()
    for name, text in TABLES.items():
        (tmp_path / "tables" / f"{name}.csv").write_text(text)
    store = tmp_path / "store"
    Books(store).add("tables", [tmp_path / "tables"])
    raw: dict[str, Any] = json.loads((store / manifest.NAME).read_text())
    for file in raw["files"]:
        if file["table"] == "prices":
            path = store / file["name"]
            rows = pq.read_table(path).drop_columns(["currency"])
            pq.write_table(rows.rename_columns([c.replace("price_per", "usd_per") for c in rows.column_names]), path)
            file |= {"bytes": path.stat().st_size, "crc32": manifest.crc32(path)}
    raw |= {"format": 1, "set_aside": raw.pop("quarantined")}
    for gone in ("currency", "sources_key"):
        del raw[gone]
    for record in raw["imports"]:
        del record["held_by"]
    (store / manifest.NAME).write_text(json.dumps(raw))
    return store


def test_an_old_store_opens_with_its_numbers(old_store: Path) -> None:
    """A store of format 1 is brought to today's format when it is opened, and answers as before."""
    values = {
        r.metric: (r.value, r.currency)
        for r in Books(old_store).show(["cost", "unallocated_cost", "allocated_gpu_hours"])
    }
    assert values == {"cost": (25.0, "USD"), "unallocated_cost": (15.0, "USD"), "allocated_gpu_hours": (4.0, None)}
    assert json.loads((old_store / manifest.NAME).read_text())["format"] == manifest.FORMAT


def test_an_old_store_takes_new_prices(old_store: Path, tmp_path: Path) -> None:
    """After the migration an import of prices works on the same table."""
    (tmp_path / "prices.csv").write_text("basis,price_per_gpu_hour,from_utc\ncontracted,5,2026-05-01T05:00:00Z\n")
    books = Books(old_store)
    books.add("prices", [tmp_path / "prices.csv"])
    assert books.show("cost")[0].value == 37.5


def test_a_newer_store_is_refused(old_store: Path) -> None:
    """A store of a later format is refused in one line that says what to install, and is left as it is."""
    path = old_store / manifest.NAME
    path.write_text(path.read_text().replace('"format": 1', f'"format": {manifest.FORMAT + 1}'))
    before = path.read_text()
    with pytest.raises(StoreError, match=r"written by a newer loadfactor .* install the newest version"):
        Books(old_store)
    assert path.read_text() == before


def test_a_store_that_cannot_be_migrated_is_left_alone(old_store: Path) -> None:
    """When a file of an old store is missing, the migration stops with one line and changes nothing."""
    for prices in old_store.glob("prices-*.parquet"):
        prices.unlink()
    before = (old_store / manifest.NAME).read_text()
    with pytest.raises(StoreError, match="of an earlier version and could not be brought to this one"):
        Books(old_store)
    assert (old_store / manifest.NAME).read_text() == before
