"""`loadfactor catalog`: the known models, accelerators, prices and types of instances."""

from dataclasses import dataclass
from typing import Literal

import typer

from loadfactor.base.request import Request, option
from loadfactor.interfaces.cli.commands import add_command
from loadfactor.interfaces.document import Document

ABOUT = (
    "List the known models, accelerators, prices or types of instances.\n\n"
    "Each with its source and date; take --json for every fact."
)


@dataclass(frozen=True, kw_only=True)
class CatalogRequest(Request):
    """Which part of the catalog to list."""

    part: Literal["models", "accelerators", "prices", "instances"] = option("Which list.", is_argument=True)


def add_to(app: typer.Typer) -> None:
    """Add `catalog`."""
    add_command(app, "catalog", CatalogRequest, build_page, ABOUT)


def build_page(request: CatalogRequest) -> Document:
    """The list that the request names."""
    from loadfactor.interfaces.pages.catalog_list import build_accelerators, build_instances, build_models, build_prices

    pages = {
        "models": build_models,
        "accelerators": build_accelerators,
        "prices": build_prices,
        "instances": build_instances,
    }
    return pages[request.part]()
