"""Man pages of every command, out of its help: `loadfactor generate man`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from loadfactor import __version__
from loadfactor.base.errors import InputError, say_why
from loadfactor.interfaces.cli.commands import CommandEntry, load_command

TOP: Final = "loadfactor"
FILES: Final = (
    (
        "loadfactor.toml",
        "The settings, in the working folder or where --config says; `loadfactor settings` lists them.",
    ),
    ("books", "The books, where --store, LOADFACTOR_STORE or the settings name no other folder."),
)
EXITS: Final = (
    ("0", "It was done."),
    ("1", "The answer is no, or the books or the machine do not let it be done."),
    ("2", "What was given is wrong; the line on standard error says what to do."),
)


def write_manual(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the pages, like ~/.local/share/man/man1.")],
) -> None:
    """Write the pages into a folder. Raises InputError where it cannot be written."""
    from loadfactor.interfaces.cli import COMMANDS

    about = "keeps the books of a GPU fleet"
    pages = {TOP: write_page(TOP, about, None, COMMANDS)} | dict(_list_pages(COMMANDS, TOP))
    try:
        output.mkdir(parents=True, exist_ok=True)
        for name, text in pages.items():
            (output / f"{name}.1").write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"--output {output}: cannot be written ({say_why(error)})") from error
    typer.echo(f"Wrote {len(pages)} pages into {output}; `man {TOP}` finds them where that folder is in its path.")


def _list_pages(entries: Sequence[CommandEntry], before: str) -> Iterator[tuple[str, str]]:
    """The name and text of the page of each command, and of those under it."""
    for entry in entries:
        words = f"{before} {entry.name}"
        yield words.replace(" ", "-"), write_page(words, entry.help, load_command(entry), entry.commands)
        yield from _list_pages(entry.commands, words)


def write_page(words: str, about: str, command: Any, entries: Sequence[CommandEntry]) -> str:
    """One page as roff. `words`: what is typed; `command`: what Typer made of it, None of the program itself."""
    name = words.replace(" ", "-")
    lines = [
        f'.TH "{name.upper()}" 1 "" "{TOP} {__version__}" "{TOP}"',
        ".SH NAME",
        f"{_escape(name)} \\- {_escape(about.rstrip('.'))}",
        ".SH SYNOPSIS",
        f".B {_escape(words)}",
    ]
    if command is None:
        lines += ["[OPTIONS] COMMAND"]
    else:
        context = typer.Context(command, info_name=words)
        lines += [_escape(" ".join(command.collect_usage_pieces(context)))]
        lines += [".SH DESCRIPTION", *_write_paragraphs(command.help or about)]
        records = [record for one in command.params if (record := one.get_help_record(context))]
        if records:
            lines += [".SH OPTIONS", *_write_terms(records)]
    if entries:
        lines += [".SH COMMANDS", *_write_terms([(entry.name, entry.help) for entry in entries])]
    if command is None:
        lines += [".SH FILES", *_write_terms(FILES), ".SH EXIT STATUS", *_write_terms(EXITS)]
    else:
        lines += [".SH SEE ALSO", f".BR {_escape(name.rpartition('-')[0])} (1)"]
    return "\n".join(lines) + "\n"


def _write_paragraphs(text: str) -> Iterator[str]:
    for part in text.split("\n\n"):
        yield ".PP"
        yield _escape(" ".join(part.split()))


def _write_terms(terms: Sequence[tuple[str, str]]) -> Iterator[str]:
    for term, meaning in terms:
        yield ".TP"
        yield f".B {_escape(term)}"
        yield _escape(" ".join(meaning.split())) or "\\&"


def _escape(text: str) -> str:
    """Text as roff takes it: ASCII, no line begins with a control character, and a hyphen is one that can be copied."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    text = "".join(one if one.isascii() else f"\\[u{ord(one):04X}]" for one in text)
    return f"\\&{text}" if text[:1] in (".", "'") else text
