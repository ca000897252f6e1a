"""Pages and counts of replicas as plain lists and tables, so that JSON can keep them, and back."""

from itertools import groupby
from typing import Any

from loadfactor.sources.serving_engines.counting import Amount, EngineProcess, ReplicaCounts
from loadfactor.sources.serving_engines.engines import Labels
from loadfactor.sources.serving_engines.pages import EnginePage

Stored = dict[str, Any]


def store_page(page: EnginePage) -> Stored:
    """A page that was read."""
    counters = {name: _store_values(values) for name, values in page.counters.items()}
    return {
        "place": page.place,
        "at_ms": page.at_ms,
        "start_ms": page.start_ms,
        "counters": counters,
        "gauges": page.gauges,
        "declared": sorted(page.declared),
    }


def restore_page(said: Stored) -> EnginePage:
    """The page that was stored. Raises KeyError, TypeError or ValueError where it is none."""
    job, replica = said["place"]
    return EnginePage(
        (job, replica),
        said["at_ms"],
        said["start_ms"],
        {name: _restore_values(values) for name, values in said["counters"].items()},
        said["gauges"],
        frozenset(said["declared"]),
    )


def store_counts(counts: ReplicaCounts) -> Stored:
    """All that later amounts depend on."""
    return {
        "step_ms": counts.step_ms,
        "pages": counts.pages,
        "first_ms": counts.first_ms,
        "last_ms": counts.last_ms,
        "processes": [[start, _store_process(process)] for start, process in counts.processes.items()],
        "fell_from": {name: _store_values(values) for name, values in counts.fell_from.items()},
        "falls": counts.falls,
        "mixed_until": counts.mixed_until,
        "held": _store_held(counts.held),
    }


def restore_counts(said: Stored) -> ReplicaCounts:
    """The counts that were stored. Raises as `restore_page`."""
    return ReplicaCounts(
        **{
            **said,
            "processes": {start: _restore_process(process) for start, process in said["processes"]},
            "fell_from": {name: _restore_values(values) for name, values in said["fell_from"].items()},
            "held": [
                (number, Amount(unit, from_ms, to_ms, amount))
                for number, from_ms, to_ms, amounts in said["held"]
                for unit, amount in amounts.items()
            ],
        }
    )


def store_amount(of: Amount) -> tuple[str, int, int, float]:
    """The fields of an amount in their order."""
    return of.unit, of.from_ms, of.to_ms, of.amount


def _store_held(held: list[tuple[int, Amount]]) -> list[Any]:
    """What is held, those of one page and interval together: it is most of the state."""
    found = []
    for (number, from_ms, to_ms), amounts in groupby(held, lambda one: (one[0], one[1].from_ms, one[1].to_ms)):
        found.append([number, from_ms, to_ms, {amount.unit: amount.amount for _, amount in amounts}])
    return found


def _store_process(process: EngineProcess) -> list[Any]:
    counters = {name: [at_ms, _store_values(values)] for name, (at_ms, values) in process.counters.items()}
    return [process.at_ms, counters, sorted(process.declared)]


def _restore_process(said: list[Any]) -> EngineProcess:
    at_ms, counters, declared = said
    found = {name: (last_ms, _restore_values(values)) for name, (last_ms, values) in counters.items()}
    return EngineProcess(at_ms, found, frozenset(declared))


def _store_values(values: dict[Labels, float]) -> list[Any]:
    return [[labels, value] for labels, value in values.items()]


def _restore_values(said: list[Any]) -> dict[Labels, float]:
    return {tuple((name, value) for name, value in labels): amount for labels, amount in said}
