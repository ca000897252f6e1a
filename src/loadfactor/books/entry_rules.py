"""Settings for rows that enter the books: rules of tagging and the mapping, read again when their files change."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from loadfactor.base.errors import InputError, say_why
from loadfactor.settings.config import CHOSEN, Settings, Signature, sign_file
from loadfactor.store.session import ChangeRows, Entry
from loadfactor.tables.tagging_rules import Tagging, TagRule, read_rules

if TYPE_CHECKING:  # Arrow takes longer to import than most answers
    import pyarrow as pa


class EntryRules:
    """Gives the `Entry` that the settings ask for now; the last good one where somebody is just writing them."""

    def __init__(self) -> None:
        self._last: tuple[tuple[Signature, ...], Entry] | None = None
        self._mapping: Path | None = None

    def __call__(self) -> Entry:
        """Raises InputError where they are wrong from the beginning."""
        files = (CHOSEN.path, *([self._mapping] if self._mapping else []))
        if self._last is not None and self._last[0] == tuple(sign_file(file) for file in files):
            return self._last[1]
        try:
            settings = CHOSEN.read()
            self._mapping = settings.tagging.mapping
            entry = make_entry(settings)
        except InputError:
            if self._last is None:
                raise
            return self._last[1]
        files = (CHOSEN.path, *([self._mapping] if self._mapping else []))
        self._last = tuple(sign_file(file) for file in files), entry
        return entry


def make_entry(settings: Settings, mapping: Path | None = None) -> Entry:
    """Build the changes to rows that enter; `mapping` in place of that of the settings."""
    tag = make_tagger(read_tagging(settings, mapping))
    rename = make_renamer(settings.accelerator_names)
    if settings.privacy.users == "names":
        return Entry(tag=tag, rename=rename)
    from loadfactor.base.privacy import mask_rows, read_key, reveal_rows

    pseudonyms = read_key(settings.privacy.key_file)

    def mask(table: str, rows: "pa.Table") -> "pa.Table":
        return mask_rows(pseudonyms, table, rows)

    def tag_names(table: str, rows: "pa.Table") -> "pa.Table":  # rules speak of people by their names
        return mask(table, tag(table, reveal_rows(pseudonyms, table, rows)) if tag else rows)

    return Entry(mask, tag_names if tag else None, pseudonyms.seal, pseudonyms.open, rename)


def make_renamer(names: Mapping[str, str]) -> ChangeRows | None:
    """A function that gives accelerators the names that a site says they have; None where it says none."""
    if not names:
        return None
    ours = {name.lower(): known for name, known in names.items()}

    def rename(_table: str, rows: "pa.Table") -> "pa.Table":
        if "accelerator" not in rows.column_names:
            return rows
        import pyarrow as pa

        given = rows["accelerator"].to_pylist()
        renamed = pa.array([of and ours.get(of.lower(), of) for of in given], pa.string())
        return rows.set_column(rows.column_names.index("accelerator"), "accelerator", renamed)

    return rename


def read_tagging(settings: Settings, mapping: Path | None = None) -> Tagging:
    """The rules of the settings, and the rows of the mapping. Raises InputError with file and line."""
    path = mapping or settings.tagging.mapping
    rows: tuple[TagRule, ...] = ()
    if path is not None:
        from loadfactor.tables.tagging_rules import read_mapping

        try:
            rows = read_mapping(path.read_text(encoding="utf-8"), str(path))
        except (OSError, UnicodeDecodeError) as error:
            why = say_why(error) if isinstance(error, OSError) else "it is not UTF-8"
            raise InputError(f"the mapping {path} cannot be read ({why}); see [tagging] in {CHOSEN.path}") from error
    return Tagging(read_rules(settings.tag), rows)


def make_tagger(tagging: Tagging) -> ChangeRows | None:
    """A function that tags rows; None where there are no rules."""
    if not tagging:
        return None
    from loadfactor.tables.tagging import apply_rules

    return lambda table, rows: apply_rules(tagging, rows, table)


def restore_said(table: str, rows: "pa.Table") -> "pa.Table":
    """Rows as rules make them where there are none: as their source reported them."""
    from loadfactor.tables.tagging import apply_rules

    return apply_rules(Tagging(), rows, table)
