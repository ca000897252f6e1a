"""What the shell completes: the names that can stand behind an option, wherever a command has one of that name."""

from collections.abc import Callable, Iterable, Mapping


def _metrics() -> Iterable[str]:
    from loadfactor.metrics import METRICS

    return (metric.name for metric in METRICS)


def _dimensions() -> Iterable[str]:
    from loadfactor.tables.schema import DIMENSIONS

    return DIMENSIONS


def _filters() -> Iterable[str]:
    return (f"{name}=" for name in _dimensions())


def _bases() -> Iterable[str]:
    from loadfactor.tables.schema import BASES

    return BASES


def _accelerators() -> Iterable[str]:
    from loadfactor.catalog.accelerators import accelerators

    return accelerators()


def _clusters() -> Iterable[str]:
    from loadfactor.catalog.clusters import clusters

    return (cluster.id for cluster in clusters())


def _models() -> Iterable[str]:
    from loadfactor.catalog.models import networks

    return networks()


def _sources() -> Iterable[str]:
    from loadfactor.sources import SOURCES

    return (source.name for source in SOURCES)


def _zones() -> Iterable[str]:
    from zoneinfo import available_timezones

    return sorted(available_timezones())


KNOWN: Mapping[str, Callable[[], Iterable[str]]] = {
    "metrics": _metrics,
    "sort": _metrics,
    "by": _dimensions,
    "where": _filters,
    "basis": _bases,
    "accelerator": _accelerators,
    "cluster": _clusters,
    "model": _models,
    "source": _sources,
    "timezone": _zones,
}
"""By the field of a request."""


def complete(known: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """A completion for Typer: the names that begin with what was typed, after the last comma of a list."""

    def names(incomplete: str) -> list[str]:
        before, comma, typed = incomplete.rpartition(",")
        return [before + comma + name for name in known() if name.startswith(typed)]

    return names
