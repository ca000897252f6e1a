"""JSON objects, as BigQuery exports tables, in batches of cells: numbers as they are written, objects taken apart."""

import codecs
import json
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

import pyarrow as pa

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.sources.base import Input
from loadfactor.sources.parsing.csv_text import BATCH_ROWS, TextBatch
from loadfactor.sources.parsing.text_blocks import split_blocks

_OBJECT_MAX: Final = 8 * BYTES_PER_MIB  # far above any line of a bill
_ROWS_AT_ONCE: Final = BATCH_ROWS // 4  # a line is an object of Python before it is cells
_BEFORE_ARRAY: Final = re.compile(
    r'\{(?:\s*"\w+"\s*:\s*(?:"[^"]*"|-?[\d.]+|true|false|null)\s*,)*\s*"(?:records|results|billing|data)"\s*:\s*(?=\[\s*[{\]])'
)
"""How the answer of an API begins, before the array of its rows."""
_FURTHER: Final = re.compile(r'"(?:next_token|nextToken|next_page_token|next|cursor)"\s*:\s*"[^"]')
FURTHER_PAGE: Final = "an answer that names a further page, whose charges are not in it; ask for that one too"


def is_array(start: bytes) -> bool:
    """Whether a text of JSON that begins like this is one array of rows, or an answer with one in it.

    >>> is_array(b'[{"a": 1}'), is_array(b'{"success": true, "count": 1, "results": [{"a": 1}'), is_array(b'{"a": [1]}')
    (True, True, False)
    """
    text = start.decode("utf-8", "replace")
    return bool(re.match(r"\[\s*[{\]]", text) or _BEFORE_ARRAY.match(text))


def split_json(source: Input, one_array: bool, note: Callable[[str], None]) -> Iterator[TextBatch]:
    """The objects of a file, a line each or those of one array, in batches; `usage.amount` is a cell, a list is its JSON.

    `note` gets the remarks on the file.
    Raises SourceError naming input and line (in an array: object): not text, no JSON object, an array that is cut off.
    """
    found = _list_array(source, note) if one_array else _list_lines(source)
    unit = "objects" if one_array else "lines"
    while batch := list(islice(found, _ROWS_AT_ONCE)):
        first, last = batch[0][0], batch[-1][0]
        try:
            yield TextBatch(make_batch([row for _, row in batch]), first)
        except UnicodeEncodeError:
            raise SourceError(f"{source.label}, {unit} {first} to {last}: a text is not Unicode") from None


def _list_lines(source: Input) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects with the numbers of their lines; empty lines are read over."""
    lines = (line for block in split_blocks(source) for line in block.data.splitlines())
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield number, _read(source.label, number, line)


def _list_array(source: Input, note: Callable[[str], None]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of an array with their numbers; no more is held than one of them and a piece of the file.

    What stands around the array in the answer of an API is passed over, but for a further page that it names.
    """
    decode = json.JSONDecoder(parse_float=str, parse_int=str).raw_decode
    text, number, expected, before = "", 0, "[", None
    for piece in _decode_pieces(source):
        text, at = text + piece, 0
        if expected == "[" and (before := _BEFORE_ARRAY.match(text.lstrip())):
            text = text.lstrip()[before.end() :]
        if expected == "nothing" and before:
            continue
        while (at := _skip_blanks(text, at)) < len(text):
            mark = text[at]
            if mark == "]" and expected in ("first", ","):
                at, expected = at + 1, "nothing"
                if before and (_FURTHER.search(before[0]) or _FURTHER.search(text, at)):
                    note(FURTHER_PAGE)
                if before:
                    break
            elif mark == expected:
                at, expected = at + 1, "first" if mark == "[" else "object"
            elif expected not in ("first", "object") or mark != "{":
                raise _refuse(source.label, number + 1)
            else:
                try:
                    found, at = decode(text, at)
                except (ValueError, RecursionError):
                    break  # the piece ends in it, or it is broken, which the rest of the file shows
                number, expected = number + 1, ","
                yield number, found
        text = text[at:]
        if len(text) > _OBJECT_MAX:
            raise _refuse(source.label, number + 1)
    if expected != "nothing":
        raise _refuse(source.label, number + 1)


def _decode_pieces(source: Input) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    try:
        for piece in source.chunks:
            yield decoder.decode(piece)
        yield decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        raise SourceError(f"{source.label}: not text (bytes that are not UTF-8); is this the right file?") from None


def _skip_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _refuse(label: str, number: int) -> SourceError:
    return SourceError(f"{label}, object {number}: the array is broken or cut off there; export or copy it again")


def make_batch(rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    """Objects as cells of text; a key that one lacks is null there."""
    flat = [dict(_flatten("", row)) for row in rows]
    names = dict.fromkeys(name for row in flat for name in row)
    return pa.RecordBatch.from_arrays([pa.array([row.get(n) for row in flat], pa.string()) for n in names], list(names))


def _read(label: str, number: int, line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line, parse_float=str, parse_int=str)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise SourceError(f"{label}, line {number}: is no JSON object; export the table as JSON, one object a line")
    return found


def _flatten(prefix: str, value: dict[str, Any]) -> Iterator[tuple[str, str | None]]:
    for name, cell in value.items():
        if isinstance(cell, dict):
            yield from _flatten(f"{prefix}{name}.", cell)
        elif isinstance(cell, list):
            yield f"{prefix}{name}", json.dumps(cell, ensure_ascii=False)
        else:
            yield f"{prefix}{name}", None if cell is None else cell if isinstance(cell, str) else json.dumps(cell)
