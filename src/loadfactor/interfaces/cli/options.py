"""Options that every command shares: how the answer is shown, and where it is written."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from loadfactor.interfaces.cli.completion import complete
from loadfactor.interfaces.render.present import Format as Formats

FORMATS = get_args(Formats)


def name_formats(besides: Iterable[str] = ()) -> Any:
    """The option of formats, those that one command has besides among them."""
    known = (*FORMATS, *besides)
    shown: dict[str, Any] = {"metavar": "|".join(known), "autocompletion": complete(lambda: known)}
    annotated: Any = Annotated  # made at run time
    return annotated[str, typer.Option("--format", help="How to show the answer.", **shown)]


Format = name_formats()
Json = Annotated[bool, typer.Option("--json", help="Short for --format json.")]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", help="Write the answer to a file: .html, .md, .json, .csv, .txt, or its pictures: .png, .svg."
    ),
]
Brief = Annotated[bool, typer.Option("--brief", help="The sentence and the main table alone.")]
