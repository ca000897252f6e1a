"""The reference of all settings, derived from their declarations: their dotted names, types, defaults and descriptions."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from itertools import groupby
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from loadfactor.settings.config import Settings
from loadfactor.settings.money import Bearing
from loadfactor.settings.retention import Age
from loadfactor.settings.table import Duration, DurationOrZero

_TYPES: Final[dict[Any, str]] = {
    bool: "true or false",
    str: "text",
    int: "whole number",
    float: "number",
    Decimal: "amount",
    Path: "path",
    date: "date",
    datetime: "date and time",
    Duration: "duration",
    DurationOrZero: "duration, or 0s",
    Age: "duration, or forever",
    Bearing: "text, or table of shares",
}
_HEAD: Final = """\
# Every setting

Settings are read from `loadfactor.toml` in the working folder, or from the file that `--config` names. Options on the command line
come before the environment (`LOADFACTOR_STORE=…`, for settings in no table), that before the file, that before the defaults.
`[name]` is one table, `[[name]]` one of several. A name that a table does not have is refused with the nearest one it has.

This page is written from the declarations (`loadfactor settings` prints the same; `--json` for machines), and a test compares them.
"""


@dataclass(frozen=True)
class SettingEntry:
    """One setting: `name` with its tables in front, `[]` behind those that may stand several times; `default` as TOML has it."""

    name: str
    type: str
    default: Any
    description: str

    @property
    def shown_default(self) -> str:
        """The default as a reader sees it; empty where there is none."""
        if self.default is None or self.default in ("", [], {}):
            return ""
        return str(self.default).lower() if isinstance(self.default, bool) else str(self.default)


def list_settings() -> tuple[SettingEntry, ...]:
    """All settings, in the order of their declaration."""
    return tuple(_list_fields(Settings, ""))


def write_reference() -> str:
    """The text of docs/configuration.md."""
    parts = [_HEAD]
    for table, entries in groupby(list_settings(), key=lambda entry: entry.name.rpartition(".")[0]):
        parts.append(f"\n## {name_table(table)}\n\n| setting | type | default | |\n|---|---|---|---|\n")
        for entry in entries:
            default = f"`{entry.shown_default}`" if entry.shown_default else ""
            cells = (f"`{entry.name.rpartition('.')[2]}`", entry.type, default, entry.description)
            parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
    return "".join(parts)


def name_table(table: str) -> str:
    """A table as TOML writes its heading.

    >>> name_table("alerts.receiver[]"), name_table("server")
    ('[[alerts.receiver]]', '[server]')
    """
    name = table.replace("[]", "")
    return (f"[[{name}]]" if table.endswith("[]") else f"[{name}]") if table else "In no table"


def _list_fields(table: type[BaseModel], before: str) -> Iterator[SettingEntry]:
    """The fields of a table, those of the tables in it behind its own."""
    inner = []
    for name, field in table.model_fields.items():
        shown = before + (field.alias or name)
        tables, is_list = _find_tables(field.annotation)
        if tables:
            inner.append((f"{shown}[]." if is_list else f"{shown}.", tables))
        else:
            kind = _name_type(field.annotation)
            required = ", required" if field.is_required() else ""
            yield SettingEntry(shown, kind + required, _show_default(field), field.description or "")
    for prefix, tables in inner:
        yield from _merge([entry for inside in tables for entry in _list_fields(inside, prefix)])


def _merge(entries: list[SettingEntry]) -> list[SettingEntry]:
    """Entries of tables that differ by their kind: each name once, the types of those that differ joined."""
    found: dict[str, SettingEntry] = {}
    for entry in entries:
        known = found.setdefault(entry.name, entry)
        if entry.type not in known.type:
            kind, required, _ = known.type.partition(", required")
            joined = f"{kind} or {entry.type.removesuffix(', required')}{required}"
            found[entry.name] = replace(known, type=joined)
    return list(found.values())


def _find_tables(annotation: Any) -> tuple[list[type[BaseModel]], bool]:
    """The tables that a field is, and whether it is a list of them; none for a plain setting."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _find_tables(arguments[0])
    if origin is tuple:
        return _find_tables(arguments[0])[0], True
    if origin in (Union, UnionType):
        return [table for argument in arguments for table in _find_tables(argument)[0]], False
    if isinstance(annotation, type) and issubclass(annotation, BaseModel) and annotation is not Bearing:
        return [annotation], False
    return [], False


def _name_type(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _name_type(arguments[0])
    if origin is Literal:
        return " or ".join(f'"{argument}"' for argument in arguments)
    if origin is tuple:
        inside = _name_type(arguments[0])
        return f"list of {inside}" if get_origin(arguments[0]) is Literal else f"list of {inside}s"
    if origin in (Union, UnionType):
        return " or ".join(_name_type(argument) for argument in arguments if argument is not NoneType)
    return "table" if origin is dict else _TYPES[annotation]


def _show_default(field: FieldInfo) -> Any:
    """The default as JSON has it; None where there is none."""
    default = None if field.is_required() else field.default
    if isinstance(default, Bearing):
        return default.words
    if isinstance(default, tuple):
        return [float(item) if isinstance(item, Decimal) else item for item in default]
    if isinstance(default, Decimal):
        return float(default)
    return str(default) if isinstance(default, str | Path) else default
