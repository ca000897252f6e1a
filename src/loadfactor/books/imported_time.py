"""Since when imports of files speak: of what was imported lately, for alerts that judged that time already."""

from loadfactor.base.units import MS_PER_DAY
from loadfactor.store.import_records import list_imports
from loadfactor.store.manifest import StoredFile
from loadfactor.store.sample_files import read
from loadfactor.store.session import Session

LIVE = "live "
"""How the digest of an import begins that a flush made of live rows."""
FIRST_INSTANT = {
    "allocations": "from_utc",
    "outages": "from_utc",
    "devices": "from_utc",
    "queue_events": "at_utc",
    "device_events": "at_utc",
}


def find_imported(session: Session, after: int) -> int | None:
    """The earliest instant of what was imported from files since the import of a number; None where nothing was.

    What a device or job was since ever counts from the first instant that is named.
    """
    numbers = [r.number for r in list_imports(session, "import_no > ?", [after]) if not r.digest.startswith(LIVE)]
    if not numbers:
        return None
    found: list[int | None] = [_first_sample(file, numbers) for file in session.manifest.of("samples")]
    for table, column in FIRST_INSTANT.items():
        files = [f for f in session.manifest.logs_of(table) if any(f.holds_import(n) for n in numbers)]
        if files:
            (first,) = session.raw.execute(
                f"SELECT min({column}) FROM {read(session.paths(files))}"
                f" WHERE import_no IN ({', '.join(map(str, numbers))})"
            ).fetchone() or (None,)
            found.append(first)
    return min((at for at in found if at is not None), default=None)


def _first_sample(file: StoredFile, numbers: list[int]) -> int | None:
    """Where a file of samples begins that holds some of these imports; of one that holds others too, its day."""
    if not any(file.holds_import(n) for n in numbers):
        return None
    is_new = file.imports is not None and file.imports[0] >= numbers[0]
    return file.from_ms if is_new or file.day is None else file.day * MS_PER_DAY
