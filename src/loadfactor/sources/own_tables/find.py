"""Which files hold which table? `samples.parquet`, `samples.csv`, `samples.csv.gz`, parts `samples-*.…`, or a folder `samples/`."""

from difflib import get_close_matches
from pathlib import Path
from typing import Final

from loadfactor.errors import SourceError
from loadfactor.tables import TABLES, Table

ENDINGS: Final = (".parquet", ".csv", ".csv.gz")
_NAMES: Final = tuple(t.name for t in TABLES)


def table_files(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    """The files of the tables in these folders, and the files named themselves, table by table.

    Raises SourceError: no such path, no table in a folder, a file that is named like no table, one table twice.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += _in_folder(path)
        elif not path.exists():
            raise SourceError(f"{path} does not exist; check the name")
        else:
            table_of(path)
            found.append(path)
    return tuple(sorted(dict.fromkeys(found), key=lambda p: (_NAMES.index(table_of(p).name), str(p))))


def table_of(path: Path) -> Table:
    """The table a file holds, by its name or by the folder it lies in; SourceError when neither names one."""
    if _ending(path) is not None:
        named = _named(path)
        if named is not None:
            return named
        for folder in path.absolute().parents:
            for table in TABLES:
                if folder.name == table.name:
                    return table
    raise SourceError(
        f"{path} is not named like a table; call it one of {', '.join(_NAMES)} with {' or '.join(ENDINGS)}"
    )


def _in_folder(folder: Path) -> list[Path]:
    files = sorted(p for p in folder.iterdir() if p.is_file() and _ending(p) and not p.name.startswith((".", "_")))
    found = [p for p in files if _named(p) is not None]
    for table in TABLES:
        whole = [p.name for p in found if _stem(p) == table.name]
        if len(whole) > 1:
            raise SourceError(f"{folder} holds {table.name} more than once ({', '.join(whole)}); keep one")
        parts = folder / table.name
        if parts.is_dir():
            inside = sorted(
                p for p in parts.rglob("*") if p.is_file() and _ending(p) and not p.name.startswith((".", "_"))
            )
            if whole and inside:
                raise SourceError(
                    f"{folder} holds {table.name} more than once ({whole[0]} and {table.name}/); keep one"
                )
            found += inside
    for other in files:
        near = get_close_matches(_stem(other), _NAMES, 1, 0.8)
        if other not in found and near:
            raise SourceError(f"{other} is not named like a table; did you mean {near[0]}{_ending(other)}?")
    if not found:
        raise SourceError(
            f"{folder} holds none of the tables {', '.join(_NAMES)} as {', '.join(ENDINGS)}; "
            f"`loadfactor tables --write DIR` writes empty ones to fill in"
        )
    return found


def _ending(path: Path) -> str | None:
    return next((e for e in ENDINGS if path.name.endswith(e)), None)


def _stem(path: Path) -> str:
    return path.name.removesuffix(_ending(path) or "")


def _named(path: Path) -> Table | None:
    """The table of `samples.csv` or `samples-2026-05.csv`."""
    stem = _stem(path)
    return next((t for t in TABLES if stem == t.name or stem.startswith(f"{t.name}-")), None)
