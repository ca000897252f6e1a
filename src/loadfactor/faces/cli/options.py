"""Options that every command shares: how the answer is shown, and where it is written."""

from pathlib import Path
from typing import Annotated, get_args

import typer

from loadfactor.faces.cli.completion import complete
from loadfactor.faces.render.present import Format as Formats

FORMATS = get_args(Formats)

Format = Annotated[
    str,
    typer.Option(
        "--format", help="How to show the answer.", metavar="|".join(FORMATS), autocompletion=complete(lambda: FORMATS)
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Short for --format json.")]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", help="Write the answer to a file: .html, .md, .json, .csv, .txt, or its pictures: .png, .svg."
    ),
]
Brief = Annotated[bool, typer.Option("--brief", help="The sentence and the main table alone.")]
