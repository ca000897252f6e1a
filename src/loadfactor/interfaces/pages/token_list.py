"""The pages of `loadfactor token`: a new token, the tokens of a store, and a token that was revoked."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from time import time

from loadfactor.base.errors import InputError
from loadfactor.base.units import MS_PER_S
from loadfactor.interfaces.document import DataTable, Document, Section, TableColumn
from loadfactor.interfaces.formats import instant
from loadfactor.metrics.query.calendar import instant as read_ms
from loadfactor.metrics.query.question import UNKNOWN_HOLDER
from loadfactor.store.audit import append_audit
from loadfactor.store.tokens import Right, TokenRecord, create_token, read_tokens, revoke_token

COLUMNS = tuple(map(TableColumn, ("id", "name", "may", "team", "created", "revoked")))
MAY: dict[Right, str] = {"write": "send", "read": "read everything", "read-team": "read one team"}


@dataclass(frozen=True)
class TokenEntry:
    """What is known of a token, without its hash. `right` is write, read or read-team."""

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


def create(folder: Path, write: bool, read: bool, team: str | None, name: str) -> Document:
    """Create a token, with a line in the audit log. Raises InputError where it is not said what it may do."""
    rights: list[Right] = [right for right, given in (("write", write), ("read", read)) if given]  # type: ignore[misc]
    rights += ["read-team"] if team is not None else []
    if len(rights) != 1:
        raise InputError("a token does one thing; give one of --write, --read and --read-team NAME")
    if team is not None and team in ("", UNKNOWN_HOLDER):
        raise InputError(f"{team!r} is no team; `loadfactor show paid_gpu_hours --by team` lists them")
    record, token = create_token(folder, rights[0], team, name, _now_ms())
    append_audit(folder, "token create", id=record.id, right=record.right, team=record.team, name=record.name)
    return Document(
        f"Token {record.id} may {_say(record)}. It is shown this once:",
        (Section(lead=token),),
        data=NewToken(**vars(_entry(record)), token=token),
    )


def revoke(folder: Path, token_id: str) -> Document:
    """Revoke a token, with a line in the audit log."""
    record = revoke_token(folder, token_id, _now_ms())
    append_audit(folder, "token revoke", id=record.id, right=record.right, team=record.team, name=record.name)
    return Document(f"Token {record.id} is revoked: nobody may {_say(record)} with it any more.", data=_entry(record))


def build_document(folder: Path) -> Document:
    """The tokens of a store."""
    records = read_tokens(folder)
    entries = tuple(map(_entry, records))
    rows = [
        (e.id, e.name, MAY[e.right], e.team, instant(e.created), instant(e.revoked) if e.revoked else None)
        for e in entries
    ]
    many = f"{len(entries):,} tokens" if len(entries) != 1 else "1 token"
    rest = (
        "" if entries else ": a server of this store asks for none on this machine, and cannot be reached from others"
    )
    return Document(
        f"{many}{rest}.", (Section(tables=(DataTable(COLUMNS, rows),)),) if rows else (), data=TokenList(entries)
    )


def _entry(record: TokenRecord) -> TokenEntry:
    revoked = None if record.revoked_ms is None else read_ms(record.revoked_ms)
    return TokenEntry(record.id, record.name, record.right, record.team, read_ms(record.created_ms), revoked)


def _say(record: TokenRecord) -> str:
    told: dict[Right, str] = {
        "write": "send samples and upload files",
        "read": "read everything",
        "read-team": f"read what concerns team {record.team}",
    }
    return told[record.right]


def _now_ms() -> int:
    return int(time() * MS_PER_S)
