"""How this program was called, so that every command it prints works as typed."""

import re
import shutil
import sys
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from shlex import quote
from typing import Any, TypeVar

NAME = "loadfactor"
Printed = TypeVar("Printed")
_QUOTED = re.compile(rf"(?<=`){NAME}(?= )")
_ALONE = re.compile(rf"^{NAME}(?= )")


@cache
def program() -> str:
    """`loadfactor` where the shell finds it under that name, else the path it was called by."""
    called = Path(sys.argv[0])
    found = shutil.which(NAME)
    if called.name != NAME or (found and Path(found).resolve() == called.resolve()):
        return NAME
    return quote(str(called))


def as_typed(printed: Printed) -> Printed:
    """The same text or page, with `loadfactor …` commands written as they can be typed here."""
    if program() == NAME:
        return printed
    return _rewrite(printed)  # type: ignore[no-any-return]


def _rewrite(printed: Any, written: re.Pattern[str] = _QUOTED) -> Any:
    if isinstance(printed, str):
        return written.sub(lambda _: program(), printed)
    if isinstance(printed, (tuple, list)) and not hasattr(printed, "_fields"):
        return type(printed)(_rewrite(part) for part in printed)
    if is_dataclass(printed) and not isinstance(printed, type):
        names = [item.name for item in fields(printed) if item.name != "data"]
        alone = {"command": _ALONE}  # the command of a suggestion stands without backticks
        return replace(printed, **{n: _rewrite(getattr(printed, n), alone.get(n, _QUOTED)) for n in names})
    return printed
