"""`loadfactor pseudonym make-key`, `of` and `reveal`: the key of pseudonyms, and what only who has it can say."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from loadfactor.base.errors import InputError
from loadfactor.base.paths import read_path
from loadfactor.base.request import Request, option
from loadfactor.interfaces.cli.commands import add_commands
from loadfactor.interfaces.document import DataTable, Document, Section, TableColumn
from loadfactor.interfaces.formats import counted

if TYPE_CHECKING:
    from loadfactor.base.privacy.pseudonyms import Pseudonyms

ABOUT = "Make the key of pseudonyms, and say with it who is who."
ABOUT_KEY = (
    "Write a new key of pseudonyms into a file that its owner alone can read.\n\n"
    "Name it as key_file under [privacy] in loadfactor.toml. Who loses it cannot turn pseudonyms back."
)
ABOUT_OF = "Say which pseudonym a user has."
ABOUT_REVEAL = "Say which user a pseudonym stands for."
_KEY_HELP = "File with the key. [default: what loadfactor.toml says]"


@dataclass(frozen=True, kw_only=True)
class KeyRequest(Request):
    """Where the key is to lie."""

    file: Path = option("A file that does not exist yet, outside the books.", is_argument=True)


@dataclass(frozen=True, kw_only=True)
class PseudonymOfRequest(Request):
    """Whose pseudonyms."""

    names: tuple[str, ...] = option("Users.", is_argument=True)
    key_file: Path | None = option(_KEY_HELP, None)


@dataclass(frozen=True, kw_only=True)
class RevealRequest(Request):
    """Which pseudonyms to turn back."""

    pseudonyms: tuple[str, ...] = option("Pseudonyms, p-….", is_argument=True)
    key_file: Path | None = option(_KEY_HELP, None)


@dataclass(frozen=True)
class NamedPseudonym:
    """A user and its pseudonym."""

    user: str
    pseudonym: str


@dataclass(frozen=True)
class PseudonymList:
    """Users and their pseudonyms."""

    pseudonyms: tuple[NamedPseudonym, ...]


def add_to(app: typer.Typer) -> None:
    """Add `pseudonym` and what can be done with them."""
    add_commands(
        app,
        "pseudonym",
        ABOUT,
        ("make-key", KeyRequest, build_key, ABOUT_KEY),
        ("of", PseudonymOfRequest, build_pseudonyms, ABOUT_OF),
        ("reveal", RevealRequest, build_names, ABOUT_REVEAL),
    )


def build_key(request: KeyRequest) -> Document:
    """Make a key."""
    from loadfactor.base.privacy.key_file import make_key

    path = read_path(request.file)
    make_key(path)
    return Document(
        f"The key of pseudonyms is in {path}; keep a copy where the books are not.",
        notes=(f'In loadfactor.toml: [privacy] users = "pseudonyms", key_file = "{path.absolute()}".',),
        data=request,
    )


def build_pseudonyms(request: PseudonymOfRequest) -> Document:
    """The pseudonyms of users."""
    key = _read(request.key_file)
    return _list((name, key.mask(name)) for name in request.names)


def build_names(request: RevealRequest) -> Document:
    """The users behind pseudonyms."""
    key, found = _read(request.key_file), []
    for text in request.pseudonyms:
        name = key.reveal(text)
        if name is None:
            raise InputError(f"{text!r} is no pseudonym of this key; another --key-file may have made it")
        found.append((name, text))
    return _list(found)


def _list(found: Iterable[tuple[str, str]]) -> Document:
    named = tuple(NamedPseudonym(*pair) for pair in found)
    table = DataTable((TableColumn("user"), TableColumn("pseudonym")), [(n.user, n.pseudonym) for n in named])
    return Document(f"{counted(len(named), 'user')}.", (Section(tables=(table,)),), data=PseudonymList(named))


def _read(given: Path | None) -> "Pseudonyms":
    from loadfactor.base.privacy.key_file import read_key
    from loadfactor.settings.config import settings

    return read_key(read_path(given) if given else settings().privacy.key_file)
