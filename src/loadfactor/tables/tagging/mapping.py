"""The mapping: a table of people's own that says, with dates, which jobs were of which experiment, team, project and purpose."""

import csv
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from typing import Final

from loadfactor.base.errors import InputError
from loadfactor.base.units import MS_PER_S
from loadfactor.tables.schema import ALWAYS
from loadfactor.tables.tagging.rules import GIVES, Condition, TagRule, check_field, make_rule, read_pattern

FROM, TO = "from", "to"
DATES: Final = (FROM, TO)


def read_mapping(text: str, label: str) -> tuple[TagRule, ...]:
    """Rows of a mapping as rules. A column is something to look at (a cell is a glob, empty: any), from, to, or what is given.

    Raises InputError with `label` and the line of what is wrong.
    """
    lines = csv.reader(text.removeprefix("\ufeff").splitlines())
    header: list[str] = []
    rules = []
    try:
        for cells in lines:
            if not any(cell.strip() for cell in cells) or cells[0].lstrip().startswith("#"):
                continue
            where = f"{label}: line {lines.line_num}"
            if not header:
                header = _read_header(cells, where)
            elif len(cells) != len(header):
                raise InputError(f"{where} has {len(cells)} cells, the header has {len(header)}")
            else:
                found = {name: cell.strip() for name, cell in zip(header, cells, strict=True) if cell.strip()}
                rules.append(_read_row(found, where))
    except csv.Error as error:
        raise InputError(f"{label}: line {lines.line_num}: {error}") from error
    if not header:
        raise InputError(f"{label} is empty; begin with a header: user,from,to,experiment,team")
    return tuple(rules)


def _read_header(cells: list[str], where: str) -> list[str]:
    names = [cell.strip() for cell in cells]
    # of what is given the source's own value cannot be looked at here: a column has one meaning
    for name in names:
        if name not in DATES and name not in GIVES:
            check_field(name, where)
        if names.count(name) > 1:
            raise InputError(f"{where}: column {name!r} is there twice")
    if not set(names) & set(GIVES):
        raise InputError(f"{where}: no column says what is given; add one of {', '.join(GIVES)}")
    return names


def _read_row(found: Mapping[str, str], where: str) -> TagRule:
    conditions = tuple(
        Condition(name, (read_pattern(cell, f"{where}: {name}"),))
        for name, cell in found.items()
        if name not in DATES and name not in GIVES
    )
    if not conditions:
        raise InputError(f"{where} matches every job; fill in a column that says which")
    start, end = (read_limit(found.get(name), where, name) for name in DATES)
    span = (ALWAYS[0] if start is None else start, ALWAYS[1] if end is None else end)
    if span[0] >= span[1]:
        raise InputError(f"{where}: `to` {found[TO]} is not after `from` {found[FROM]}")
    return make_rule(conditions, {name: found[name] for name in GIVES if name in found}, where, span)


def read_limit(text: str | None, where: str, name: str) -> int | None:
    """Milliseconds of a day's midnight UTC, or of a time with its zone. Raises InputError for what is neither."""
    if text is None:
        return None
    try:
        if len(text) == len("2026-10-01"):
            at = datetime.combine(date.fromisoformat(text), time(), UTC)
        else:
            at = datetime.fromisoformat(text)
    except ValueError as error:
        raise InputError(f"{where}: {name} {text!r} is no day; write 2026-10-01") from error
    if at.tzinfo is None:
        raise InputError(f"{where}: {name} {text!r} has no zone; write {text}Z, or the day alone")
    return round(at.timestamp() * MS_PER_S)
