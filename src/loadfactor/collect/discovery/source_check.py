"""What a Prometheus-compatible server gives: whether it answers, which exporters, signals and labels, and what is missing."""

import asyncio
import json
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from itertools import pairwise
from statistics import median
from typing import Any, Final

from loadfactor.base.errors import LoadfactorError
from loadfactor.base.units import S_PER_MIN
from loadfactor.collect.discovery.serving_check import find_engines
from loadfactor.collect.discovery.shortfalls import Shortfall, list_shortfalls
from loadfactor.collect.fetch_errors import FetchError
from loadfactor.collect.prometheus_server import PrometheusServer, fetch_answer
from loadfactor.sources.gpu_scrapes.known_devices import DeviceLabels, read_labels
from loadfactor.sources.prometheus.families import find_family, list_labels
from loadfactor.sources.prometheus.node_source import NODE_EXPORTER, list_node_names
from loadfactor.sources.prometheus.query_answers import write_selector

LOOK_BACK_S: Final = 5 * S_PER_MIN
"""What was scraped within so long is there, as for an instant query of Prometheus."""
CLOCKS_AGREE_S: Final = 2.0
"""The header Date counts whole seconds."""


@dataclass(frozen=True)
class SourceCheck:
    """What one server or group of exporters gives. `clock_s`: how far its clock is ahead of ours; `step_s`: time between two
    scrapes; `newest_s`: age of the newest sample by the server's clock; `keys`: the fields its exporters give of GPUs.
    `targets`: the exporters of a group, of which so many are `answering`.

    Numbers are None where the server does not say them.
    """

    name: str
    url: str
    reachable: bool
    error: str | None = None
    clock_s: float | None = None
    exporters: tuple[str, ...] = ()
    gpus: int = 0
    nodes: int = 0
    held_gpus: int = 0
    named_gpus: int = 0  # GPUs whose model is said
    step_s: float | None = None
    newest_s: float | None = None
    keys: frozenset[str] = frozenset()
    shortfalls: tuple[Shortfall, ...] = ()
    targets: int | None = None
    answering: int | None = None


async def check_server(server: PrometheusServer, match: str) -> SourceCheck:
    """What a server gives of the series that `match` (matchers in braces, or nothing) chooses. Never raises a LoadfactorError."""
    found = SourceCheck(server.name, server.url, reachable=False)
    try:
        began_s = time.time()
        answer = await fetch_answer(server, {"query": f"count by (__name__) ({write_selector(match)})"})
        found = replace(found, clock_s=read_clock(answer.date, (began_s + time.time()) / 2))
        counts = {row["metric"].get("__name__", ""): float(row["value"][1]) for row in _read_vector(answer.content)}
        found = replace(found, reachable=True, **understand(counts))
        if found.keys:
            found = replace(found, **await _look_at_gpus(server, match, counts))
        return replace(found, shortfalls=list_shortfalls(found))
    except LoadfactorError as error:
        return replace(found, error=str(error))


async def check_servers(servers: Sequence[tuple[PrometheusServer, str]]) -> list[SourceCheck]:
    """Several servers, each with its matchers, at once."""
    return list(await asyncio.gather(*(_check_in_time(server, match) for server, match in servers)))


async def _check_in_time(server: PrometheusServer, match: str) -> SourceCheck:
    try:
        async with asyncio.timeout(2 * server.timeout_s):  # also of one that answers byte by byte
            return await check_server(server, match)
    except TimeoutError:
        late = f"did not answer within {2 * server.timeout_s:g} seconds"
        return SourceCheck(server.name, server.url, reachable=False, error=late)


def understand(names: Collection[str]) -> dict[str, Any]:
    """The exporters, serving engines and fields behind these names of metrics."""
    gpus = {name: found for name in names if (found := find_family({"__name__": name})) is not None}
    exporters = {*(family.name for family, _ in gpus.values()), *find_engines(names)}
    if any(name in names for name in list_node_names()):
        exporters.add(NODE_EXPORTER)
    keys = frozenset(field.key for _, field in gpus.values() if field is not None)
    return {"exporters": tuple(sorted(exporters)), "keys": keys}


async def _look_at_gpus(server: PrometheusServer, match: str, counts: Mapping[str, float]) -> dict[str, Any]:
    """The GPUs of the metric that most series have, and how often they are scraped."""
    told = [name for name in counts if (found := find_family({"__name__": name})) is not None and found[1] is not None]
    name = max(sorted(told), key=lambda one: counts[one])
    further = match.strip().removeprefix("{").removesuffix("}").strip().strip(",")
    series = f'{{__name__="{name}"{"," if further else ""}{further}}}'
    stamped = await fetch_answer(server, {"query": f"timestamp({series})"})
    rows = _read_vector(stamped.content)
    devices = [read_device({**row["metric"], "__name__": name}) for row in rows]
    ages = [float(row["value"][0]) - float(row["value"][1]) for row in rows]
    return {
        **count_devices(devices),
        "step_s": await _find_step(server, {**rows[0]["metric"], "__name__": name}) if rows else None,
        "newest_s": max(0.0, min(ages)) if ages else None,
    }


async def _find_step(server: PrometheusServer, labels: Mapping[str, str]) -> float | None:
    """Seconds between two samples of one series; None where it has one."""
    series = "{" + ",".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in labels.items()) + "}"
    answer = await fetch_answer(server, {"query": f"{series}[{LOOK_BACK_S}s]"})
    try:
        points = json.loads(answer.content)["data"]["result"][0]["values"]
        return median(float(b[0]) - float(a[0]) for a, b in pairwise(points)) if len(points) > 1 else None
    except (ValueError, KeyError, TypeError, IndexError):
        return None  # the series has ended meanwhile


def count_devices(devices: Iterable[DeviceLabels]) -> dict[str, Any]:
    """How many GPUs these are, in how many nodes, and of how many it is said who holds them and what model they are."""
    gpus = [d for d in devices if d.gpu is not None]
    return {
        "gpus": len({d.gpu for d in gpus}),
        "nodes": len({d.node for d in gpus if d.node is not None}),
        "held_gpus": len({d.gpu for d in gpus if d.holder is not None}),
        "named_gpus": len({d.gpu for d in gpus if d.model is not None}),
    }


def read_device(labels: Mapping[str, str]) -> DeviceLabels:
    """What the labels of a series say of its GPU."""
    found = find_family(labels)
    assert found is not None
    lower = {name.lower(): value for name, value in labels.items()}
    return read_labels(lower, None, lower.get("instance", ""), list_labels(found[0]))


def _read_vector(content: bytes) -> list[dict[str, Any]]:
    """The rows of an instant vector. Raises FetchError where the answer is none."""
    try:
        said = json.loads(content)
        rows = said["data"]["result"]
        if said["data"]["resultType"] != "vector":
            raise TypeError
        for row in rows:
            float(row["value"][0]), float(row["value"][1]), row["metric"].items()
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise FetchError("answered, but not as Prometheus does; check the address") from error
    return list(rows)


def read_clock(date: str, ours_s: float) -> float | None:
    """How far the clock that said this date is ahead of ours; None where it says none."""
    try:
        return parsedate_to_datetime(date).timestamp() + 0.5 - ours_s  # the date is cut to the second
    except (ValueError, TypeError):
        return None
