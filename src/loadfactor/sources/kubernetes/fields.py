"""Fields of objects that anybody may have written: what is not there, or is something else, reads as nothing."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from loadfactor.base.limits import EARLIEST_MS, LATEST_MS
from loadfactor.base.units import BYTES_PER_KB, BYTES_PER_KIB, MS_PER_S

Object = Mapping[str, Any]
"""An object of the API, or a part of one."""

_NOTHING: Final[Object] = {}
_BINARY: Final = {f"{letter}i": BYTES_PER_KIB ** (power + 1) for power, letter in enumerate("KMGTPE")}
_DECIMAL: Final = {letter: BYTES_PER_KB ** (power + 1) for power, letter in enumerate("kMGTPE")}
_SMALL: Final = {"m": BYTES_PER_KB**-1, "u": BYTES_PER_KB**-2, "n": BYTES_PER_KB**-3}
_SUFFIXES: Final = {**_BINARY, **_DECIMAL, **_SMALL}


def part(of: object, *names: str) -> Object:
    """The object under these names, an empty one where there is none.

    >>> part({"status": {"phase": "Running"}}, "status"), part({"status": None}, "status", "conditions")
    ({'phase': 'Running'}, {})
    """
    for name in names:
        of = of.get(name) if isinstance(of, Mapping) else None
    return of if isinstance(of, Mapping) else _NOTHING


def parts(of: object, name: str) -> Iterator[Object]:
    """The objects in the list of this name."""
    found = part(of).get(name)
    for one in found if isinstance(found, list) else ():
        if isinstance(one, Mapping):
            yield one


def text(of: object, name: str) -> str:
    """The text of this name, without spaces around it; empty where there is none."""
    found = part(of).get(name)
    return _clean(found).strip() if isinstance(found, str) else ""


def texts(of: object, name: str) -> dict[str, str]:
    """The texts of a map, such as labels."""
    return {_clean(k): _clean(v) for k, v in part(of, name).items() if isinstance(k, str) and isinstance(v, str)}


def instant(of: object, name: str) -> int | None:
    """The instant of this name (RFC 3339) in ms UTC; None where there is none in the years that books know.

    >>> instant({"at": "2026-11-02T08:00:00Z"}, "at"), instant({"at": "0001-01-01T00:00:00Z"}, "at")
    (1793606400000, None)
    """
    try:
        found = datetime.fromisoformat(text(of, name))
        at_ms = round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * MS_PER_S)
    except (ValueError, OverflowError):
        return None
    return at_ms if EARLIEST_MS <= at_ms <= LATEST_MS else None


def quantity(of: object, name: str) -> float | None:
    """The quantity of this name; None where there is none, or one that cannot be.

    >>> quantity({"n": "500m"}, "n"), quantity({"n": "10Gi"}, "n"), quantity({"n": 2}, "n"), quantity({"n": "x"}, "n")
    (0.5, 10737418240.0, 2.0, None)
    """
    found = part(of).get(name)
    if isinstance(found, bool) or not isinstance(found, int | float | str):
        return None
    digits, factor = found, 1.0
    if isinstance(found, str):
        suffix = next((s for s in _SUFFIXES if found.endswith(s)), "")
        digits, factor = found.removesuffix(suffix), _SUFFIXES.get(suffix, 1.0)
    try:
        value = float(digits) * factor
    except (ValueError, OverflowError):
        return None
    return value if 0 <= value < float("inf") else None


def condition(of: object, kind: str) -> Object:
    """The condition of this type in the status of an object."""
    return next((c for c in parts(part(of, "status"), "conditions") if text(c, "type") == kind), _NOTHING)


def is_true(condition: Object) -> bool:
    """Whether a condition holds."""
    return text(condition, "status") == "True"


def since(condition: Object) -> int | None:
    """Since when a condition is as it is, ms UTC."""
    return instant(condition, "lastTransitionTime")


def _clean(found: str) -> str:
    """Text that can be stored: halves of characters, which JSON can write, are question marks."""
    return found if found.isascii() else found.encode(errors="replace").decode()
