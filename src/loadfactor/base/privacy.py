"""Pseudonyms in place of the names of users: stable, and reversible with the key alone; the key's file, and masked rows."""

import base64
import binascii
import json
import os
import re
import stat
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from loadfactor.base.errors import InputError, say_why

PREFIX: Final = "p-"
"""How pseudonyms begin."""
PSEUDONYM: Final = re.compile(rf"(?<![\w-]){PREFIX}[a-z2-7]{{26,}}(?![\w-])")
"""How a pseudonym looks inside a text: 16 bytes that prove it and the name itself, in base32."""
KEY_BITS: Final = 512
_NAMES: Final = [b"loadfactor user"]
_BYTES: Final = [b"loadfactor bytes"]
_SEALED: Final = b"lf-sealed-1\0"
_BEGINS: Final = "loadfactor-key-1 "
_MAKE: Final = "`loadfactor pseudonym make-key FILE` makes one"
MASKED: Final = {
    "allocations": ("team", "project", "experiment_id", "purpose", "queue", "end_state"),
    "queue_events": ("team", "project", "experiment_id", "purpose", "queue", "reason"),
    "progress": (),
    "job_sections": (),
    "served_requests": ("team", "project", "feature", "api_key"),
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


class Pseudonyms:
    """Masks names and reveals them with one key."""

    def __init__(self, key: bytes) -> None:
        """`key`: 64 bytes. Raises InputError where it is none."""
        try:
            self._cipher = AESSIV(key)
        except ValueError as error:
            raise InputError("this is no key of pseudonyms; `loadfactor pseudonym make-key FILE` makes one") from error
        self.mask = lru_cache(_KEPT)(self._mask)
        """The pseudonym of a name; of a pseudonym itself."""
        self.reveal = lru_cache(_KEPT)(self._reveal)
        """The name behind a pseudonym of this key; None where it is none."""

    def _mask(self, name: str) -> str:
        if not name or self.reveal(name) is not None:
            return name
        sealed = base64.b32encode(self._cipher.encrypt(name.encode(errors="surrogatepass"), _NAMES))
        return PREFIX + sealed.decode().rstrip("=").lower()

    def _reveal(self, text: str) -> str | None:
        if not PSEUDONYM.fullmatch(text):
            return None
        letters = text.removeprefix(PREFIX).upper()
        try:
            sealed = base64.b32decode(letters + "=" * (-len(letters) % 8))
            return self._cipher.decrypt(sealed, _NAMES).decode(errors="surrogatepass")
        except (binascii.Error, InvalidTag, ValueError):
            return None

    def reveal_all(self, text: str) -> str:
        """A text with every pseudonym of this key in it turned back."""
        return PSEUDONYM.sub(lambda found: self.reveal(found[0]) or found[0], text) if PREFIX in text else text

    def seal(self, content: bytes) -> bytes:
        """Bytes that only this key opens."""
        return _SEALED + self._cipher.encrypt(content, _BYTES) if content else content

    def open(self, content: bytes) -> bytes:
        """The sealed bytes; other bytes as they are. Raises InputError where another key sealed them."""
        if not content.startswith(_SEALED):
            return content
        try:
            return self._cipher.decrypt(content.removeprefix(_SEALED), _BYTES)
        except InvalidTag as error:
            raise InputError(
                "what waits in the live log was sealed with another key; name that one as key_file under [privacy]"
            ) from error


def make_key(path: Path) -> None:
    """Write a new key into a file that is not there yet. Raises InputError where it is, or cannot be written."""
    text = _BEGINS + base64.b64encode(AESSIV.generate_key(KEY_BITS)).decode() + "\n"
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError as error:
        raise InputError(f"{path} is there already; with another key the same users get other pseudonyms") from error
    except OSError as error:
        raise InputError(f"{path} cannot be written ({say_why(error)})") from error


def read_key(path: Path | None) -> Pseudonyms:
    """The pseudonyms of a key file. Raises InputError where there is none, it is no key, or others may read it."""
    if path is None:
        raise InputError(f"pseudonyms need a key: name its file as key_file under [privacy]; {_MAKE}")
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        why = say_why(error) if isinstance(error, OSError) else "it is no text"
        raise InputError(f"the key of pseudonyms {path} cannot be read ({why}); {_MAKE}") from error
    if stat.S_IMODE(mode) & (stat.S_IRWXG | stat.S_IRWXO):
        raise InputError(f"{path} may be read by others than its owner; run `chmod 600 {path}`")
    try:
        return Pseudonyms(base64.b64decode(text.removeprefix(_BEGINS).strip(), validate=True))
    except (binascii.Error, ValueError) as error:
        raise InputError(f"{path} is no key of pseudonyms; {_MAKE}") from error


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
