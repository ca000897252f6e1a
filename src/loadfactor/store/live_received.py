"""Bodies as they were received and the states of their decoders: what the database of live batches holds besides batches."""

import zlib
from dataclasses import dataclass

from loadfactor.base.errors import DamageError

RECEIVED_SQL = """
CREATE TABLE received (
  number INTEGER PRIMARY KEY, origin TEXT NOT NULL, format TEXT NOT NULL, received_ms INTEGER NOT NULL,
  crc32 INTEGER NOT NULL, content BLOB NOT NULL
)"""
STATES_SQL = """
CREATE TABLE states (
  origin TEXT PRIMARY KEY, through INTEGER NOT NULL, crc32 INTEGER NOT NULL, content BLOB NOT NULL
) WITHOUT ROWID"""
BODY_BYTES = "coalesce(sum(length(content)), 0)"
INSERT_BODY_SQL = "INSERT INTO received VALUES (?, ?, ?, ?, ?, ?)"
REPLACE_STATE_SQL = "INSERT OR REPLACE INTO states VALUES (?, ?, ?, ?)"

StoredBody = tuple[int, str, str, int, int, bytes]
"""A row of the database: number, origin, format, when it was received, checksum of all others, content."""
StoredState = tuple[str, int, int, bytes]
"""A row of the database: origin, number of the last body, checksum of all others, content."""


@dataclass(frozen=True)
class ReceivedBody:
    """Bytes as they came at `received_ms` (UTC). `origin` names an independent stream of bodies, `format` what they are."""

    origin: str
    format: str
    received_ms: int
    content: bytes

    def numbered(self, number: int) -> StoredBody:
        """The row of the database."""
        crc = _checksum(self.content, number, self.origin, self.format, self.received_ms)
        return number, self.origin, self.format, self.received_ms, crc, self.content


@dataclass(frozen=True)
class OriginState:
    """What the decoder of an origin knew after all bodies with numbers up to `through`."""

    origin: str
    through: int
    content: bytes

    def stored(self) -> StoredState:
        """The row of the database."""
        return self.origin, self.through, _checksum(self.content, self.origin, self.through), self.content


def decode_body(row: StoredBody) -> tuple[int, ReceivedBody]:
    """The number and the body of a row. Raises DamageError when it is not what was kept."""
    number, origin, format_, received_ms, crc, content = row
    if _checksum(content, number, origin, format_, received_ms) != crc:
        raise DamageError(f"received body {number} is not what was kept")
    return number, ReceivedBody(origin, format_, received_ms, content)


def decode_state(row: StoredState) -> OriginState:
    """The state of a row. Raises DamageError when it is not what was stored."""
    origin, through, crc, content = row
    if _checksum(content, origin, through) != crc:
        raise DamageError(f"the state of {origin} is not what was stored")
    return OriginState(origin, through, content)


def _checksum(content: bytes, *others: object) -> int:
    return zlib.crc32(content, zlib.crc32("\0".join(map(str, others)).encode(errors="replace")))
