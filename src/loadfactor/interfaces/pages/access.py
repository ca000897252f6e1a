"""The pages of `loadfactor token` and `loadfactor pseudonym`: who may ask a server what, and whom pseudonyms stand for."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from time import time

from loadfactor.base.errors import InputError
from loadfactor.base.paths import read_path
from loadfactor.base.privacy import Pseudonyms, make_key, read_key
from loadfactor.base.units import MS_PER_S
from loadfactor.interfaces.document import Document, Section
from loadfactor.interfaces.formats import counted, instant
from loadfactor.interfaces.pages.places import find_books
from loadfactor.interfaces.requests import (
    KeyRequest,
    PseudonymOfRequest,
    RevealRequest,
    StoreRequest,
    TokenCreateRequest,
    TokenRevokeRequest,
)
from loadfactor.interfaces.tables import col, table
from loadfactor.metrics.query.calendar import instant as read_ms
from loadfactor.metrics.query.question import UNKNOWN_HOLDER
from loadfactor.settings.config import settings
from loadfactor.store.disk import append_audit
from loadfactor.store.tokens import Right, TokenRecord, create_token, read_tokens, revoke_token

MAY: dict[Right, str] = {
    "write": "send",
    "read": "read everything",
    "read-team": "read one team",
    "everything": "read everything, and write",
}
RIGHTS: dict[tuple[bool, bool, bool], Right] = {
    (True, False, False): "write",
    (False, True, False): "read",
    (False, False, True): "read-team",
    (True, True, False): "everything",
}
"""By what was given: --write, --read, --read-team."""


@dataclass(frozen=True)
class TokenEntry:
    """Facts of a token, without its hash. `right` is write, read, read-team or everything."""

    id: str
    name: str
    right: Right
    team: str | None
    created: datetime
    revoked: datetime | None


@dataclass(frozen=True)
class NewToken(TokenEntry):
    """A token just made, with the token itself."""

    token: str


@dataclass(frozen=True)
class TokenList:
    """The tokens of a store, in the order they were made."""

    tokens: tuple[TokenEntry, ...]


def build_creation(request: TokenCreateRequest) -> Document:
    """Create a token, with a line in the audit log. Raises InputError where it is not one right."""
    folder, team = find_books(request.store).folder, request.read_team
    given = (request.write, request.read, team is not None)
    if given not in RIGHTS:
        raise InputError("give --write, --read, both of them, or --read-team NAME")
    right = RIGHTS[given]
    if team is not None and team in ("", UNKNOWN_HOLDER):
        raise InputError(f"{team!r} is no team; `loadfactor show paid_gpu_hours --by team` lists them")
    record, token = create_token(folder, right, team, request.name or "", _now_ms())
    append_audit(folder, "token create", id=record.id, right=record.right, team=record.team, name=record.name)
    return Document(
        f"Token {record.id} may {_say(record)}. It is shown this once:",
        (Section(lead=token),),
        data=NewToken(**vars(_entry(record)), token=token),
    )


def build_revocation(request: TokenRevokeRequest) -> Document:
    """Revoke a token, with a line in the audit log."""
    folder = find_books(request.store).folder
    record = revoke_token(folder, request.id, _now_ms())
    append_audit(folder, "token revoke", id=record.id, right=record.right, team=record.team, name=record.name)
    return Document(f"Token {record.id} is revoked: nobody may {_say(record)} with it any more.", data=_entry(record))


def build_tokens(request: StoreRequest) -> Document:
    """The tokens of a store."""
    records = read_tokens(find_books(request.store).folder)
    entries = tuple(map(_entry, records))
    listed = table(
        entries,
        col("id", "id"),
        col("name", "name"),
        col("may", lambda entry: MAY[entry.right]),
        col("team", "team"),
        col("created", lambda entry: instant(entry.created)),
        col("revoked", lambda entry: instant(entry.revoked) if entry.revoked else None),
    )
    many = f"{len(entries):,} tokens" if len(entries) != 1 else "1 token"
    rest = (
        "" if entries else ": a server of this store asks for none on this machine, and cannot be reached from others"
    )
    return Document(f"{many}{rest}.", (Section(tables=(listed,)),) if entries else (), data=TokenList(entries))


def _entry(record: TokenRecord) -> TokenEntry:
    revoked = None if record.revoked_ms is None else read_ms(record.revoked_ms)
    return TokenEntry(record.id, record.name, record.right, record.team, read_ms(record.created_ms), revoked)


def _say(record: TokenRecord) -> str:
    allowed: dict[Right, str] = {
        "write": "send samples and upload files",
        "read": "read everything",
        "read-team": f"read what concerns team {record.team}",
        "everything": "read everything, send, and silence alerts, as a person does in a browser",
    }
    return allowed[record.right]


def _now_ms() -> int:
    return int(time() * MS_PER_S)


@dataclass(frozen=True)
class NamedPseudonym:
    """A user and its pseudonym."""

    user: str
    pseudonym: str


@dataclass(frozen=True)
class PseudonymList:
    """Users and their pseudonyms."""

    pseudonyms: tuple[NamedPseudonym, ...]


def build_key(request: KeyRequest) -> Document:
    """Make a key."""
    path = read_path(request.file)
    make_key(path)
    return Document(
        f"The key of pseudonyms is in {path}; keep a copy where the books are not.",
        notes=(f'In loadfactor.toml: [privacy] users = "pseudonyms", key_file = "{path.absolute()}".',),
        data=request,
    )


def build_pseudonyms(request: PseudonymOfRequest) -> Document:
    """The pseudonyms of users."""
    key = _read_key(request.key_file)
    return _list_pseudonyms((name, key.mask(name)) for name in request.names)


def build_names(request: RevealRequest) -> Document:
    """The users behind pseudonyms."""
    key, found = _read_key(request.key_file), []
    for text in request.pseudonyms:
        name = key.reveal(text)
        if name is None:
            raise InputError(f"{text!r} is no pseudonym of this key; another --key-file may have made it")
        found.append((name, text))
    return _list_pseudonyms(found)


def _list_pseudonyms(found: Iterable[tuple[str, str]]) -> Document:
    named = tuple(NamedPseudonym(*pair) for pair in found)
    listed = table(named, col("user", "user"), col("pseudonym", "pseudonym"))
    return Document(f"{counted(len(named), 'user')}.", (Section(tables=(listed,)),), data=PseudonymList(named))


def _read_key(given: Path | None) -> Pseudonyms:
    return read_key(read_path(given) if given else settings().privacy.key_file)
