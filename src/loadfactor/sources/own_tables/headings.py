"""Check of the headings: unknown and missing columns are refused before any row is read."""

from collections.abc import Sequence
from difflib import get_close_matches

from loadfactor.base.errors import SourceError
from loadfactor.sources.parsing.cells import quote
from loadfactor.tables.columns import Table


def check_headings(label: str, names: Sequence[str], table: Table) -> None:
    """SourceError naming the column the table does not have, and the nearest it has; or the required one that is missing."""
    known = [c.name for c in table.columns]
    for i, name in enumerate(names):
        if name not in known:
            near = get_close_matches(name.strip().lower(), known, 1, 0.0)[0]
            raise SourceError(
                f"{label}: {table.name} has no column {quote(name)}; the nearest is {near}; "
                f"`loadfactor tables` lists them"
            )
        if name in names[:i]:
            raise SourceError(f"{label}: two columns are called {name}; keep one")
    missing = [c.name for c in table.columns if c.required and c.name not in names]
    if missing:
        raise SourceError(
            f"{label}: {table.name} needs the column{'s' if len(missing) > 1 else ''} {', '.join(missing)}; "
            f"`loadfactor tables` says what belongs in it"
        )
