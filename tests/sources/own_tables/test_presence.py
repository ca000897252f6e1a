"""Which GPUs the tables speak of: those that devices lists, or those that were seen when nobody listed any."""

from pathlib import Path

import pytest
from tests.sources.reading import read

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import ReadOptions
from loadfactor.sources.own_tables import SOURCE

T = 1_777_636_800_000
SAMPLES = "device_id,to_utc\n" + "".join(f"{d},{T + i * 30_000}\n" for i in range(3) for d in "ab")


def test_devices_are_inferred_when_nobody_lists_them(tmp_path: Path) -> None:
    """From one step before the first sample, or the start of the first interval, to the last seen; a gap says so."""
    (tmp_path / "samples.csv").write_text(SAMPLES)
    (tmp_path / "allocations.csv").write_text(
        f"job_id,device_id,node,from_utc,to_utc\nj,a,n1,{T - 500_000},{T}\nj,c,,{T},\nk,b,,{T},{T + 10}\n"
    )
    (tmp_path / "devices.csv").write_text("device_id\n")  # a template that was not filled in
    got = read(SOURCE, tmp_path, options=ReadOptions(pool="p"))
    rows = got.tables["devices"].select(["device_id", "node", "pool", "from_utc", "to_utc"]).to_pylist()
    assert rows == [
        {"device_id": "a", "node": "n1", "pool": "p", "from_utc": T - 500_000, "to_utc": T + 60_000},
        {"device_id": "b", "node": None, "pool": "p", "from_utc": T - 30_000, "to_utc": T + 60_000},
        {"device_id": "c", "node": None, "pool": "p", "from_utc": T, "to_utc": None},
    ]
    assert [(g.count, g.what.split(":")[0]) for g in got.gaps] == [(3, "devices without a row in devices")]


def test_a_devices_table_is_a_list(tmp_path: Path) -> None:
    """Its ends are ends, except of devices that it says were only seen; what is inferred is no list."""
    (tmp_path / "devices.csv").write_text("device_id,known_from\na,\nb,seen\n")
    assert read(SOURCE, tmp_path).tables["devices"]["known_from"].to_pylist() == ["list", "seen"]
    (tmp_path / "devices.csv").write_text("device_id\na\n")
    assert read(SOURCE, tmp_path).tables["devices"]["known_from"].to_pylist() == ["list"]
    (tmp_path / "devices.csv").unlink()
    (tmp_path / "samples.csv").write_text(SAMPLES)
    assert read(SOURCE, tmp_path).tables["devices"]["known_from"].to_pylist() == [None, None]


def test_the_start_of_stated_intervals_is_kept(tmp_path: Path) -> None:
    """Where samples say from_utc, presence begins there."""
    (tmp_path / "samples.csv").write_text(f"device_id,from_utc,to_utc\na,{T - 7000},{T}\na,{T},{T + 1}\n")
    (row,) = read(SOURCE, tmp_path).tables["devices"].to_pylist()
    assert (row["from_utc"], row["to_utc"]) == (T - 7000, T + 1)


def test_a_device_that_the_devices_table_does_not_list_is_an_error(tmp_path: Path) -> None:
    """When there is a devices table, it is complete; nothing is inferred."""
    (tmp_path / "samples.csv").write_text(SAMPLES)
    (tmp_path / "devices.csv").write_text("device_id\na\nb\n")
    got = read(SOURCE, tmp_path)
    assert got.tables["devices"]["device_id"].to_pylist() == ["a", "b"]
    assert got.gaps == ()
    (tmp_path / "devices.csv").write_text("device_id\na\n")
    with pytest.raises(SourceError, match=r"samples\.csv: samples mention device 'b' that devices does not list"):
        read(SOURCE, tmp_path)
