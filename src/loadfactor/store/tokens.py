"""The tokens of a server, in `tokens.json` of the store's folder: who may ask what, each kept as a hash.

A token is 256 random bits, so its SHA-256 says nothing of it. The file is replaced whole and durably; a running server sees that it
changed. A store that ever had a token asks for one: revoked tokens stay listed, and the file can be removed to open it again.
"""

import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from hmac import compare_digest
from pathlib import Path
from typing import Final, Literal, get_args
from uuid import uuid4

from loadfactor.base.errors import DamageError, InputError, StoreError, say_why
from loadfactor.base.small_json import read_json
from loadfactor.store import disk
from loadfactor.store.disk import take_lock

Right = Literal["read", "read-team", "write", "everything"]

NAME: Final = "tokens.json"
LOCK: Final = "tokens.lock"
LONGEST_WAIT_S: Final = 10.0
PREFIX: Final = "lf_"
SECRET: Final = re.compile(re.escape(PREFIX) + r"[A-Za-z0-9_-]{20,}")
"""Matches a token, so that messages and logs can leave it out."""
FORMAT: Final = 1
RANDOM_BYTES: Final = 32
MOST_TOKENS: Final = 1_000
LONGEST_NAME: Final = 200
_HALF_WRITTEN: Final = re.compile(re.escape(NAME) + r"\.[0-9a-f]{32}\.tmp")


@dataclass(frozen=True)
class TokenRecord:
    """A token as it is kept. `team` is that of a token that reads one team alone; `sha256` is hexadecimal."""

    id: str
    name: str
    right: Right
    team: str | None
    sha256: str
    created_ms: int
    revoked_ms: int | None = None


def create_token(folder: Path, right: Right, team: str | None, name: str, now_ms: int) -> tuple[TokenRecord, str]:
    """Make a token: its record, and the token itself, which is kept nowhere. Raises InputError and StoreError."""
    for what, text in (("team", team), ("name", name)):
        if text is not None and not (len(text) <= LONGEST_NAME and text.isprintable()):
            raise InputError(
                f"the {what} of a token is at most {LONGEST_NAME} printable characters; write a shorter one"
            )
    token = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
    with _locked(folder):
        records = read_tokens(folder)
        if len(records) >= MOST_TOKENS:
            raise InputError(
                f"{folder} has {len(records):,} tokens, as many as it may; remove {folder / NAME} to begin anew"
            )
        record = TokenRecord(secrets.token_hex(4), name, right, team, _hash(token), now_ms)
        _write(folder, (*records, record))
    return record, token


def revoke_token(folder: Path, token_id: str, now_ms: int) -> TokenRecord:
    """Have a token admit nobody any more; its record. Raises InputError where there is none of this id."""
    with _locked(folder):
        records = read_tokens(folder)
        found = next((r for r in records if r.id == token_id), None)
        if found is None:
            raise InputError(f"no token {token_id!r} in {folder}; `loadfactor token list` shows their ids")
        revoked = found if found.revoked_ms is not None else replace(found, revoked_ms=now_ms)
        _write(folder, tuple(revoked if r.id == token_id else r for r in records))
    return revoked


def read_tokens(folder: Path) -> tuple[TokenRecord, ...]:
    """The tokens of a store in the order they were made, revoked ones too. Raises DamageError and StoreError."""
    path = folder / NAME
    try:
        raw = read_json(path)
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise StoreError(f"{path} cannot be read ({say_why(error)}); check its permissions") from error
    except ValueError as error:
        raise _damaged(path) from error
    try:
        if raw["format"] != FORMAT:
            raise StoreError(
                f"{path} has format {raw['format']}, this version reads {FORMAT}; install the newest version"
            )
        records = tuple(TokenRecord(**record) for record in raw["tokens"])
    except (KeyError, TypeError) as error:
        raise _damaged(path) from error
    if not all(r.right in get_args(Right) and (r.team is not None) == (r.right == "read-team") for r in records):
        raise _damaged(path)
    return records


class TokenFile:
    """The tokens of a store as they are now: read again when the file changes. Any thread may ask."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: tuple[tuple[int, int, int] | None, tuple[TokenRecord, ...]] | None = None

    def list(self) -> tuple[TokenRecord, ...]:
        """All of them, revoked ones too. Raises StoreError where the file cannot be read: then nobody may be admitted."""
        state = self._state()
        if self._seen is None or self._seen[0] != state:
            self._seen = (state, read_tokens(self._folder))
        return self._seen[1]

    def find(self, token: str) -> TokenRecord | None:
        """The record of a token that is valid now. Takes as long whichever it is."""
        digest, found = _hash(token), None
        for record in self.list():
            if compare_digest(record.sha256, digest) and record.revoked_ms is None:
                found = record
        return found

    def _state(self) -> tuple[int, int, int] | None:
        try:
            there = (self._folder / NAME).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StoreError(
                f"{self._folder / NAME} cannot be read ({say_why(error)}); check its permissions"
            ) from error
        return there.st_ino, there.st_mtime_ns, there.st_size


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _damaged(path: Path) -> DamageError:
    return DamageError(
        f"{path} is not what was written; remove it and create tokens anew with `loadfactor token create`"
    )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Change tokens alone; what a killed process left half written goes."""
    held = f"{{holder}} changes the tokens of {folder}; try again"
    with take_lock(folder / LOCK, held, LONGEST_WAIT_S):
        try:
            for path in folder.iterdir():
                if _HALF_WRITTEN.fullmatch(path.name):
                    disk.remove(path)
            yield
        except OSError as error:
            raise StoreError(
                f"{folder} cannot be written ({say_why(error)}); choose another folder with --store"
            ) from error


def _write(folder: Path, records: tuple[TokenRecord, ...]) -> None:
    beside = folder / f"{NAME}.{uuid4().hex}.tmp"
    os.close(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    content = json.dumps({"format": FORMAT, "tokens": [asdict(r) for r in records]}, indent=1, ensure_ascii=False)
    disk.write_file(beside, content.encode())
    disk.rename(beside, folder / NAME)
    disk.sync_folder(folder)
