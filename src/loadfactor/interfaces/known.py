"""Names that can stand behind an option: what a shell completes, and what a form suggests."""

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def find(dotted: str) -> Any:
    """What a dotted name names; its module is imported now."""
    module, _, name = dotted.rpartition(".")
    return getattr(import_module(module), name)


def _names_in(dotted: str, attribute: str = "") -> Callable[[], Iterable[str]]:
    """A function that lists the names in a collection, or in what a function gives; imported when the shell asks."""

    def names() -> Iterable[str]:
        found = find(dotted)
        return [getattr(item, attribute) if attribute else item for item in (found() if callable(found) else found)]

    return names


KNOWN: Mapping[str, Callable[[], Iterable[str]]] = {
    "metrics": _names_in("loadfactor.metrics.METRICS", "name"),
    "sort": _names_in("loadfactor.metrics.METRICS", "name"),
    "by": _names_in("loadfactor.tables.schema.DIMENSIONS"),
    "where": lambda: (f"{name}=" for name in find("loadfactor.tables.schema.DIMENSIONS")),
    "basis": _names_in("loadfactor.tables.schema.BASES"),
    "accelerator": _names_in("loadfactor.catalog.accelerators.accelerators"),
    "cluster": _names_in("loadfactor.catalog.clusters.clusters", "id"),
    "model": _names_in("loadfactor.catalog.models.networks"),
    "api": _names_in("loadfactor.catalog.token_prices.token_prices", "id"),
    "source": _names_in("loadfactor.sources.SOURCES", "name"),
    "timezone": lambda: sorted(find("zoneinfo.available_timezones")()),
}
"""The names that can stand behind an option, by the field of a request."""
