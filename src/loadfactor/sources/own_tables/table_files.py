"""The reader of files of our own tables: `samples.parquet`, `samples.csv`, parts `samples-*.…`, or a folder `samples/` of such."""

import os
from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.base.errors import SourceError, say_why
from loadfactor.sources.base import Gap, ReadOptions, Rows
from loadfactor.sources.files import FileChunks, check_plain
from loadfactor.sources.own_tables.parquet_rows import decode_csv, decode_parquet
from loadfactor.sources.parsing.cells import quote
from loadfactor.sources.parsing.steps import DevicesSeen
from loadfactor.tables.columns import Table
from loadfactor.tables.schema import GIVEN, LIST

ENDINGS: Final = (".parquet", ".csv", ".csv.gz")
_NAMES: Final = tuple(t.name for t in GIVEN)
_LEARN_FROM: Final = 33  # instants of a device that its step is learnt from; there may be a hundred thousand devices


def find_tables(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    """The files of the tables in these folders, and the files named themselves, table by table.

    Raises SourceError: no such path, no table in a folder, a file that is named like no table, one table twice.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += _find_in_folder(path)
        elif not path.exists():
            raise SourceError(f"{path} does not exist; check the name")
        else:
            name_table(path)
            check_plain(path)
            found.append(path)
    return tuple(sorted(dict.fromkeys(found), key=lambda p: (_NAMES.index(name_table(p).name), str(p))))


def read_tables(paths: tuple[Path, ...], options: ReadOptions) -> Iterator[Rows | Gap]:
    """The rows of these files; where none holds devices, also those that samples and allocations mention."""
    presence = Presence(str(paths[0].parent), options)
    for path in find_tables(paths):  # devices first, so that the others can be checked against them
        for item in _read_file(path, options):
            if isinstance(item, Rows):
                presence.watch(item)
            yield _mark_listed(item) if isinstance(item, Rows) and item.table == "devices" else item
    yield from presence.make_rows()


def _mark_listed(devices: Rows) -> Rows:
    data = devices.data
    if "known_from" not in data.column_names:
        return replace(devices, data=data.append_column("known_from", pa.repeat(pa.scalar(LIST), data.num_rows)))
    at, known_from = data.schema.get_field_index("known_from"), data["known_from"].cast(pa.string())
    known_from = pc.if_else(pc.equal(pc.fill_null(pc.utf8_trim_whitespace(known_from), ""), ""), LIST, known_from)
    return replace(devices, data=data.set_column(at, "known_from", known_from))


def _read_file(path: Path, options: ReadOptions) -> Iterator[Rows | Gap]:
    table = name_table(path)
    if path.suffix != ".parquet":
        chunks = FileChunks(path)
        yield from decode_csv(chunks.as_input(), table, options.timezone)
        yield from chunks.note_growth()
        return
    try:
        file = pa.OSFile(os.fsencode(path))
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {say_why(error)}") from None
    with file:
        yield from decode_parquet(file, str(path), table, options.timezone)


def name_table(path: Path) -> Table:
    """The table a file holds, by its name or by the folder it lies in; SourceError when neither names one."""
    if _find_ending(path) is not None:
        named = _match_name(path)
        if named is not None:
            return named
        for folder in path.absolute().parents:
            for table in GIVEN:
                if folder.name == table.name:
                    return table
    raise SourceError(
        f"{path} is not named like a table; call it one of {', '.join(_NAMES)} with {' or '.join(ENDINGS)}"
    )


def _find_in_folder(folder: Path) -> list[Path]:
    files = sorted(p for p in folder.iterdir() if p.is_file() and _find_ending(p) and not p.name.startswith((".", "_")))
    found = [p for p in files if _match_name(p) is not None]
    for table in GIVEN:
        whole = [p.name for p in found if _strip_ending(p) == table.name]
        if len(whole) > 1:
            raise SourceError(f"{folder} holds {table.name} more than once ({', '.join(whole)}); keep one")
        parts = folder / table.name
        if parts.is_dir():
            inside = sorted(
                p for p in parts.rglob("*") if p.is_file() and _find_ending(p) and not p.name.startswith((".", "_"))
            )
            if whole and inside:
                raise SourceError(
                    f"{folder} holds {table.name} more than once ({whole[0]} and {table.name}/); keep one"
                )
            found += inside
    for other in files:
        near = get_close_matches(_strip_ending(other), _NAMES, 1, 0.8)
        if other not in found and near:
            raise SourceError(f"{other} is not named like a table; did you mean {near[0]}{_find_ending(other)}?")
    if not found:
        raise SourceError(
            f"{folder} holds none of the tables {', '.join(_NAMES)} as {', '.join(ENDINGS)}; "
            f"`loadfactor tables --write DIR` writes empty ones to fill in"
        )
    return found


def _find_ending(path: Path) -> str | None:
    return next((e for e in ENDINGS if path.name.endswith(e)), None)


def _strip_ending(path: Path) -> str:
    return path.name.removesuffix(_find_ending(path) or "")


def _match_name(path: Path) -> Table | None:
    stem = _strip_ending(path)
    return next((t for t in GIVEN if stem == t.name or stem.startswith(f"{t.name}-")), None)


class Presence:
    """Watches the rows go by; keeps a few numbers for each device, never the rows."""

    def __init__(self, where: str, options: ReadOptions) -> None:
        self._where = where
        self._listed: set[str] = set()
        self._seen = DevicesSeen(options, 0.0, _LEARN_FROM, where)

    def watch(self, rows: Rows) -> None:
        """Devices are listed, samples and allocations must be of a listed one, unless none is. Devices come first.

        Raises SourceError naming the first device that the devices table does not list.
        """
        if rows.table == "devices":
            self._listed.update(rows.data["device_id"].drop_null().to_pylist())
        elif rows.table in ("samples", "allocations") and "device_id" in rows.data.column_names:
            data = rows.data.filter(pc.is_valid(rows.data["device_id"]))
            if self._listed:
                for device in pc.unique(data["device_id"]).to_pylist():
                    if device not in self._listed:
                        raise SourceError(
                            f"{rows.where}: {rows.table} mention device {quote(device)} that devices does not list; add its row"
                        )
            else:
                self._extend(rows.table, data)

    def make_rows(self) -> Iterator[Rows | Gap]:
        """Devices as inferred, and the gap that says so; nothing when a devices table lists them."""
        if not len(self._seen):
            return
        yield from self._seen.make_rows()
        what = "devices without a row in devices: presence inferred from samples and allocations"
        yield Gap(self._where, what, len(self._seen))

    def _extend(self, table: str, data: pa.Table) -> None:
        nulls = pa.nulls(data.num_rows, pa.int64())
        start = data["from_utc"] if "from_utc" in data.column_names else nulls
        end = data["to_utc"] if "to_utc" in data.column_names else nulls
        lone = pc.if_else(pc.is_null(start), end, pa.scalar(None, pa.int64()))
        node = data["node"] if "node" in data.column_names else pa.nulls(data.num_rows, pa.string())
        facts = pa.table({"id": data["device_id"], "start": start, "lone": lone, "end": end, "node": node})
        summary = facts.group_by("id", use_threads=False).aggregate(
            [("start", "min"), ("end", "max"), ("end", "count"), ("id", "count"), ("node", "first")]
        )
        for row in summary.to_pylist():
            device = row["id"]
            self._seen.name(device, row["node_first"])
            open_end = table == "allocations" and row["end_count"] < row["id_count"]
            self._seen.see_interval(device, row["start_min"], row["end_max"], open_end)
        if lone.null_count < len(lone):
            self._see_instants(facts.filter(pc.is_valid(lone)))

    def _see_instants(self, lone: pa.Table) -> None:
        """The timestamps of samples that state no start, device by device."""
        ids = lone["id"].combine_chunks().dictionary_encode()
        order = np.argsort(ids.indices.to_numpy(), kind="stable")
        times = lone["lone"].to_numpy()[order]
        edges = np.searchsorted(ids.indices.to_numpy()[order], np.arange(len(ids.dictionary) + 1))
        for i, device in enumerate(ids.dictionary.to_pylist()):
            at_ms = times[edges[i] : edges[i + 1]]
            self._seen.see_instants(device, int(at_ms.min()), int(at_ms.max()), map(int, at_ms))
