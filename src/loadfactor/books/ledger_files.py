"""Files of the ledger as SQL."""

from collections.abc import Iterable

from loadfactor.store.manifest import StoredFile
from loadfactor.store.sample_files import read
from loadfactor.store.session import Session


def select_ledger(session: Session, files: Iterable[StoredFile]) -> str:
    """SQL: files of the ledger, of each the hours that count."""
    files = list(files)
    whole = [f for f in files if f.hours is None]
    queries = [f"SELECT * FROM {read(session.paths(whole))}"] if whole else []
    for file in files:
        if file.hours is not None:
            hours = " OR ".join(f"(hour_utc >= {start} AND hour_utc < {end})" for start, end in file.hours)
            queries.append(f"SELECT * FROM {read(session.paths([file]))} WHERE {hours}")
    return " UNION ALL BY NAME ".join(queries)
