"""Lines of a console's output: colours, carriage returns and the prefixes of ranks taken away; what is no text is replaced."""

import codecs
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.sources.base import Input

_COLOURS: Final = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|[@-Z\\-_])")
_ENDS: Final = re.compile(r"[\r\n]+")
_RANK: Final = re.compile(
    r"\s*(\[(?:default|rank|Rank )\s*\d+\]:?|\(?\w+, pid=\d+(?:, ip=[\d.]+)?\)|\d{1,5}:(?=\s))\s*"
)
_LONGEST: Final = BYTES_PER_MIB
"""Of a longer line only the end is read: no line of an iteration is so long."""


class LogLine(NamedTuple):
    """A line, and the rank that wrote it, where it says so."""

    text: str
    rank: str


def split_log(source: Input) -> Iterator[LogLine]:
    """The lines of a log. A bar that was drawn over itself is as many lines; the last line may be cut."""
    rest = ""
    for text in _decode(source):
        *lines, rest = _ENDS.split(rest + text)
        rest = rest[-_LONGEST:]
        for line in lines:
            yield _clean(line)
    yield _clean(rest)


def _clean(line: str) -> LogLine:
    if "\x1b" in line:
        line = _COLOURS.sub("", line)
    found = _RANK.match(line)
    return LogLine(line[found.end() :], found[1]) if found else LogLine(line, "")


def _decode(source: Input) -> Iterator[str]:
    decoder = None
    for chunk in source.chunks:
        if decoder is None:
            wide = chunk.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
            decoder = codecs.getincrementaldecoder("utf-16" if wide else "utf-8-sig")("replace")
        yield decoder.decode(chunk)
    if decoder is not None:
        yield decoder.decode(b"", final=True)
