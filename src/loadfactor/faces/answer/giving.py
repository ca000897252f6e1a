"""Where does an answer go? To the terminal, to stdout as JSON or HTML, or into a file named by its suffix."""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any

import typer

from loadfactor.errors import InputError
from loadfactor.faces.answer import Answer

FORMATS = ("terminal", "json", "html")
SUFFIXES = (".html", ".png", ".svg", ".json", ".txt")


def give(answer: Answer, output_format: str, output: Path | None) -> None:
    """See `loadfactor.faces.answer.present`."""
    if output_format not in FORMATS:
        raise InputError(f"--format {output_format} is not known; take {', '.join(FORMATS)}")
    if output is not None:
        write(answer, output)
    if output_format == "json":
        sys.stdout.write(as_json(answer) + "\n")
    elif output_format == "html":
        from loadfactor.faces.answer.page import page

        sys.stdout.write(page(answer))
    elif output is None:
        from loadfactor.faces.answer.terminal import show

        show(answer)
    else:
        sys.stdout.write(f"{answer.sentence}\nWritten to {output}\n")
    if answer.is_no:
        raise typer.Exit(1)


def write(answer: Answer, path: Path) -> None:
    """Write the answer into a file: .html page, .png or .svg pictures, .json data, .txt as the terminal shows it."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(
            f"--output {path}: cannot write {suffix or 'a file without suffix'}; take {', '.join(SUFFIXES)}"
        )
    if not path.parent.is_dir():
        raise InputError(f"--output {path}: there is no folder {path.parent}")
    if suffix in (".png", ".svg"):
        if not answer.charts:
            raise InputError(f"--output {path}: this answer has no picture; take .html, .json or .txt")
        from loadfactor.faces.charts import image

        image.save(answer.charts, path, heading=answer.sentence)
        return
    if suffix == ".html":
        from loadfactor.faces.answer.page import page as text_of
    elif suffix == ".json":
        text_of = as_json
    else:
        from loadfactor.faces.answer.terminal import as_text as text_of
    path.write_text(text_of(answer) + "\n", encoding="utf-8")


def as_json(answer: Answer) -> str:
    """The answer's data as JSON text; numbers that are not finite become null."""
    return json.dumps(plain(answer.data), indent=2, ensure_ascii=False, allow_nan=False)


def plain(value: Any) -> Any:
    """Plain JSON values: dataclasses become objects, dates ISO text, arrays lists, infinities and NaN null.

    >>> plain({"when": date(2026, 3, 1), "never": float("inf"), "sizes": (1, 2)})
    {'when': '2026-03-01', 'never': None, 'sizes': [1, 2]}
    """
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(v) for v in value]
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, date):  # datetime is a date
        return value.isoformat()
    if hasattr(value, "tolist"):  # a numpy array or scalar
        return plain(value.tolist())
    if isinstance(value, float) and value - value != 0:
        return None
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)
