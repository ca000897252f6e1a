"""For which books files are generated: the currency in which names of gauges end."""

import re
from pathlib import Path

from loadfactor.base.errors import InputError
from loadfactor.interfaces.cli.books_request import StoreRequest, find_store


def find_currency(currency: str | None, store: Path | None) -> str:
    """The currency given, else that of the books, else that of the settings. Raises InputError for what is none."""
    from loadfactor.settings.config import settings
    from loadfactor.tables.schema import DEFAULT_CURRENCY

    if currency is not None:
        if not re.fullmatch("[A-Z]{3}", currency):
            raise InputError(f"--currency {currency!r} is no currency; write three capital letters, like EUR")
        return currency
    if store is not None or (find_store(None) / "manifest.json").exists():
        return StoreRequest(store=store).books.store.currency
    return settings().currency or DEFAULT_CURRENCY
