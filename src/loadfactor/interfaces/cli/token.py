"""`loadfactor token create`, `list` and `revoke`: who may send samples to a server, and who may ask it what."""

from dataclasses import dataclass

import typer

from loadfactor.base.request import option
from loadfactor.interfaces.cli.books_request import StoreRequest, find_store
from loadfactor.interfaces.cli.commands import add_commands
from loadfactor.interfaces.document import Document

ABOUT = "Create, list and revoke the tokens that a server asks for."
ABOUT_CREATE = (
    "Create a token, shown once: the store keeps only a hash of it.\n\n"
    "With the first one the server of this store asks for a token. Send it as `Authorization: Bearer lf_…`."
)
ABOUT_LIST = "List the tokens of a store, with their ids. The tokens themselves are kept nowhere."
ABOUT_REVOKE = "Have a token admit nobody any more, at once."


@dataclass(frozen=True, kw_only=True)
class TokenCreateRequest(StoreRequest):
    """What a new token may do."""

    write: bool = option("It may send samples and upload files, and read nothing.", False)
    read: bool = option("It may read everything.", False)
    read_team: str | None = option("It may read what concerns this team alone.", None)
    name: str | None = option("What it is for, in your words.", None)


@dataclass(frozen=True, kw_only=True)
class TokenRevokeRequest(StoreRequest):
    """Which token to revoke."""

    id: str = option("Id of the token.", is_argument=True)


def add_to(app: typer.Typer) -> None:
    """Add `token` and what can be done with tokens."""
    add_commands(
        app,
        "token",
        ABOUT,
        ("create", TokenCreateRequest, build_creation, ABOUT_CREATE),
        ("list", StoreRequest, build_list, ABOUT_LIST),
        ("revoke", TokenRevokeRequest, build_revocation, ABOUT_REVOKE),
    )


def build_creation(request: TokenCreateRequest) -> Document:
    """Create a token, and show it."""
    from loadfactor.interfaces.pages.token_list import create

    return create(find_store(request.store), request.write, request.read, request.read_team, request.name or "")


def build_list(request: StoreRequest) -> Document:
    """The tokens there are."""
    from loadfactor.interfaces.pages.token_list import build_document

    return build_document(find_store(request.store))


def build_revocation(request: TokenRevokeRequest) -> Document:
    """Revoke a token."""
    from loadfactor.interfaces.pages.token_list import revoke

    return revoke(find_store(request.store), request.id)
