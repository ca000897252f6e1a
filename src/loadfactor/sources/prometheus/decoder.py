"""Points of Prometheus → rows: each scrape of a GPU or node once it is there whole, in the order of time."""

import re
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.base.errors import DamageError
from loadfactor.sources.base import Gap, Rows
from loadfactor.sources.dcgm.fields import INFINITE, NAN, convert
from loadfactor.sources.gpu_scrapes.fields import KEY_NUMBER, Field, FieldValues
from loadfactor.sources.gpu_scrapes.known_devices import DeviceNumbers, read_labels
from loadfactor.sources.prometheus.engine_source import COUNTS, EngineSource, list_counts, restore_counts
from loadfactor.sources.prometheus.families import DCGM, Family, find_family, is_own, list_labels
from loadfactor.sources.prometheus.gpu_source import (
    GPUS,
    PLACES,
    GpuSource,
    list_gpus,
    list_places,
    restore_gpus,
    restore_places,
)
from loadfactor.sources.prometheus.node_source import (
    KIND_NUMBER,
    NODE_EXPORTER,
    NODES,
    SLOTS,
    NodeSource,
    find_node_field,
    list_nodes,
    list_slots,
    restore_nodes,
    restore_slots,
)
from loadfactor.sources.prometheus.pending_points import (
    GPU,
    HOLDERS,
    KEY,
    LABELS,
    NAME,
    PLACE,
    SOURCE_NUMBER,
    TOTAL,
    PendingPoints,
    SeriesFacts,
    drop_repeated,
    pick_points,
)
from loadfactor.sources.prometheus.read_names import is_read
from loadfactor.sources.prometheus.remote_write import NOT_UNDERSTOOD, Others, Points
from loadfactor.sources.serving_engines.engines import is_engines, spell
from loadfactor.sources.serving_engines.live_decoder import SERVING

VERSION: Final = 1
_HEAD: Final = struct.Struct("<4sIqqI")
_MAGIC: Final = b"lfpd"


class DecoderState(NamedTuple):
    """Bodies through which all was fed once, how many series were alive, and tables of what is remembered."""

    through: int
    series: int
    tables: tuple[pa.Table, ...]


def pack_state(state: DecoderState) -> bytes:
    """As bytes."""
    parts = [_HEAD.pack(_MAGIC, VERSION, state.through, state.series, len(state.tables))]
    for table in state.tables:
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
            writer.write_table(table)
        content = out.getvalue().to_pybytes()
        parts += [len(content).to_bytes(8, "little"), content]
    return b"".join(parts)


def unpack_state(content: bytes) -> DecoderState:
    """Read what `pack_state` wrote. Raises DamageError for anything else, and for what a later version wrote."""
    try:
        magic, version, through, series, count = _HEAD.unpack_from(content)
        if magic != _MAGIC or version != VERSION:
            raise DamageError(
                f"the state of the decoder of Prometheus is of version {version}; this one reads {VERSION}"
            )
        tables, at = [], _HEAD.size
        for _ in range(count):
            size = int.from_bytes(content[at : at + 8], "little")
            tables.append(pa.ipc.open_stream(pa.py_buffer(content[at + 8 : at + 8 + size])).read_all())
            at += 8 + size
    except (struct.error, pa.ArrowInvalid, OSError) as error:
        raise DamageError(f"the state of the decoder of Prometheus cannot be read: {error}") from error
    return DecoderState(through, series, tuple(tables))


