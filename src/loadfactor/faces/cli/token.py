"""`loadfactor token create`, `list` and `revoke`: who may send samples to a server, and who may ask it what."""

from dataclasses import dataclass
from pathlib import Path

import typer

from loadfactor.faces.cli.books_request import find_store
from loadfactor.faces.cli.commands import add_command
from loadfactor.faces.document import Document
from loadfactor.request import Request, option

ABOUT = "Create, list and revoke the tokens that a server asks for."
ABOUT_CREATE = (
    "Create a token, shown once: the store keeps only a hash of it.\n\n"
    "With the first one the server of this store asks for a token. Send it as `Authorization: Bearer lf_…`."
)
ABOUT_LIST = "List the tokens of a store, with their ids. The tokens themselves are kept nowhere."
ABOUT_REVOKE = "Have a token admit nobody any more, at once."


@dataclass(frozen=True, kw_only=True)
class TokenListRequest(Request):
    """Whose tokens."""

    store: Path | None = option("Folder of the books. [default: books, or what loadfactor.toml says]", None)

    @property
    def folder(self) -> Path:
        """The folder of the books."""
        return find_store(self.store)


@dataclass(frozen=True, kw_only=True)
class TokenCreateRequest(TokenListRequest):
    """What a new token may do."""

    write: bool = option("It may send samples and upload files, and read nothing.", False)
    read: bool = option("It may read everything.", False)
    read_team: str | None = option("It may read what concerns this team alone.", None)
    name: str | None = option("What it is for, in your words.", None)


@dataclass(frozen=True, kw_only=True)
class TokenRevokeRequest(TokenListRequest):
    """Which token to revoke."""

    id: str = option("Id of the token.", is_argument=True)


def add_to(app: typer.Typer) -> None:
    """Add `token` and what can be done with tokens."""
    commands = typer.Typer(help=ABOUT, no_args_is_help=True)
    add_command(commands, "create", TokenCreateRequest, build_creation, ABOUT_CREATE)
    add_command(commands, "list", TokenListRequest, build_list, ABOUT_LIST)
    add_command(commands, "revoke", TokenRevokeRequest, build_revocation, ABOUT_REVOKE)
    app.add_typer(commands, name="token")


def build_creation(request: TokenCreateRequest) -> Document:
    """Create a token, and show it."""
    from loadfactor.faces.pages.token_list import create

    return create(request.folder, request.write, request.read, request.read_team, request.name or "")


def build_list(request: TokenListRequest) -> Document:
    """The tokens there are."""
    from loadfactor.faces.pages.token_list import build_document

    return build_document(request.folder)


def build_revocation(request: TokenRevokeRequest) -> Document:
    """Revoke a token."""
    from loadfactor.faces.pages.token_list import revoke

    return revoke(request.folder, request.id)
