"""Tags of bills as JSON objects with sorted keys, from the ways in which exports write them."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

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
"""A question to objects with the same keys: from their values by key, in the order they are written; None: read them singly."""


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


_SEPARATORS: Final = (",", ":")
_OF_USERS: Final = ("user:", "user_")
_KEY_NAMES: Final = ("key", "Key", "name", "Name")
_VALUE_NAMES: Final = ("value", "Value")
_TEXTS_KEPT: Final = 16_384  # of objects that are read singly: many rows carry the same tags


def parse_objects(cells: pa.Array) -> tuple[pa.Array, int]:
    """Cells as texts of JSON objects with sorted keys, and how many could not be read; those and empty ones are null.

    Read are JSON objects, the same without their braces (Azure), lists of key and value (Google), maps and structs of Parquet.
    """
    if pa.types.is_nested(cells.type):
        objects = [_write(value) for value in cells.to_pylist()]
        return pa.array(objects, pa.string()), 0
    encoded = cells.cast(pa.string()).dictionary_encode()
    texts, wrong = read_objects(encoded.dictionary, _join_plain, _parse_singly)
    return texts.take(encoded.indices), wrong.take(encoded.indices).true_count


def join_objects(tags: dict[str, pa.Array]) -> pa.Array:
    """Columns of texts, one a key, as JSON objects with sorted keys; a row without any is null."""
    parts = []
    for key in sorted(tags):
        encoded = tags[key].dictionary_encode()
        written = [f",{_dump(key)}:{_dump(value)}" for value in encoded.dictionary.to_pylist()]
        parts.append(pa.array(written, pa.string()).take(encoded.indices).fill_null(""))
    joined = pc.binary_join_element_wise(*parts, "")
    whole = pc.binary_join_element_wise("{", pc.utf8_slice_codeunits(joined, 1), "}", "")
    return pc.if_else(pc.equal(joined, ""), pa.scalar(None, pa.string()), whole)


def strip_owner(key: str) -> str:
    """A key without the mark by which AWS tells tags of users from its own.

    >>> strip_owner("user:team"), strip_owner("user_team"), strip_owner("aws:createdBy")
    ('team', 'team', 'aws:createdBy')
    """
    return key[len("user:") :] if key.startswith(_OF_USERS) else key


def _join_plain(values: Mapping[str, pa.Array]) -> list[pa.Array] | None:
    """Objects of these plain values, and that none is wrong; None where two keys become one."""
    named = {strip_owner(key): texts for key, texts in values.items()}
    if len(named) < len(values):
        return None
    parts: list[pa.Array | str] = []
    for key in sorted(named):
        parts += [f'{"," if parts else "{"}{_dump(key)}:"', named[key], '"']
    texts = pc.binary_join_element_wise(*parts, "}", "")
    return [texts, pa.repeat(pa.scalar(False), len(texts))]


def _parse_singly(texts: pa.Array) -> list[pa.Array]:
    parsed = [_parse(text) for text in texts.to_pylist()]
    return [
        pa.array([text or None for text in parsed], pa.string()),
        pa.array([text is False for text in parsed], pa.bool_()),
    ]


@lru_cache(_TEXTS_KEPT)
def _parse(text: str) -> str | bool | None:
    """The object as text, None when it is empty, False when it is none."""
    text = text.strip()
    if text.startswith('"'):
        text = "{" + text + "}"
    if not text:
        return None
    try:
        value = json.loads(text, parse_float=str)
    except (ValueError, RecursionError):
        return False
    return _write(value) if isinstance(value, dict | list | None) else False


def _write(value: Any) -> str | None:
    if isinstance(value, list):  # of entries
        value = dict(_pair(item) for item in value)
    value = {strip_owner(str(k)): v for k, v in (value or {}).items() if v is not None}
    return _dump(value) if value else None


def _dump(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=_SEPARATORS, default=str)


def _pair(item: Any) -> tuple[str, Any]:
    if isinstance(item, dict):
        key = next((item[n] for n in _KEY_NAMES if n in item), "")
        return str(key), next((item[n] for n in _VALUE_NAMES if n in item), None)
    if isinstance(item, list | tuple) and len(item) == len(_SEPARATORS):
        return str(item[0]), item[1]
    return str(item), ""
