"""Who pays for a charge and what for, by its tags: keys called team, project, experiment, purpose, user or owner, in any case."""

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.sources.billing.tags import read_objects

_KEYS: Final = {
    "team": ("team",),
    "project": ("project",),
    "experiment_id": ("experiment", "experiment_id"),
    "purpose": ("purpose",),
    "user": ("user", "owner"),
}
"""Columns, and the keys of tags that fill them, the better one first."""
_TAGS: Final = ("AllocatedTags", "Tags")
"""Of a share of a split charge, the tags of what it was split to come first."""


def add_holders(charges: pa.Table) -> pa.Table:
    """Charges with the columns that their tags fill; what such a column holds already stays."""
    found = [_read_holders(charges[name]) for name in _TAGS if charges[name].null_count < charges.num_rows]
    for column in _KEYS if found else ():
        values = pc.coalesce(charges[column], *(texts[column] for texts in found))
        charges = charges.set_column(charges.column_names.index(column), column, values)
    return charges


def _read_holders(tags: pa.ChunkedArray) -> dict[str, pa.Array]:
    encoded = tags.combine_chunks().dictionary_encode()
    found = read_objects(encoded.dictionary, _find_plain, _find_singly)
    return {column: texts.take(encoded.indices) for column, texts in zip(_KEYS, found, strict=True)}


def _find_plain(values: Mapping[str, pa.Array]) -> list[pa.Array]:
    """What `_find` says of objects with these values by key."""
    rows = len(next(iter(values.values())))
    found = {}
    for key in values:
        text = pc.utf8_trim_whitespace(values[key])
        found[key] = pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)
    nothing = pa.nulls(rows, pa.string())
    return [
        pc.coalesce(*(found[key] for folded in keys for key in _list_spellings(folded, values)), nothing)
        for keys in _KEYS.values()
    ]


def _find_singly(texts: pa.Array) -> list[pa.Array]:
    found = [_find_text(text) for text in texts.to_pylist()]
    return [pa.array([of[column] for of in found], pa.string()) for column in _KEYS]


@lru_cache(16_384)
def _find_text(text: str) -> dict[str, str | None]:
    return _find(json.loads(text))


def _find(tags: dict[str, Any]) -> dict[str, str | None]:
    """The texts of one object of tags; of keys that differ in case the one in small letters, else the first that says something."""
    texts = {key: (value if isinstance(value, str) else json.dumps(value)).strip() for key, value in tags.items()}
    return {
        column: next((texts[key] for folded in keys for key in _list_spellings(folded, tags) if texts[key]), None)
        for column, keys in _KEYS.items()
    }


def _list_spellings(folded: str, tags: Mapping[str, Any]) -> Iterator[str]:
    """The keys of tags that stand for one in small letters, in their order: that one alone where it is there."""
    yield from [folded] if folded in tags else sorted(key for key in tags if key.lower() == folded)
