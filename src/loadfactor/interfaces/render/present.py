"""Where a document goes: to the terminal, to stdout in a format, or into a file named by its suffix."""

import errno
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Literal, get_args

import typer

from loadfactor.base.errors import InputError, LoadfactorError, no_such, say_why
from loadfactor.base.paths import read_path
from loadfactor.base.spelling import spell_out
from loadfactor.interfaces.document import Document
from loadfactor.store.disk import rename, sync_file, sync_folder

FAILING_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


@contextmanager
def replacing(path: Path, option: str = "--output") -> Iterator[Path]:
    """A file beside `path` to write to; renamed to `path` when all is written, so that a full disk leaves the old one.

    What a symbolic link points to is replaced, not the link. Raises InputError naming the option where it cannot be written,
    LoadfactorError where the disk is full or fails.
    """
    is_device = path.exists() and not path.is_file()  # /dev/stdout is written to, not replaced
    target = path if is_device else Path(os.path.realpath(path))
    beside = target if is_device else target.with_name(f".{target.stem}-{os.getpid()}{target.suffix}")
    try:
        yield beside
        if not is_device:
            _put(beside, target)
    except OSError as error:
        message = f"{option} {path}: cannot be written ({say_why(error)})"
        if error.errno in FAILING_DISK:
            kept = "; the file of that name is as it was" if path.is_file() else ""
            raise LoadfactorError(f"{message}{kept}") from error
        raise InputError(message) from error
    finally:
        if not is_device:
            with suppress(OSError):
                beside.unlink(missing_ok=True)


def _put(beside: Path, target: Path) -> None:
    """Make what is written durable and give it the name, with the rights that the old file had."""
    if target.exists():
        if not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        shutil.copymode(target, beside)
    sync_file(beside)
    rename(beside, target)
    sync_folder(target.parent)


def save_image(document: Document, path: Path) -> None:
    """Write the charts under the headline. Raises InputError where the page has none."""
    if not document.charts:
        raise InputError(f"--output {path.suffix}: this answer has no picture; take .html, .json or .txt")
    if path.suffix == ".svg":
        from loadfactor.interfaces.render.html import render_svg

        path.write_text(render_svg(document), encoding="utf-8")
    else:
        from loadfactor.interfaces.charts.image import save_png

        save_png(document.charts, path, document.headline)


Format = Literal["terminal", "json", "html", "md", "csv"]
SUFFIXES = (".html", ".pdf", ".xlsx", ".md", ".json", ".csv", ".txt", ".png", ".svg")


def present(
    document: Document,
    output_format: str = "terminal",
    output: Path | None = None,
    brief: bool = False,
    besides: Mapping[str, Callable[[Document], str]] = MappingProxyType({}),
) -> None:
    """Show a document on stdout, or write it to `output` by its suffix; ends the command with 1 when the answer is no.

    `brief` keeps the headline and the main table. `besides` are formats of one command alone; they go into a file of any suffix.
    Raises InputError for a suffix or format it cannot write.
    """
    known = (*get_args(Format), *besides)
    if output_format not in known:
        raise no_such("format", output_format, known)
    if output_format in besides:
        text = besides[output_format](document)
        if output is None:
            sys.stdout.write(text)
        else:
            with replacing(path := read_path(output)) as beside:
                beside.write_text(text, encoding="utf-8")
            sys.stdout.write(f"{spell_out(document.headline)}\nWritten to {spell_out(str(path))}\n")
        return
    shown = document.brief if brief else document
    if output is not None:
        output = write_document(shown, output)
    if output_format != "terminal":
        sys.stdout.write(_renderer(output_format)(shown).rstrip("\n") + "\n")
    elif output is None:
        from loadfactor.interfaces.render.terminal import print_document

        print_document(shown)
    else:
        sys.stdout.write(f"{spell_out(document.headline)}\nWritten to {spell_out(str(output))}\n")
    if document.is_no:
        raise typer.Exit(1)


def write_document(document: Document, output: Path) -> Path:
    """Write a document into a file by its suffix: .html or .pdf page, .xlsx tables, .json data, .csv main table, .png pictures …

    The path of that file.
    """
    path = read_path(output)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(
            f"--output {path}: cannot write {suffix or 'a file without suffix'}; take {', '.join(SUFFIXES)}"
        )
    if not path.parent.is_dir():
        raise InputError(f"--output {path}: there is no folder {path.parent}")
    with replacing(path) as beside:
        if suffix in (".png", ".svg"):
            save_image(document, beside)
        elif suffix == ".pdf":
            from loadfactor.interfaces.render.pdf import save_pdf

            save_pdf(document, beside)
        elif suffix == ".xlsx":
            from loadfactor.interfaces.render.spreadsheet import save_spreadsheet

            save_spreadsheet(document, beside)
        else:
            text = _renderer("terminal" if suffix == ".txt" else suffix[1:])(document)
            beside.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
    return path


def _renderer(output_format: str) -> Callable[[Document], str]:
    if output_format == "json":
        from loadfactor.interfaces.render.json import render_json

        return render_json
    if output_format == "html":
        from loadfactor.interfaces.render.html import render_html

        return render_html
    if output_format == "md":
        from loadfactor.interfaces.render.markdown import render_markdown

        return render_markdown
    if output_format == "csv":
        from loadfactor.interfaces.render.json import render_csv

        return render_csv
    from loadfactor.interfaces.render.terminal import render_text

    return render_text
