"""Rows with pseudonyms in place of users: also where a name is a word of the row's other texts, and in job ids of agents."""

import json
import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Final

import numpy as np
import pyarrow as pa

from loadfactor.base.privacy.pseudonyms import Pseudonyms

MASKED: Final = {
    "allocations": ("team", "project", "experiment_id", "purpose", "queue", "end_state"),
    "queue_events": ("team", "project", "experiment_id", "purpose", "queue", "reason"),
    "progress": (),
    "job_sections": (),
    "charges": ("team", "project", "experiment_id", "purpose", "ResourceId", "ResourceName"),
}
"""Tables that can name users, and their texts besides the user and what follows."""
OBJECTS: Final = ("tags", "original_holder", "Tags", "AllocatedTags")
"""Columns that are JSON objects of texts."""
JOBS: Final = ("job_id",)
"""Columns in which agents write "user command pid": a job id with a space begins with a user."""
_KEPT: Final = 100_000
ChangeText = Callable[[str, str], str]
"""A text of a row with its user."""


def mask_rows(pseudonyms: Pseudonyms, table: str, rows: pa.Table) -> pa.Table:
    """Rows of a table with pseudonyms; those of others as they are."""
    if table not in MASKED:
        return rows
    mask = pseudonyms.mask

    def mask_word(user: str, text: str) -> str:
        return _find_word(user).sub(mask(user), text) if user in text else text

    def mask_object(user: str, text: str) -> str:
        return _change_object(partial(mask_word, user), text) if user in text or "\\" in text else text

    if "user" in rows.column_names:
        for columns, change in ((MASKED[table], mask_word), (OBJECTS, mask_object)):
            for column in columns:
                rows = _change(rows, column, "user", change)
    rows = _change(rows, "user", None, lambda _user, text: mask(text))
    return _change_jobs(rows, mask)


def reveal_rows(pseudonyms: Pseudonyms, table: str, rows: pa.Table) -> pa.Table:
    """The same rows with the names again; what was never masked as it is."""
    if table not in MASKED:
        return rows

    def reveal_object(_user: str, text: str) -> str:
        return _change_object(pseudonyms.reveal_all, text) if pseudonyms.reveal_all(text) != text else text

    for column in ("user", *MASKED[table]):
        rows = _change(rows, column, None, lambda _user, text: pseudonyms.reveal_all(text))
    for column in OBJECTS:
        rows = _change(rows, column, None, reveal_object)
    return _change_jobs(rows, pseudonyms.reveal_all)


def _change_jobs(rows: pa.Table, change: Callable[[str], str]) -> pa.Table:
    def change_first(_user: str, text: str) -> str:
        first, space, rest = text.partition(" ")
        return change(first) + space + rest if space else text

    for column in JOBS:
        rows = _change(rows, column, None, change_first)
    return rows


def _change(rows: pa.Table, column: str, user: str | None, change: ChangeText) -> pa.Table:
    """The rows with a text column changed, each distinct text (of each user) once."""
    if column not in rows.column_names or rows[column].null_count == rows.num_rows:
        return rows
    place = rows.column_names.index(column)
    texts = rows[column].combine_chunks().cast(pa.string()).dictionary_encode()
    values, codes = texts.dictionary.to_pylist(), _fill_codes(texts)
    if user is None:
        changed = [*(change("", value) for value in values), None]
        out = pa.array(changed, pa.string()).take(pa.array(codes))
        return rows.set_column(place, column, out)
    users = rows[user].combine_chunks().cast(pa.string()).dictionary_encode()
    names, of_user = [*users.dictionary.to_pylist(), None], _fill_codes(users)
    pairs, back = np.unique(of_user * (len(values) + 1) + codes, return_inverse=True)
    both = (divmod(pair, len(values) + 1) for pair in pairs.tolist())
    found = ((names[of], values[code] if code < len(values) else None) for of, code in both)
    changed = [text if text is None or name is None else change(name, text) for name, text in found]
    return rows.set_column(place, column, pa.array(changed, pa.string()).take(pa.array(back)))


def _fill_codes(encoded: pa.DictionaryArray) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """The codes of a dictionary; that of null comes after all others."""
    codes = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False)
    out: np.ndarray[tuple[int], np.dtype[np.int64]] = codes.astype(np.int64)
    return out


@lru_cache(_KEPT)
def _find_word(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![^\W_]){re.escape(name)}(?![^\W_])")  # alice_x names alice, malice does not


def _change_object(change: Callable[[str], str], text: str) -> str:
    """A JSON object with its texts changed; other text as one."""
    try:
        found = json.loads(text)
    except ValueError:
        return change(text)
    if not isinstance(found, dict):
        return change(text)
    changed = {key: change(value) if isinstance(value, str) else value for key, value in found.items()}
    return text if changed == found else json.dumps(changed, sort_keys=True, ensure_ascii=False)
