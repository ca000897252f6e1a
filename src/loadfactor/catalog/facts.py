"""Facts of the catalog: a value with its source, the date it was read, and whether it was seen or estimated."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib.resources import files
from pathlib import Path
from tomllib import loads
from typing import Any

from loadfactor.base.errors import CatalogError

STATUSES = ("seen", "partly seen", "estimate")


@dataclass(frozen=True)
class Fact:
    """One value of the catalog, in the unit its name ends with."""

    value: float
    source: str
    status: str
    retrieved_on: date

    @property
    def is_estimate(self) -> bool:
        """True unless the value was read in the source named."""
        return self.status != "seen"


def read_toml(package: str, name: str) -> dict[str, Any]:
    """The parsed data file `name` lying beside `package`'s code."""
    return loads(files(package).joinpath(name).read_text(encoding="utf-8"))


def read_folder(package: str) -> Iterator[dict[str, Any]]:
    """The parsed data files beside `package`'s code, in the order of their names."""
    for name in sorted(entry.name for entry in files(package).iterdir()):
        if name.endswith(".toml"):
            yield read_toml(package, name)


@cache
def digest_catalog() -> str:
    """A stamp of all of these files: what was answered by other facts has another one."""
    found = (path for path in sorted(Path(__file__).parent.rglob("*")) if path.suffix in (".toml", ".csv"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in found)).hexdigest()


def fact(entry: float | Mapping[str, Any], default: Mapping[str, Any], where: str) -> Fact:
    """A fact from a plain number, which inherits the file's source, or from a table with its own.

    Raises CatalogError when the source, date or status is missing or unknown.
    """
    own: Mapping[str, Any] = entry if isinstance(entry, Mapping) else {"value": entry}
    merged = {**{k: default.get(k) for k in ("source", "status", "retrieved_on")}, **own}
    if merged["status"] not in STATUSES or not merged["source"] or not isinstance(merged["retrieved_on"], date):
        raise CatalogError(f"{where}: needs source, retrieved_on and a status out of {', '.join(STATUSES)}")
    return Fact(float(merged["value"]), str(merged["source"]), str(merged["status"]), merged["retrieved_on"])
