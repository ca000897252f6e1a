"""Text of `scontrol show job` and `scontrol show node`, with or without -d, one record a block or (-o) a line, as fields."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from loadfactor.sources.base import Input
from loadfactor.sources.parsing.text_blocks import split_lines

KINDS: Final = ("JobId", "NodeName", "ReservationName", "PartitionName")
"""Fields that records begin with."""
_FIELD: Final = re.compile(r"(?:^|\s)([A-Za-z][\w/:.-]*)=")


@dataclass(frozen=True)
class ControlRecord:
    """One job, node, partition or reservation: `kind` of KINDS, the line it begins in, its fields in their order."""

    kind: str
    line: int
    fields: tuple[tuple[str, str], ...]

    def first(self) -> dict[str, str]:
        """The fields by name; of several with one name the first, because texts of users may look like fields."""
        return dict(reversed(self.fields))


def split_records(source: Input) -> Iterator[ControlRecord]:
    """The records of a text; lines before the first one are read over. SourceError where it is no text."""
    kind, begins = "", 0
    fields: list[tuple[str, str]] = []
    for number, line in enumerate(split_lines(source), 1):
        text = line.strip()
        name = next((name for name in KINDS if text.startswith(f"{name}=")), None)
        if name is not None:
            if kind:
                yield ControlRecord(kind, begins, tuple(fields))
            kind, begins, fields = name, number, []
        if kind and text:
            fields += _split_fields(text)
    if kind:
        yield ControlRecord(kind, begins, tuple(fields))


def _split_fields(line: str) -> Iterator[tuple[str, str]]:
    """The fields of a line. A job's name, which may hold anything, goes on to the end of its line, or with -o to its user."""
    found = list(_FIELD.finditer(line))
    number = 0
    while number < len(found):
        name, start, following = found[number][1], found[number].end(), number + 1
        if name == "JobName":
            following = next((n for n in range(number + 1, len(found)) if found[n][1] == "UserId"), len(found))
        end = found[following].start() if following < len(found) else len(line)
        yield name, line[start:end].strip()
        number = following
