"""Charges in a store: a file for each delivery that an import brings, which counts until a later one of its period replaces it.

Rows of charges are never folded: a delivery counts whole. What does not count any more is a log (`is_log`), which questions do not
read, and counts again when the import that replaced it is forgotten. Which files count follows from the files alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from loadfactor.base.errors import SourceError
from loadfactor.base.units import MS_PER_DAY
from loadfactor.sources.base import Gap
from loadfactor.store.deliveries import ChargeFile, Delivery, check_periods, find_counting, join_parts, name_period
from loadfactor.store.manifest import StoredFile, name_file
from loadfactor.store.sample_files import quote, read
from loadfactor.store.session import ChangeRows, read_rows
from loadfactor.store.small_imports import name_columns, tag_relation, write_tagged
from loadfactor.store.writer import Writer
from loadfactor.tables.charges import CHARGES, DELIVERY

_CELLS: Final = ", ".join(DELIVERY)
_EXTENT: Final = ("ChargePeriodStart", "coalesce(ChargePeriodEnd, ChargePeriodStart)")


def add_charges(writer: Writer, staged: Path, number: int, files: list[tuple[int, str]]) -> Iterator[Gap]:
    """Add the staged rows of an import, a file a delivery, in place of what they replace; yields what that was.

    `files`: the first number of a row of each file, and its name. Raises SourceError where rows of an earlier import are of the
    same days in another period, or two of the files hold the same rows.
    """
    refuse_repeated(writer, read([staged]), files)
    rows = tag_relation(writer, CHARGES.name, read([staged]), writer.entry.tag, writer.work / f"tagged-{staged.name}")
    before, new = _list_files(writer), _group(writer, rows, number)
    for delivery in new:
        check_periods(delivery, before)
        before = _split_replaced(writer, delivery, before)
    counting, whole = find_counting(before), join_parts(before)
    made = [_write_file(writer, f"SELECT {name_columns(CHARGES)} FROM {rows} WHERE {_match(d)}", d) for d in new]
    writer.swap((), [f.stored for f in made])
    counting -= _choose_files(writer, [*before, *made])
    yield from _tell_replaced([f for f in before if f.stored.name in counting], whole, new)


def forget_charges(writer: Writer, number: int) -> None:
    """Take the rows of an import out; what they replaced counts again."""
    gone = [f for f in writer.manifest.files if f.table == CHARGES.name and f.holds_import(number)]
    if gone:
        writer.swap(gone, [])
        settle_charges(writer)


def settle_charges(writer: Writer) -> None:
    """Find out anew which files count."""
    _choose_files(writer, _list_files(writer))


def retag_charges(writer: Writer, tag: ChangeRows) -> int:
    """Tag every row anew, those that do not count too; how many of them that changes."""
    changed = 0
    for stored in [f for f in writer.manifest.files if f.table == CHARGES.name]:
        path = writer.work / f"tagged-{stored.name}"
        rows = write_tagged(writer, CHARGES.name, read_rows(CHARGES.name, writer.paths([stored])), tag, path)
        if rows:
            made = replace(stored, name=name_file(CHARGES.name, stored.day))
            writer.swap([stored], [writer.copy(f"SELECT * FROM {read([path])}", made, [stored], _EXTENT)])
            changed += rows
        path.unlink()
    return changed


def _list_files(writer: Writer) -> list[ChargeFile]:
    return [_describe(writer, f) for f in writer.manifest.files if f.table == CHARGES.name]


def _describe(writer: Writer, stored: StoredFile) -> ChargeFile:
    rows = read_rows(CHARGES.name, writer.paths([stored]))
    (found,) = _group(writer, rows, stored.imports[0] if stored.imports else 0)
    return ChargeFile(stored, found)


def _group(writer: Writer, rows: str, number: int) -> list[Delivery]:
    found = writer.raw.execute(
        f"SELECT {_CELLS}, max(BillingPeriodEnd), list(SubAccountId), bool_or(has_none) FROM"
        f" (SELECT {_CELLS}, SubAccountId, max(BillingPeriodEnd) AS BillingPeriodEnd, SubAccountId IS NULL AS has_none"
        f" FROM {rows} GROUP BY {_CELLS}, SubAccountId) GROUP BY {_CELLS} ORDER BY {_CELLS}"
    ).fetchall()
    return [
        Delivery(
            number, provider, account, start, end, dataset, frozenset([*(subs or ()), *([None] if has_none else [])])
        )
        for provider, account, start, dataset, end, subs, has_none in found
    ]


def _choose_files(writer: Writer, files: Sequence[ChargeFile]) -> set[str]:
    counting = find_counting(list(files))
    wrong = [f.stored for f in files if f.stored.is_log == (f.stored.name in counting)]
    writer.swap(wrong, [replace(f, is_log=not f.is_log) for f in wrong])
    return counting


def _split_replaced(writer: Writer, later: Delivery, files: list[ChargeFile]) -> list[ChargeFile]:
    """The files as they are once the rows of the one sub account that a delivery replaces lie in files of their own."""
    split = False
    for whole in join_parts(files).values():
        if not (later.replaces(whole) and later.in_part(whole)):
            continue
        (account,) = later.sub_accounts
        for file in files:
            if _is_part(file, whole) and file.delivery.sub_accounts > later.sub_accounts:
                rows = f"SELECT * FROM {read_rows(CHARGES.name, writer.paths([file.stored]))} WHERE"
                same = f"SubAccountId IS NOT DISTINCT FROM {_write(account)}"
                parts = [
                    _write_file(writer, f"{rows} {where}", whole, [file.stored]) for where in (same, f"NOT ({same})")
                ]
                writer.swap([file.stored], [part.stored for part in parts])
                split = True
    return _list_files(writer) if split else files


def _write_file(writer: Writer, sql: str, of: Delivery, replaces: Sequence[StoredFile] = ()) -> ChargeFile:
    day = None if of.start is None else of.start // MS_PER_DAY
    file = StoredFile(name_file(CHARGES.name, day), CHARGES.name, 0, 0, 0, day=day, imports=(of.number, of.number))
    return ChargeFile(writer.copy(sql, file, replaces, _EXTENT), of)


def _match(of: Delivery) -> str:
    """SQL: the condition that rows of a delivery meet."""
    cells = zip(DELIVERY, _cells(of), strict=True)
    return " AND ".join(f"{name} IS NOT DISTINCT FROM {_write(value)}" for name, value in cells)


def _tell_replaced(
    gone: Sequence[ChargeFile], whole: dict[tuple[object, ...], Delivery], new: Sequence[Delivery]
) -> Iterator[Gap]:
    for file in gone:
        of = file.delivery
        reported = f"import {of.number} brought {name_period(of)} before: its rows are replaced"
        yield Gap(CHARGES.name, reported, file.stored.rows)
        later = [d for d in new if any(d.replaces(w) and _is_part(file, w) for w in whole.values())]
        named = frozenset[str | None]().union(*(d.sub_accounts for d in later))
        if unnamed := sorted(name or "none" for name in of.sub_accounts - named):
            more = f" and {len(unnamed) - 1} more" if len(unnamed) > 1 else ""
            yield Gap(
                CHARGES.name,
                f"rows of sub account {unnamed[0]}{more} of import {of.number} are replaced, and this bill has none of them",
                len(unnamed),
            )


def _is_part(file: ChargeFile, whole: Delivery) -> bool:
    return _cells(file.delivery) == _cells(whole) and file.delivery.number == whole.number


def _cells(of: Delivery) -> tuple[str | int | None, ...]:
    return of.provider, of.account, of.start, of.dataset


def _write(value: str | int | None) -> str:
    return "NULL" if value is None else quote(value) if isinstance(value, str) else str(value)


MOST_SHARED: Final = 0.5
"""Of the rows of the smaller of two files. Parts of a bill share hardly any: lines name resource, meter, time and amount."""
FEWEST_SHARED: Final = 2
_ROWS_COMPARED: Final = 1_000_000
"""About so many; of a larger import those whose hash says so."""
_OF_WHO_PAYS: Final = ("team", "project", "experiment_id", "purpose", "user", "original_holder")


def refuse_repeated(writer: Writer, rows: str, files: list[tuple[int, str]]) -> None:
    """SourceError where two files hold the same rows; `files`: the first number of a row (`seq`) of each, and its name."""
    if len({name for _, name in files}) < FEWEST_SHARED:
        return
    ranges = ", ".join(f"({first}, {quote(name)})" for first, name in files)
    cells = ", ".join(c.name for c in CHARGES.columns if c.name not in _OF_WHO_PAYS)
    (total,) = writer.fetch_one(f"SELECT count(*) FROM {rows}")
    writer.materialize(
        "bill_lines",
        f"SELECT DISTINCT line, name FROM (SELECT hash({cells}) AS line, seq FROM {rows})"
        f" ASOF JOIN (VALUES {ranges}) AS file(first, name) ON seq >= first WHERE line % {1 + total // _ROWS_COMPARED} = 0",
    )
    found = writer.fetch_one(
        "WITH sizes AS (SELECT name, count(*) AS lines FROM bill_lines GROUP BY name),"
        " shared AS (SELECT a.name AS one, b.name AS other, count(*) AS lines FROM bill_lines a JOIN bill_lines b"
        " ON a.line = b.line AND a.name < b.name GROUP BY ALL)"
        " SELECT one, other FROM shared JOIN sizes a ON one = a.name JOIN sizes b ON other = b.name"
        f" WHERE shared.lines >= greatest({FEWEST_SHARED}, {MOST_SHARED} * least(a.lines, b.lines)) ORDER BY one, other LIMIT 1"
    )
    writer.raw.execute("DROP TABLE bill_lines")
    if found:
        raise SourceError(
            f"{found[0]} and {found[1]} hold mostly the same rows, which would count twice: import them one after the other,"
            " the later delivery last"
        )
