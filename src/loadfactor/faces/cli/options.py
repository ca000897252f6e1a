"""Which options does every question share? How the answer is shown, and where it is written."""

from pathlib import Path
from typing import Annotated

import typer

Format = Annotated[str, typer.Option("--format", help="How to show the answer: terminal, json or html.")]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Write the answer to a file: .html page, .png or .svg picture, .json, .txt."),
]
