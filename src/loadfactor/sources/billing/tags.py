"""Tags of bills as JSON objects with sorted keys, from the ways in which exports write them."""

import json
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

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
    parsed = [_parse(text) for text in encoded.dictionary.to_pylist()]
    texts = pa.array([text or None for text in parsed], pa.string())
    wrong = pa.array([text is False for text in parsed], pa.bool_())
    return texts.take(encoded.indices), wrong.take(encoded.indices).true_count or 0


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


_HOLDER_KEYS: Final = {
    "team": ("team",),
    "project": ("project",),
    "experiment_id": ("experiment", "experiment_id"),
    "purpose": ("purpose",),
    "user": ("user", "owner"),
}
"""Columns, and the keys of tags that fill them, the better one first."""
_TAG_COLUMNS: Final = ("AllocatedTags", "Tags")
"""Of a share of a split charge, the tags of what it was split to come first."""


def add_holders(charges: pa.Table) -> pa.Table:
    """Charges with the columns that their tags fill; what such a column holds already stays."""
    found = [_read_holders(charges[name]) for name in _TAG_COLUMNS if charges[name].null_count < charges.num_rows]
    for column in _HOLDER_KEYS if found else ():
        values = pc.coalesce(charges[column], *(texts[column] for texts in found))
        charges = charges.set_column(charges.column_names.index(column), column, values)
    return charges


def _read_holders(tags: pa.ChunkedArray) -> dict[str, pa.Array]:
    encoded = tags.combine_chunks().dictionary_encode()
    found = [_find_holders(text) for text in encoded.dictionary.to_pylist()]
    return {
        column: pa.array([of[column] for of in found], pa.string()).take(encoded.indices) for column in _HOLDER_KEYS
    }


@lru_cache(_TEXTS_KEPT)
def _find_holders(text: str) -> dict[str, str | None]:
    """The texts of one object of tags; of keys that differ in case the one in small letters, else the first that says something."""
    tags: dict[str, Any] = json.loads(text)
    spelled: dict[str, list[str]] = {}
    for key in sorted(tags):
        spelled.setdefault(key.lower(), []).append(key)
    found: dict[str, str | None] = {}
    for column, keys in _HOLDER_KEYS.items():
        values = (tags[key] for low in keys for key in ([low] if low in tags else spelled.get(low, ())))
        texts = ((value if isinstance(value, str) else json.dumps(value)).strip() for value in values)
        found[column] = next(filter(None, texts), None)
    return found
