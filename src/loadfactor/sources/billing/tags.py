"""Tags of bills as JSON objects with sorted keys, from the ways in which exports write them."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.sources.billing.plain_objects import read_objects

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
    """Key and value of an entry of a list or a map."""
    if isinstance(item, dict):
        key = next((item[n] for n in _KEY_NAMES if n in item), "")
        return str(key), next((item[n] for n in _VALUE_NAMES if n in item), None)
    if isinstance(item, list | tuple) and len(item) == len(_SEPARATORS):
        return str(item[0]), item[1]
    return str(item), ""
