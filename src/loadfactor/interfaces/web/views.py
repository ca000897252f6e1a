"""Saved views: an address of a page under a name, of one token or user each, kept durably beside silences."""

import json
import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from loadfactor.base.errors import InputError
from loadfactor.insight.alerts.delivery.outbox import Outbox, read_outbox
from loadfactor.store.tokens import read_tokens

LONGEST_NAME: Final = 100
LONGEST_ADDRESS: Final = 4_000
"""Characters of an address that browsers, proxies and our own server take."""
MOST_OF_OWNER: Final = 100
MOST: Final = 10_000
_TABLE: Final = """
CREATE TABLE IF NOT EXISTS views (
  owner TEXT NOT NULL, name TEXT NOT NULL, address TEXT NOT NULL, saved_ms INTEGER NOT NULL, PRIMARY KEY (owner, name)
)
"""


@dataclass(frozen=True)
class SavedView:
    """An address of a page, under the name that its owner gave it."""

    name: str
    address: str
    saved_ms: int


def name_owner(token: str, user: str) -> str:
    """Whose views they are: of a user that a trusted proxy names, of a token, or of the machine where neither is needed."""
    return json.dumps(["user", user] if user else ["token", token])


def list_views(folder: Path, owner: str) -> list[SavedView]:
    """The views of one owner in the order of their names; changes nothing. Raises StoreError and DamageError."""
    with read_outbox(folder) as connection:
        if connection is None or not _has_table(connection):
            return []
        rows = connection.execute("SELECT name, address, saved_ms FROM views WHERE owner = ? ORDER BY name", (owner,))
        return [SavedView(*row) for row in rows.fetchall()]


def save_view(folder: Path, owner: str, view: SavedView, paths: Sequence[str]) -> None:
    """Keep a view, in place of one of the same name; `paths` are those of pages. Views of tokens that were revoked go.

    Raises InputError for a name or an address that cannot be kept, or where there are too many; StoreError and DamageError.
    """
    if not view.name.strip() or not view.name.isprintable() or len(view.name) > LONGEST_NAME:
        raise InputError(f"a view is named by 1 to {LONGEST_NAME} printable characters; give it another name")
    if len(view.address) > LONGEST_ADDRESS:
        raise InputError(f"an address of more than {LONGEST_ADDRESS:,} characters cannot be saved; use fewer filters")
    path = view.address.partition("?")[0]
    if not view.address.isprintable() or not any(
        re.fullmatch(re.escape(page).replace(r"\{id\}", ".+"), path) for page in paths
    ):
        raise InputError(f"{path!r} is no page whose view can be saved; open the page and save it there")
    revoked = [name_owner(record.id, "") for record in read_tokens(folder) if record.revoked_ms is not None]
    with closing(Outbox(folder)) as outbox, outbox.change() as connection:
        connection.execute(_TABLE)
        connection.executemany("DELETE FROM views WHERE owner = ?", ((of,) for of in revoked))
        connection.execute(
            "INSERT OR REPLACE INTO views VALUES (?, ?, ?, ?)", (owner, view.name, view.address, view.saved_ms)
        )
        (own,) = connection.execute("SELECT count(*) FROM views WHERE owner = ?", (owner,)).fetchone()
        (of_all,) = connection.execute("SELECT count(*) FROM views").fetchone()
        if own > MOST_OF_OWNER or of_all > MOST:
            most = f"{MOST_OF_OWNER} of each token or user, {MOST:,} in all"
            raise InputError(f"there are as many views as may be ({most}); remove one at /views")


def remove_view(folder: Path, owner: str, name: str) -> None:
    """Forget a view; one that is not there is none. Raises StoreError and DamageError."""
    with closing(Outbox(folder)) as outbox, outbox.change() as connection:
        connection.execute(_TABLE)
        connection.execute("DELETE FROM views WHERE owner = ? AND name = ?", (owner, name))


def _has_table(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'views'").fetchone() is not None
