"""Who pays for a charge and what for, by its tags: keys called team, project, experiment, purpose, user or owner, in any case."""

import json
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

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
    said = [_find(json.loads(text)) for text in encoded.dictionary.to_pylist()]
    return {c: pa.array([of[c] for of in said], pa.string()).take(encoded.indices) for c in _KEYS}


def _find(tags: dict[str, Any]) -> dict[str, str | None]:
    """The texts of one object of tags; of keys that differ in case the one in small letters, else the first."""
    folded: dict[str, str] = {}
    for key, value in sorted(tags.items(), reverse=True):  # small letters come after capitals
        text = value.strip() if isinstance(value, str) else json.dumps(value)
        if text and (key == key.lower() or key.lower() not in tags):
            folded[key.lower()] = text
    return {column: next((folded[k] for k in keys if k in folded), None) for column, keys in _KEYS.items()}
