"""Commands, options, settings and addresses that were removed, each with what to use instead.

They are listed in `removed.toml`, which is read only when something is refused, so that `--help` costs nothing more.
"""

from functools import cache
from pathlib import Path
from tomllib import loads
from typing import Any, Final, Literal, NamedTuple, get_args

from loadfactor.base.errors import InputError

Kind = Literal["commands", "options", "values", "settings", "chart_values", "addresses", "usages"]

LIST: Final = Path(__file__).with_name("removed.toml")
_HEAD: Final = """\
# What was removed

Each of these has a standard tool that does it better, or a simpler way in this program; the reasons are in
[why it is built this way](decisions.md). The command line and `loadfactor.toml` refuse them with the same words (exit code 2), the
server with 410.

This page is written from `src/loadfactor/base/removed.toml`, and a test compares them.

| removed | in | use instead |
|---|---|---|
"""


class Removal(NamedTuple):
    """A thing that was removed, in version `version`, and what to use instead."""

    kind: Kind
    name: str
    version: str
    use: str

    @property
    def title(self) -> str:
        """The name as a sentence shows it."""
        if self.kind == "usages":
            return self.name
        return f"{'chart value ' if self.kind == 'chart_values' else ''}`{self.name}`"

    @property
    def sentence(self) -> str:
        """The line that refuses it."""
        return f"{self.title} was removed in {self.version}; use {self.use}"


@cache
def list_removals() -> tuple[Removal, ...]:
    """List everything that was removed, in the order of removed.toml."""
    return tuple(
        Removal(kind, name, table["version"], table["use"])
        for table in _read_tables()
        for kind in get_args(Kind)
        for name in table.get(kind, ())
    )


def find_removal(kind: Kind, name: str) -> Removal | None:
    """Find what was removed under this name; settings are found without the brackets of their tables."""
    return next(
        (removal for removal in list_removals() if removal.kind == kind and removal.name.strip("[]") == name), None
    )


def find_removed_value(command: str, option: str, value: str) -> Removal | None:
    """Find the removed value of an option by the last word of its command."""
    words = f" {command} {option} {value}"
    values = (removal for removal in list_removals() if removal.kind == "values")
    return next((removal for removal in values if f" {removal.name}".endswith(words)), None)


def find_removed_address(path: str) -> Removal | None:
    """Find what was removed at this path of the server, or above it."""
    addresses = (removal for removal in list_removals() if removal.kind == "addresses")
    return next((removal for removal in addresses if f"{path}/".startswith(f"{removal.name}/")), None)


def refuse_removed(kind: Kind, name: str) -> InputError:
    """Return the error for something that was removed. Raises LookupError if removed.toml does not list it."""
    removal = find_removal(kind, name)
    if removal is None:
        raise LookupError(f"{LIST.name} lists no {name!r} under {kind}")
    return InputError(removal.sentence)


def write_page() -> str:
    """Write docs/removed.md: one row per removal."""
    rows = []
    for table in _read_tables():
        titles = [Removal(kind, name, "", "").title for kind in get_args(Kind) for name in table.get(kind, ())]
        cells = (", ".join(titles), table["version"], table["use"])
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
    return _HEAD + "".join(rows)


def _read_tables() -> list[dict[str, Any]]:
    tables: list[dict[str, Any]] = loads(LIST.read_text(encoding="utf-8")).get("removal", [])
    return tables