def join_tables(tables: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
    return pa.concat_tables([schema.empty_table(), *tables])


_BARE_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ADDRESS: Final = re.compile(r"[0-9.]+|\[.*\]")  # of a pod or a host: no name that the books could know it by
SERIES_MAX: Final = 300_000
SOURCES_MAX: Final = 100
NAMES_MAX: Final = 1000
OTHERS: Final = "others"
ENGINES: Final = f"{SERVING}:prometheus"
"""The source of all engines; jobs tell them apart."""
SHARED_MAX: Final = 10_000
"""Sets of labels but the name that are found again without a digest."""


class _SeriesDevice(NamedTuple):
    """The GPU of a series: the source, numbers of its own, and what the labels call node and model."""

    source: int
    numbers: DeviceNumbers
    node: str | None
    model: str | None


class _SharedLabels(NamedTuple):
    """The labels of series that differ in their names only, the device they mean by exporter, and the numbers of series by name."""

    labels: dict[str, str]
    devices: dict[int, _SeriesDevice | None]  # by the identity of the family
    series: dict[str, int]


class PrometheusDecoder:
    """Turns the points of one stream into rows. For one thread at a time.

    Series are numbered by `identify`; `feed` takes points with the number of their payload; `drain` gives the rows of complete
    scrapes, `end` the rest. `state` is all that later rows depend on, as after the last `drain`: a decoder made from it, to which
    payloads that are not done yet are fed again, goes on with the same rows.
    """

    def __init__(self, state: bytes = b"", is_live: bool = True) -> None:
        """One that is not live lists devices once, at the `end`."""
        self._is_live = is_live
        self.not_understood: dict[str, int] = {}
        """Series of which nothing is kept, by metric name; names beyond NAMES_MAX are counted together."""
        self.last_sample_ms: dict[str, int] = {}
        """The newest point taken of each source."""
        self._facts = SeriesFacts()
        before = unpack_state(state) if state else DecoderState(0, 0, ())
        self._most_series = max(SERIES_MAX, 2 * before.series)
        self._sources: list[GpuSource | NodeSource | EngineSource] = []
        self._numbers: dict[str, int] = {}
        self._by_digest: dict[bytes, _SharedLabels] = {}
        self._shared: dict[Others, _SharedLabels] = {}
        self._units: dict[tuple[int, int], int] = {}
        self._pending = PendingPoints(self._facts, before.through)
        for known, remember in zip(before.tables, _REMEMBER, strict=False):
            for name in pc.unique(known["source"]).to_pylist():
                source = self._sources[self._number_source(name)]
                remember(source, known.filter(pc.equal(known["source"], name)))
        self._remember_taken()

    def identify(self, labels: Mapping[str, str]) -> int:
        """The number of the series with these labels, always the same; NOT_UNDERSTOOD for one of which nothing is kept."""
        others = tuple(text for pair in sorted(labels.items()) if pair[0] != "__name__" for text in pair)
        return self.identify_series(labels.get("__name__", ""), others)

    def identify_series(self, name: str, others: Others) -> int:
        """The same for a name and the other labels: names and values in turn, by name."""
        if not is_read(name):
            if not is_own(name):
                self._count_not_understood(name)
            return NOT_UNDERSTOOD
        shared = self._shared.get(others)
        if shared is None:
            shared = self._share(others)
        known = shared.series.get(name)
        if known is None:
            known = self._identify(name, shared)
            if known != NOT_UNDERSTOOD:
                shared.series[name] = known
        return known

    def _share(self, others: Others) -> "_SharedLabels":
        """Memory shared by the series with these labels; it is kept for good under a digest, and under the labels for a while."""
        digest = blake2b("\0".join(others).encode(errors="surrogatepass"), digest_size=16).digest()
        shared = self._by_digest.setdefault(digest, _SharedLabels({}, {}, {}))
        if len(self._shared) >= SHARED_MAX:
            for before in self._shared.values():
                before.labels.clear()
            self._shared.clear()
        shared.labels.update(zip(others[::2], others[1::2], strict=True))
        self._shared[others] = shared
        return shared

    def _identify(self, name: str, shared: "_SharedLabels") -> int:
        labels = {"__name__": name, **shared.labels}
        found, of_node = find_family(labels), find_node_field(labels)
        number = None
        if found is not None:
            family, field = found
            if id(family) not in shared.devices:
                shared.devices[id(family)] = self._find_device(family, shared.labels)
            device = shared.devices[id(family)]
            number = None if device is None else self._add_series(device, family, field, labels)
            if field is None:
                return NOT_UNDERSTOOD  # its labels are all it has
        elif of_node is not None:
            source = self._find_source(NODE_EXPORTER, labels.get("job", ""))
            number = None if source is None else self._add_node_series(source, *of_node, labels)
        elif is_engines(spell(name)):
            number = self._add_engine_series(labels)
        if number is None:
            self._count_not_understood(name)
            return NOT_UNDERSTOOD
        return number

    def _count_not_understood(self, name: str) -> None:
        if name not in self.not_understood and len(self.not_understood) >= NAMES_MAX:
            name = OTHERS
        self.not_understood[name] = self.not_understood.get(name, 0) + 1

    def _find_source(self, family: str, job: str) -> int | None:
        name = f"{family}:{job}" if job else family
        if name not in self._numbers and len(self._sources) >= SOURCES_MAX:
            return None
        return self._number_source(name)

    def _number_source(self, name: str) -> int:
        number = self._numbers.setdefault(name, len(self._sources))
        if number == len(self._sources):
            kind = _KINDS.get(name.partition(":")[0])
            self._sources.append(kind(name) if kind else GpuSource(name, self._is_live))
        return number

    def _number_unit(self, source: int, device: int) -> int:
        unit = self._units.setdefault((source, device), len(self._units))
        self._pending.grow(len(self._units))
        return unit

    def _remember_taken(self) -> None:
        for number, source in enumerate(self._sources):
            source.steps.grow(len(source.known.gpus))
            for gpu, last_ms in enumerate(source.steps.last_ms[: len(source.known.gpus)].tolist()):
                unit = self._number_unit(number, gpu)
                self._pending.taken_ms[unit] = last_ms
            if not isinstance(source, EngineSource):  # most of its targets only say when they began
                self.last_sample_ms[source.name] = int(source.steps.last_ms.max())

    def _find_device(self, family: Family, labels: Mapping[str, str]) -> "_SeriesDevice | None":
        """The GPU of the series with these labels; None where they are of none, or of more sources than are kept apart."""
        source = self._find_source(family.name, labels.get("job", ""))
        lower, machine = _read_machine(labels)
        device = read_labels(lower, None, machine, list_labels(family))
        if source is None or device.gpu is None:
            return None
        gpu = f"GPU-{device.gpu}" if family.bare_uuids and _BARE_UUID.fullmatch(device.gpu) else device.gpu
        if device.node is None and machine and not _ADDRESS.fullmatch(machine):
            device = replace(device, node=machine)
        of = self._sources[source]
        assert isinstance(of, GpuSource)
        return _SeriesDevice(source, of.known.number(gpu, device), device.node, device.model)

    def _add_series(
        self, device: "_SeriesDevice", family: Family, field: Field | None, labels: Mapping[str, str]
    ) -> int | None:
        of, numbers = self._sources[device.source], device.numbers
        assert isinstance(of, GpuSource)
        if field is None:
            of.rows.name_model(numbers.gpu, device.node, device.model)
            return None
        unit = self._number_unit(device.source, numbers.gpu)
        name = of.known.names.number(labels["__name__"])
        key = KEY_NUMBER[field.key]
        facts = (device.source, unit, numbers.gpu, numbers.place, key, numbers.labels, numbers.holders, name)
        return self._facts.add(facts, field, has_blanks=family.name == DCGM)

    def _add_node_series(self, source: int, field: Field, part: str, labels: Mapping[str, str]) -> int | None:
        lower, machine = _read_machine(labels)
        name = read_labels(lower, None, machine).node or machine
        of = self._sources[source]
        assert isinstance(of, NodeSource)
        if not name:
            return None
        node = of.known.gpus.number(name)
        slot = of.slots.number((node, field.key, part))
        metric = of.known.names.number(labels["__name__"])
        facts = (source, self._number_unit(source, node), node, slot, KIND_NUMBER[field.key], 0, 0, metric)
        return self._facts.add(facts, field, has_blanks=False)

    def _add_engine_series(self, labels: Mapping[str, str]) -> int | None:
        number = self._number_source(ENGINES)
        of = self._sources[number]
        assert isinstance(of, EngineSource)
        target, series = of.number_target(labels), of.number_series(labels)
        if target is None:
            return None
        if series is None:
            return NOT_UNDERSTOOD  # it tells what others tell, or what does not count
        metric = of.known.names.number(labels["__name__"])
        facts = (number, self._number_unit(number, target), target, series, 0, 0, 0, metric)
        return self._facts.add(facts, None, has_blanks=False)

    def feed(self, points: Points, payload: int, arrived_s: float) -> None:
        """Adds the points of a payload, their payloads in order; `arrived_s` on any clock that only goes on."""
        self._pending.feed(points, payload, arrived_s)

    def drain(self, complete_s: float | None) -> Iterator[Rows | Gap]:
        """Rows of all scrapes whose first point arrived before `complete_s`, of all where it is None. Use it up.

        `where` of rows and gaps is their source. Devices and allocations are given as far as they were seen by now.
        """
        complete, late = self._pending.drain(complete_s)
        for points, is_late in (
            (late, True),
            (complete, False),
        ):  # errors of a series are found in the order of its readings
            if not len(points.series):
                continue
            source = self._facts.of[points.series, SOURCE_NUMBER]
            for number in np.flatnonzero(np.bincount(source)).tolist():
                mine = source == number
                some = points if mine.all() else pick_points(points, mine)
                yield from self._decode(self._sources[number], some, is_late)

    def drain_progress(self) -> Iterator[Rows | Gap]:
        """Progress of serving engines, new or longer since it was taken last."""
        for source in self._sources:
            if isinstance(source, EngineSource):
                yield from source.drain_progress(has_ended=False)

    def end(self) -> Iterator[Rows | Gap]:
        """The rest, where nothing more is to come: all progress of serving engines; devices, where the decoder is not live."""
        for source in self._sources:
            if isinstance(source, EngineSource):
                yield from source.drain_progress(has_ended=True)
            elif isinstance(source, GpuSource):
                yield from source.end()

    def done(self) -> int | None:
        """The number of the last payload all of whose points were taken; None where none was fed."""
        return self._pending.done()

    def state(self) -> bytes:
        """The state for `PrometheusDecoder(state)`, as after the last `drain` and `drain_progress`: bytes of our own format."""
        gpus = [source for source in self._sources if isinstance(source, GpuSource)]
        nodes = [source for source in self._sources if isinstance(source, NodeSource)]
        engines = [source for source in self._sources if isinstance(source, EngineSource)]
        targets: list[NodeSource | EngineSource] = [*nodes, *engines]
        tables = (
            join_tables(map(list_gpus, gpus), GPUS),
            join_tables(map(list_places, gpus), PLACES),
            join_tables(map(list_nodes, targets), NODES),
            join_tables(map(list_slots, nodes), SLOTS),
            join_tables(map(list_counts, engines), COUNTS),
        )
        return pack_state(DecoderState(self._pending.through, self._facts.count_alive(), tables))

    @property
    def series(self) -> int:
        """So many are numbered."""
        return len(self._facts)

    @property
    def is_large(self) -> bool:
        """True when so many series came and went that it is time to start again from the state, which forgets them."""
        return len(self._facts) > self._most_series

    def _decode(
        self, source: GpuSource | NodeSource | EngineSource, points: Points, is_late: bool
    ) -> Iterator[Rows | Gap]:
        if not isinstance(source, GpuSource):  # where values are added up, one that was sent twice must not count twice
            points = drop_repeated(points)
        values = self._read(source, points)
        yield from source.decode(values, is_late) if len(values) else source.gaps.drain()
        newest_ms = source.last_ms if isinstance(source, EngineSource) else int(points.at_ms.max())
        if newest_ms is not None:
            self.last_sample_ms[source.name] = max(newest_ms, self.last_sample_ms.get(source.name, newest_ms))

    def _read(self, source: GpuSource | NodeSource | EngineSource, points: Points) -> FieldValues:
        facts = self._facts
        unreal = np.flatnonzero(~np.isfinite(points.value)).tolist()
        wrong = facts.find_blanks(points.series, points.value)
        wrong |= {i: NAN if np.isnan(points.value[i]) else INFINITE for i in unreal}
        if wrong:
            names = facts.of[points.series[list(wrong)], NAME].tolist()
            for (why, name), count in Counter(zip(wrong.values(), names, strict=True)).items():
                reason = "not_finite" if why in (NAN, INFINITE) else ""
                source.gaps.add(source.name, f"{why} in {source.known.names.all[name]}", count, reason)
            right = np.ones(len(points.series), bool)
            right[list(wrong)] = False
            points = pick_points(points, right)
        series, n = points.series, len(points.series)
        place, gpu, key, labels, holders, name = facts.of[series].T[[PLACE, GPU, KEY, LABELS, HOLDERS, NAME]]
        value = convert(points.value, facts.multiply[series], facts.divide[series])
        no_text = np.full(n, -1), np.zeros(n, np.int64), np.zeros(n, np.int32)
        return FieldValues(
            place, gpu, key, labels, holders, name, facts.flags[series, TOTAL], value, points.at_ms, *no_text
        )


def _read_machine(labels: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """The labels with their names in lower case, and the host that was scraped."""
    lower = {name.lower(): value for name, value in labels.items()}
    instance = lower.get("instance", "")
    return lower, instance.rpartition(":")[0] or instance


_REMEMBER: Final[tuple[Callable[[Any, pa.Table], None], ...]] = (
    restore_gpus,
    restore_places,
    restore_nodes,
    restore_slots,
    restore_counts,
)
"""As the tables of a state stand."""
_KINDS: Final[Mapping[str, type[NodeSource | EngineSource]]] = {NODE_EXPORTER: NodeSource, SERVING: EngineSource}
"""Classes of the sources that are of no GPUs, by the first word of their names."""
