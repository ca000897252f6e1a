"""`loadfactor owned`: what owned GPUs cost an hour, and how the measured load changes it."""

import typer

from loadfactor.base.errors import InputError
from loadfactor.interfaces.cli.books_request import StoreRequest
from loadfactor.interfaces.cli.commands import add_command
from loadfactor.interfaces.document import Document

ABOUT = (
    "Show what owned GPUs cost an hour, by assumed and measured load.\n\n"
    "Owned GPUs are tables [[owned]] of loadfactor.toml; their prices follow from the equations of `loadfactor plan own`."
)


def add_to(app: typer.Typer) -> None:
    """Add `owned`."""
    add_command(app, "owned", StoreRequest, build_page, ABOUT)


def build_page(request: StoreRequest) -> Document:
    """All owned GPUs of the settings. Raises InputError where there are none."""
    from loadfactor.interfaces.pages.owned import build_owned
    from loadfactor.settings.file import FILE

    uses = request.books.owned()
    if not uses:
        raise InputError(
            f'no owned GPUs in {FILE}; write: [[owned]] with accelerator = "h100-sxm" and server_price = 300000'
        )
    return build_owned(uses)
