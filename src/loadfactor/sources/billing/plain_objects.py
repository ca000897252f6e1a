"""JSON objects whose values are plain texts, taken apart column-wise: all those with the same keys at once.

Most tags of bills are such objects. Whatever else a cell holds (escapes, numbers, lists, a key that comes twice) is left to the
reader that the caller names, text by text.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_SPACE: Final = r"[ \t\n\r]*"
_INSIDE: Final = r'[^"\\\x00-\x1f]*'
_PAIR: Final = rf'("{_INSIDE}"){_SPACE}:{_SPACE}"{_INSIDE}"'
_KEYS: Final = re.compile(
    rf'{_SPACE}(\{{)?{_SPACE}("{_INSIDE}"(?:{_SPACE},{_SPACE}"{_INSIDE}")*){_SPACE}(\}})?{_SPACE}'
)
_FEWEST: Final = 16
"""Fewer texts with the same keys are read one by one just as fast."""

Columns = Sequence[pa.Array]
ReadPlain = Callable[[Mapping[str, pa.Array]], Columns | None]
"""What is asked of objects with the same keys: from their values by key, in the order they are written; None: read them singly."""


@dataclass(frozen=True)
class _SameKeys:
    """Objects that have the same keys: where they stand, and their values by key."""

    rows: pa.Array
    values: Mapping[str, pa.Array]


def read_objects(texts: pa.Array, plain: ReadPlain, other: Callable[[pa.Array], Columns]) -> Columns:
    """What `plain` says of plain objects and `other` of all other texts, in the order of the texts. No text is null.

    An object may lack its braces.

    >>> texts = pa.array(['{"a":"x"}'] * 16 + ['{"a":1}'])
    >>> [c.to_pylist()[-2:] for c in read_objects(texts, lambda values: [values["a"]], lambda rest: [rest])]
    [['x', '{"a":1}']]
    """
    left = np.ones(len(texts), np.bool_)
    places, parts = [], []
    for same in _group(texts):
        found = plain(same.values)
        if found is not None:
            left[same.rows.to_numpy()] = False
            places.append(same.rows.to_numpy())
            parts.append(found)
    rest = np.flatnonzero(left)
    if len(rest) or not parts:
        places.append(rest)
        parts.append(other(texts.take(pa.array(rest))))
    if len(parts) == 1:
        return parts[0]
    order = pa.array(np.argsort(np.concatenate(places)))
    return [pa.concat_arrays(columns).take(order) for columns in zip(*parts, strict=True)]


def _group(texts: pa.Array) -> Iterator[_SameKeys]:
    """The plain objects among texts, by their keys."""
    encoded = pc.replace_substring_regex(texts, _PAIR, r"\1").dictionary_encode()
    codes = encoded.indices.to_numpy()
    times = np.bincount(codes, minlength=len(encoded.dictionary))
    for code in np.flatnonzero(times >= _FEWEST).tolist():
        keys = _read_keys(encoded.dictionary[code].as_py())
        if keys is None:
            continue
        rows = pa.array(np.flatnonzero(codes == code))
        found = pc.extract_regex(texts.take(rows), _write_pattern(*keys))
        if found.null_count:  # not all of them are what they look like
            rows, found = rows.filter(found.is_valid()), found.drop_null()
        values = dict(zip(keys[0], found.flatten(), strict=True))
        if len(values) == len(keys[0]):
            yield _SameKeys(rows, values)


def _read_keys(text: str) -> tuple[list[str], bool] | None:
    """The keys of an object whose values were taken out, and whether it has braces; None where that is no plain object."""
    found = _KEYS.fullmatch(text)
    if found is None or bool(found[1]) != bool(found[3]):
        return None
    return json.loads(f"[{found[2]}]"), bool(found[1])


def _write_pattern(keys: Sequence[str], braces: bool) -> str:
    """The expression that exactly the plain objects with these keys match, a group for each value."""
    pairs = (rf'"{re.escape(key)}"{_SPACE}:{_SPACE}"(?P<v{n}>{_INSIDE})"' for n, key in enumerate(keys))
    inside = f"{_SPACE},{_SPACE}".join(pairs)
    whole = rf"\{{{_SPACE}{inside}{_SPACE}\}}" if braces else inside
    return f"^{_SPACE}{whole}{_SPACE}$"
