"""`loadfactor check`: what each configured source gives, and what is missing."""

from dataclasses import dataclass
from pathlib import Path

import typer

from loadfactor.base.request import Request, option
from loadfactor.interfaces.cli.books_request import STORE_HELP, find_store
from loadfactor.interfaces.cli.commands import add_command
from loadfactor.interfaces.document import Document

ABOUT = (
    "Say what each configured source gives and what is missing.\n\n"
    "Exits with 1 when something that is configured cannot be reached. Changes nothing."
)


@dataclass(frozen=True, kw_only=True)
class SourcesRequest(Request):
    """Which configuration and books."""

    config: Path | None = option("The configuration. [default: loadfactor.toml]", None)
    store: Path | None = option(STORE_HELP, None)


def add_to(app: typer.Typer) -> None:
    """Add `check`."""
    add_command(app, "check", SourcesRequest, build_page, ABOUT)


def build_page(request: SourcesRequest) -> Document:
    """The check of the sources that the configuration names."""
    from loadfactor.base.errors import InputError
    from loadfactor.interfaces.pages.sources_check import check_sources
    from loadfactor.settings.config import read_settings, settings

    if request.config is not None and not request.config.is_file():
        raise InputError(f"there is no file {request.config}; `loadfactor init` writes a loadfactor.toml")
    chosen = settings() if request.config is None else read_settings(request.config)
    folder = chosen.store if request.store is None else find_store(request.store)
    return check_sources(chosen, folder)
