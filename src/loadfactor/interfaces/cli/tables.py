"""`loadfactor tables`: the tables that one's own data is imported as, and empty templates of them."""

from dataclasses import dataclass
from pathlib import Path
from shlex import quote

import typer

from loadfactor.base.errors import InputError
from loadfactor.base.request import Request, option
from loadfactor.interfaces.cli.commands import add_command
from loadfactor.interfaces.document import Document, Section, Suggestion
from loadfactor.interfaces.output_files import replacing

ABOUT = "List the tables that your own data is imported as.\n\nEvery column, its unit, and what an empty cell means."


@dataclass(frozen=True, kw_only=True)
class TablesRequest(Request):
    """Whether to list the tables or to write templates of them."""

    write: Path | None = option("Write an empty CSV of each table into this folder.", None)


def add_to(app: typer.Typer) -> None:
    """Add `tables`."""
    add_command(app, "tables", TablesRequest, build_page, ABOUT)


def build_page(request: TablesRequest) -> Document:
    """The list of tables, or what was written. Raises InputError where a file is there already."""
    from loadfactor.interfaces.pages.table_list import build_document

    if request.write is None:
        return build_document()
    paths = _write_templates(request.write)
    next_step = Suggestion(f"loadfactor import tables {quote(str(request.write))}", "when what you know is filled in")
    return Document(
        f"Wrote {', '.join(path.name for path in paths)}.", (Section(suggestions=(next_step,)),), data=paths
    )


def _write_templates(folder: Path) -> tuple[Path, ...]:
    """Write an empty CSV of every table and a README into the folder; what was written.

    Raises InputError, with nothing written, when one of these files is there already or the folder cannot be made.
    """
    from loadfactor.sources.own_tables.templates import make_templates

    paths = {folder / name: text for name, text in make_templates().items()}
    there = [path.name for path in paths if path.exists()]
    if there:
        raise InputError(f"{folder} holds {there[0]} already, and nothing is overwritten; name another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--write {folder}: the folder cannot be made ({error.strerror})") from error
    for path, text in paths.items():
        with replacing(path, "--write") as beside:
            beside.write_text(text, encoding="utf-8", newline="\n")
    return tuple(paths)
