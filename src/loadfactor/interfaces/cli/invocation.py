"""How this program was called, so that every command it prints works as typed."""

import re
import shutil
import sys
from functools import cache
from pathlib import Path
from shlex import quote
from typing import TypeVar

from loadfactor.interfaces.visible import change_texts

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
    return printed if program() == NAME else change_texts(printed, _write_program)


def _write_program(field: str, text: str) -> str:
    """A text with the program as it was called; the command of a suggestion stands without backticks."""
    return (_ALONE if field == "command" else _QUOTED).sub(lambda _: program(), text)
