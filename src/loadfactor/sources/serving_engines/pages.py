"""Text of /metrics of serving engines into pages: what one replica reported at one instant.

Times are those of the lines; else of a line that is nothing but a time, before the page; else in the name of the file. A series
that comes again begins another page.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite

from loadfactor.base.units import MS_PER_S, NS_PER_MS
from loadfactor.sources.base import Input
from loadfactor.sources.parsing.exposition import find_head_end, list_labels, read_sample, split_head
from loadfactor.sources.parsing.text_blocks import split_blocks
from loadfactor.sources.parsing.times import parse_stamp
from loadfactor.sources.serving_engines.engines import (
    START,
    Labels,
    counts,
    drop_copies,
    find_gauge,
    find_router,
    is_counter,
    spell,
)

Place = tuple[str, str]
"""The job, empty where no label names one, and the replica."""
_TYPE = re.compile(r"# TYPE (?P<name>\S+) (?P<kind>\w+)")
_REPLICA = ("pod", "exported_pod", "kubernetes_pod_name", "pod_name", "instance")
_NAMESPACE = ("namespace", "exported_namespace", "kubernetes_namespace", "namespace_name")
_WORKER = ("worker_addr", "WorkerId")
"""Labels of the engines of one page: SGLang's gateway and Ray tell of several."""


@dataclass
class EnginePage:
    """One page of one replica. `counters` by metric and labels, `gauges` by unit; `declared`: counters that have a title.

    `at_ms` is None where nothing says when; `start_ms` where nothing says when the process began.
    """

    place: Place
    at_ms: int | None
    start_ms: int | None = None
    counters: dict[str, dict[Labels, float]] = field(default_factory=dict)
    gauges: dict[str, float] = field(default_factory=dict)
    declared: frozenset[str] = frozenset()
    seen: set[tuple[str, Labels]] = field(default_factory=set, repr=False, compare=False)  # gauges that were read

    @property
    def is_empty(self) -> bool:
        """True where it tells nothing of an engine."""
        return not self.counters and not self.gauges


def read_pages(
    source: Input, default: str, unreadable: list[str], routers: dict[str, str] | None = None
) -> Iterator[EnginePage]:
    """The pages of a text, in its order. `default`: the replica where no label names one. `unreadable` gets lines that are none.

    `routers` gets what else a page is of, and what to do.
    """
    pages: dict[tuple[Place, int | None], EnginePage] = {}
    seen: set[str] = set()
    declared: set[str] = set()
    stamp_ms: int | None = None
    for line in _list_lines(source):
        stamp = parse_stamp(line.strip("# ")) if line[:1] == "#" or line[:4].isdigit() else None
        if stamp is not None and stamp.zoned:
            yield from _close(pages, seen, declared)
            stamp_ms = stamp.at_ns // NS_PER_MS
            continue
        if line[:1] == "#":
            titled = _TYPE.match(line)
            if titled is not None and is_counter(_name_samples(spell(titled["name"]))):
                declared.add(_name_samples(spell(titled["name"])))
            if line.startswith("# EOF"):
                yield from _close(pages, seen, declared)
            continue
        cut = find_head_end(line)
        sample, parts = read_sample(line[cut:]), split_head(line[:cut])
        if parts is None or sample is None or not isfinite(sample[0]):
            unreadable.append(line)
            continue
        value, at_ms = sample
        if at_ms is None:
            if line[:cut] in seen:
                yield from _close(pages, seen, declared)
            seen.add(line[:cut])
            at_ms = stamp_ms
        labels = list_labels(parts[1])
        place = find_place(labels, default)
        page = pages.setdefault((place, at_ms), EnginePage(place, at_ms))
        add_series(page, spell(parts[0]), labels, value)
        if routers is not None and (router := find_router(spell(parts[0]))) is not None:
            routers[router[0]] = router[1]
    yield from _close(pages, seen, declared)


def add_series(page: EnginePage, name: str, labels: Mapping[str, str], value: float) -> None:
    """Add to a page what a series tells, if it is of an engine; its name as `spell` writes it."""
    if name == START:
        page.start_ms = round(value * MS_PER_S)
    elif is_counter(name):
        if counts(name, labels):
            page.counters.setdefault(name, {}).setdefault(drop_copies(name, labels), value)
    elif (unit := find_gauge(name, labels)) is not None:
        key = name, drop_copies(name, labels)
        if key not in page.seen:
            page.seen.add(key)
            page.gauges[unit] = page.gauges.get(unit, 0.0) + value


def _close(
    pages: dict[tuple[Place, int | None], EnginePage], seen: set[str], declared: set[str]
) -> Iterator[EnginePage]:
    for page in pages.values():
        if not page.is_empty:
            page.declared = frozenset(declared)
            yield page
    pages.clear()
    seen.clear()
    declared.clear()


def find_place(labels: Mapping[str, str], default: str) -> Place:
    """The job, empty where no label names a pod, and the replica: `default` where no label names one."""
    replica = next((labels[name] for name in _REPLICA if labels.get(name)), "")
    namespace = next((labels[name] for name in _NAMESPACE if labels.get(name)), "")
    pod = next((labels[name] for name in _REPLICA[:-1] if labels.get(name)), "")
    worker = next((labels[name] for name in _WORKER if labels.get(name)), "")
    return (f"{namespace}/{pod}" if pod and namespace else "", "/".join(filter(None, (replica, worker))) or default)


def _name_samples(title: str) -> str:
    """The name of the samples of a title: OpenMetrics leaves _total out of titles."""
    return title if is_counter(title) else f"{title}_total"


def _list_lines(source: Input) -> Iterator[str]:
    for block in split_blocks(source):
        for line in block.data.decode().split("\n"):
            if line.strip():
                yield line.rstrip("\r")
