"""Waits of jobs as tables of a session, `waits` and `wait_reasons`: kept beside the ledger as files, else worked out there.

They follow from the tables of `TOLD_BY` alone, as a whole, and are written anew where one of these has other files. Who reads
live rows of these works them out.
"""

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from loadfactor.books.compiled_sql import expressions, recall
from loadfactor.books.ledger_inputs import read_inputs
from loadfactor.ledger.columns import KEPT_WAITS
from loadfactor.store.sample_files import read
from loadfactor.store.session import Session

if TYPE_CHECKING:
    from loadfactor.store.writer import Writer

TOLD_BY: Final = ("allocations", "queue_events")
DEFINITION: Final = 1
"""Raise when what a wait is changes (`ledger/waits.py`)."""
_SHOWN: Final = "waits shown"


def keep_waits(writer: "Writer") -> None:
    """Write the waits and their reasons where those that are kept are not those of the tables as they are now."""
    digest, old = _digest_waits(writer), [file for table in KEPT_WAITS.values() for file in writer.manifest.of(table)]
    if _is_kept(writer, digest) or not (digest or old):
        return
    writer.swap(old, [])
    if digest:
        _view_waiting(writer)
        for name, table in KEPT_WAITS.items():
            sql = recall("waits", lambda: expressions().write_waits())[name]
            made = writer.copy_whole(table, f"SELECT * FROM ({sql}) ORDER BY ALL")
            writer.create_view(name, f"SELECT * FROM {read(writer.paths([made]))}")
            writer.swap((), [made])
    inputs = replace(read_inputs(writer.manifest.sources_key), waits=digest)
    writer.manifest = replace(writer.manifest, sources_key=inputs.write())


def view_waits(session: Session) -> None:
    """Name `waits` those of all jobs, and `wait_reasons` why they waited: as they are kept, else worked out once."""
    if _SHOWN in session.derived:
        return
    session.derived[_SHOWN] = True
    has_live = any(table in session.live for table in TOLD_BY)
    if not has_live and _is_kept(session, _digest_waits(session)):
        for name, table in KEPT_WAITS.items():
            session.create_view(name, f"SELECT * FROM {read(session.paths(session.manifest.of(table)))}")
        return
    _view_waiting(session)
    queries = recall("waits", lambda: expressions().write_waits())
    waits = session.find_once("waits", lambda: session.materialize_shared("waits", queries["waits"]))
    if waits != "waits":
        session.create_view("waits", f"SELECT * FROM {waits}")
    session.create_view("wait_reasons", queries["wait_reasons"])


def _is_kept(session: Session, digest: str) -> bool:
    """Whether there are files of the waits that follow from what has this digest."""
    are_there = all(session.manifest.of(table) for table in KEPT_WAITS.values())
    return are_there and read_inputs(session.manifest.sources_key).waits == digest


def _digest_waits(session: Session) -> str:
    """Digest of the files that waits follow from, which nobody changes; empty where there are none."""
    names = [file.name for table in TOLD_BY for file in session.manifest.of(table)]
    return hashlib.sha256(repr((DEFINITION, names)).encode()).hexdigest()[:16] if names else ""


def _view_waiting(session: Session) -> None:
    for name in TOLD_BY:
        session.view_table(name, name)
