"""`loadfactor tables`: the schema that anybody's data gets in with, and empty templates of it."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from loadfactor.errors import InputError
from loadfactor.sources.own_tables.templates import describe_kind, write_templates
from loadfactor.tables import TABLES, Table


def add_to(app: typer.Typer) -> None:
    """Hang `tables` under the command line."""
    app.command("tables")(run)


def run(
    write: Annotated[
        Path | None, typer.Option("--write", help="Write an empty CSV of each table into this folder.")
    ] = None,
    output: Annotated[str, typer.Option("--format", help="terminal or json")] = "terminal",
) -> None:
    """List the tables that your own data is imported as.

    Every column, its unit, and what an empty cell means.
    """
    if output not in ("terminal", "json"):
        raise InputError(f"--format {output!r} is none of terminal, json")
    if write is not None:
        _written(write_templates(write), write, output)
    elif output == "json":
        typer.echo(json.dumps([_as_json(table) for table in TABLES], indent=1))
    else:
        _tell()


def _written(paths: tuple[Path, ...], folder: Path, output: str) -> None:
    if output == "json":
        typer.echo(json.dumps([str(p) for p in paths], indent=1))
        return
    typer.echo(f"wrote {', '.join(p.name for p in paths)}")
    typer.echo(f"fill in what you know, then: loadfactor import tables {folder}")


def _as_json(table: Table) -> dict[str, object]:
    columns = [
        {
            "name": c.name,
            "kind": c.kind,
            "written": describe_kind(c),
            "meaning": c.meaning,
            "empty": c.empty or None,
            "required": c.required,
            "one_of": list(c.one_of),
        }
        for c in table.columns
    ]
    return {"name": table.name, "says": table.says, "key": list(table.key), "columns": columns}


def _tell() -> None:
    console = Console(highlight=False)
    for table in TABLES:
        grid = Grid(title_justify="left", box=None, pad_edge=False, header_style="dim")
        grid.title = f"[bold]{table.name}[/]: one row says “{table.says}”"
        grid.title_style = "none"
        for heading in ("column", "written as", "meaning"):
            grid.add_column(heading, no_wrap=heading == "column")
        for c in table.columns:
            empty = f"[dim]; empty: {escape(c.empty)}[/]" if c.empty else " [bold](required)[/]"
            grid.add_row(c.name, describe_kind(c), escape(c.meaning) + empty)
        console.print(grid)
        console.print()
    for line in (
        "a time is ISO 8601 with its zone (2026-05-01T12:00:00Z) or epoch milliseconds;",
        "a number is in the unit its column's name ends with",
        "empty files to fill in: loadfactor tables --write DIR",
        "then: loadfactor import tables DIR",
    ):
        console.print(line, style="dim")
