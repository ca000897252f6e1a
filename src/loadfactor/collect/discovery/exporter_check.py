"""What a group of exporters gives: how many answer, which signals and labels their pages have, and what is missing."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from loadfactor.base.errors import LoadfactorError
from loadfactor.collect.discovery.serving_check import find_engines, list_untold
from loadfactor.collect.discovery.shortfalls import Shortfall, list_shortfalls, note_clock
from loadfactor.collect.discovery.source_check import SourceCheck, count_devices, read_clock, read_device, understand
from loadfactor.collect.exporter_page import ExporterAccess, Target, fetch_page
from loadfactor.collect.lanes import Lane
from loadfactor.collect.scraped_page import unpack_gzip
from loadfactor.collect.target_finders import FoundTargets, TargetFinder
from loadfactor.sources.gpu_scrapes.known_devices import DeviceLabels
from loadfactor.sources.prometheus.families import find_family
from loadfactor.sources.prometheus.metrics_page import list_series

MOST_AT_ONCE: Final = 200
NAMED: Final = 3


@dataclass(frozen=True)
class AskedGroup:
    """A group of exporters to check, or of serving engines; `where` is how it finds them, as the configuration says it."""

    name: str
    where: str
    finder: TargetFinder
    access: ExporterAccess
    every_s: float
    is_serving: bool = False


@dataclass(frozen=True)
class _Asked:
    """An exporter that was asked: the metrics and the GPUs on its page, or why there is none."""

    target: Target
    metrics: frozenset[str] = frozenset()
    devices: frozenset[DeviceLabels] = frozenset()
    clock_s: float | None = None
    error: str = ""


async def check_groups(groups: Sequence[AskedGroup]) -> list[SourceCheck]:
    """Every group, all at once. Never raises a LoadfactorError."""
    turns = asyncio.Semaphore(MOST_AT_ONCE)
    return list(await asyncio.gather(*(check_group(group, turns) for group in groups)))


async def check_group(group: AskedGroup, turns: asyncio.Semaphore) -> SourceCheck:
    """What the exporters of a group give now."""
    list_ = await group.finder.find()
    asked = await asyncio.gather(*(_ask(target, group.access, turns) for target in list_.targets))
    answers = [one for one in asked if not one.error]
    found = SourceCheck(
        group.name, group.where, bool(answers), targets=len(asked), answering=len(answers), step_s=group.every_s
    )
    if not answers:
        return replace(found, error=_say_why_none(list_, asked))
    metrics = {name for one in answers for name in one.metrics}
    clocks = [one.clock_s for one in answers if one.clock_s is not None]
    found = replace(found, clock_s=max(clocks, key=abs, default=None))
    if group.is_serving:
        missing = (*_list_dead(list_, asked, "what they make"), *note_clock(found.clock_s), *list_untold(metrics))
        return replace(found, exporters=find_engines(metrics), shortfalls=missing)
    found = replace(found, **understand(metrics))
    found = replace(found, **count_devices([device for one in answers for device in one.devices]))
    missing = (*_list_dead(list_, asked, "their GPUs"), *list_shortfalls(found))
    return replace(found, shortfalls=missing)


async def _ask(target: Target, access: ExporterAccess, turns: asyncio.Semaphore) -> _Asked:
    async with turns:
        try:
            answer = await fetch_page(target, access, Lane())
            page = unpack_gzip(answer.content) if answer.is_gzip else answer.content
            series = list(list_series(page, target.labels))
        except LoadfactorError as error:
            return _Asked(target, error=str(error))
    clock_s = read_clock(answer.date, (answer.at_s + answer.end_s) / 2)
    of_gpus = [labels for labels in series if (known := find_family(labels)) is not None and known[1] is not None]
    return _Asked(target, frozenset(s["__name__"] for s in series), frozenset(map(read_device, of_gpus)), clock_s)


def _say_why_none(list_: FoundTargets, asked: Sequence[_Asked]) -> str:
    if not asked:
        return list_.error or "it has no exporters"
    return f"{_say_errors(asked)}{f'; {list_.error}' if list_.error else ''}"


def _list_dead(list_: FoundTargets, asked: Sequence[_Asked], whose: str) -> list[Shortfall]:
    dead = [one for one in asked if one.error]
    found = []
    if dead:
        what = f"{len(dead)} of {len(asked)} exporters do not answer: {_say_errors(dead)}"
        found.append(
            Shortfall("missing", what, f"{whose}: nothing is measured", "start them, or take them off the list")
        )
    if list_.error:
        found.append(
            Shortfall("missing", list_.error, "exporters that should be asked, or should not", "mend the list")
        )
    return found


def _say_errors(dead: Sequence[_Asked]) -> str:
    named = ", ".join(f"{one.target.name} ({one.error})" for one in dead[:NAMED])
    return named + (f" and {len(dead) - NAMED} more" if len(dead) > NAMED else "")
