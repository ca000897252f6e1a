"""Lines of Prometheus text: where the name and labels of a line end, what the labels say, its value and its time."""

import re
from typing import Final

from loadfactor.sources.parsing.times import parse_epoch_ms

_SERIES: Final = re.compile(r"(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)\s*(?:\{(?P<labels>.*)\})?\s*")
_LABEL: Final = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_TO_BRACE: Final = re.compile(r'[^{\s]*\s*\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\}')  # a brace within quotes ends no labels
TOTAL: Final = "_total"  # OpenMetrics puts it behind the name of whatever only grows


def find_head_end(line: str) -> int:
    """Where name and labels of a line end and its value begins; 0 when nothing does.

    >>> find_head_end('a{b="}"} 1 # {c="d"} 2'), find_head_end("a 1"), find_head_end("a{b}} 1")
    (8, 1, 4)
    """
    last = line.rfind("}") + 1
    if not last:
        return max(0, line.find(" "))
    if "#" not in line and line.count("}") == 1:
        return last
    found = _TO_BRACE.match(line)
    return found.end() if found is not None else last


def split_head(head: str) -> tuple[str, str] | None:
    """The name and the text of the labels before a value; None when it is no exposition.

    >>> split_head('up{job="a"}'), split_head("<html>")
    (('up', 'job="a"'), None)
    """
    found = _SERIES.fullmatch(head)
    return (found["name"], found["labels"] or "") if found is not None else None


def list_labels(text: str) -> dict[str, str]:
    """The labels between the braces of an exposition, as they are written there.

    >>> list_labels('gpu="0",UUID="GPU-1"')
    {'gpu': '0', 'UUID': 'GPU-1'}
    """
    return {name: _unescape(value) for name, value in _LABEL.findall(text)}


def read_sample(rest: str) -> tuple[float, int | None] | None:
    """Value and time (ms since 1970 UTC, None where there is none) behind the labels of a line; None where they cannot be read.

    >>> read_sample(' 0.5 1700000000000 # {trace="a"} 1'), read_sample(" 1"), read_sample(" one")
    ((0.5, 1700000000000), (1.0, None), None)
    """
    words = rest.partition("#")[0].split()  # behind the mark stands an exemplar
    if not 1 <= len(words) <= 2 or "_" in words[0]:  # which Python would read as a number
        return None
    try:
        value = float(words[0])
    except ValueError:
        return None
    at_ms = parse_epoch_ms(words[1]) if len(words) == 2 else None
    return None if len(words) == 2 and at_ms is None else (value, at_ms)


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda found: "\n" if found[1] == "n" else found[1], text) if "\\" in text else text
