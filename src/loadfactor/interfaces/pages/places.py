"""Where the books of a command lie that needs none to be there: what lies beside them is made before they are."""

from pathlib import Path

from loadfactor.interfaces.requests import find_store
from loadfactor.settings.config import settings
from loadfactor.store.place import Place
from loadfactor.store.store import find_place


def find_books(given: Path | None) -> Place:
    """Where the books lie that are given, else those in the settings, with the folder beside them.

    Raises InputError where they are several.
    """
    return find_place(find_store(given), settings().local_folder, settings().cache_gb)
