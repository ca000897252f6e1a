"""Settings as they are in force, each with where it comes from; of addresses no more than the host, as the rest may be a secret."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from loadfactor.settings.config import CHOSEN, Settings, read_environment
from loadfactor.settings.money import Bearing
from loadfactor.settings.sources import name_server

ADDRESS: Final = re.compile(r"https?://\S+")
DEFAULT: Final = "default"


@dataclass(frozen=True)
class SettingInForce:
    """One setting: `name` with its tables in front, the number of an entry in brackets; `value` as TOML writes it."""

    name: str
    value: str
    origin: str
    description: str

    @property
    def is_set(self) -> bool:
        """Whether somebody set it."""
        return self.origin != DEFAULT


def list_in_force(found: Settings) -> tuple[SettingInForce, ...]:
    """All of them, in the order of their declaration."""
    return tuple(_list_table(found, "", {name: f"LOADFACTOR_{name.upper()}" for name in read_environment()}))


def hide_rest(text: str) -> str:
    """A text with of every address the host alone.

    >>> hide_rest("https://user:secret@hooks.example/T0/B0/key"), hide_rest("http://node-1:9400")
    ('https://hooks.example/…', 'http://node-1:9400')
    """

    def hide(found: re.Match[str]) -> str:
        shown = f"{found[0].partition('://')[0]}://{name_server(found[0])}"
        return shown if shown == found[0] else f"{shown}/…"

    return ADDRESS.sub(hide, text)


def _list_table(table: BaseModel, before: str, environment: dict[str, str]) -> Iterator[SettingInForce]:
    for name, field in type(table).model_fields.items():
        shown, value = before + (field.alias or name), getattr(table, name)
        if isinstance(value, BaseModel) and not isinstance(value, Bearing):
            yield from _list_table(value, f"{shown}.", {})
        elif isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
            for number, entry in enumerate(value, 1):
                yield from _list_table(entry, f"{shown}[{number}].", {})
        else:
            origin = str(CHOSEN.path) if name in table.model_fields_set else DEFAULT
            yield SettingInForce(shown, _write(value), environment.get(name, origin), field.description or "")


def _write(value: Any) -> str:
    if value is None or value in ("", (), {}):
        return ""
    if isinstance(value, Bearing):
        return str(value.words)
    if isinstance(value, str | Path):
        return hide_rest(str(value))
    return hide_rest(json.dumps(value, ensure_ascii=False, default=_write_number))


def _write_number(value: Any) -> float | str:
    """A decimal as TOML writes a number; whatever else JSON does not know, as text."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return str(value)
