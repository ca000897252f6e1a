"""Points of the GPUs of one source → rows: samples, events, and what its devices and their holders are by now."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from loadfactor.base.units import MS_PER_DAY, MS_PER_MIN
from loadfactor.sources.base import Gap, Rows
from loadfactor.sources.gpu_scrapes.device_events import EVENT_COLUMNS, DeviceEvents
from loadfactor.sources.gpu_scrapes.fields import KEY_NUMBER, TOTALS, FieldValues
from loadfactor.sources.gpu_scrapes.known_devices import HolderFacts, KnownDevices, find_team
from loadfactor.sources.gpu_scrapes.sample_columns import ENERGY
from loadfactor.sources.gpu_scrapes.scrape_table import (
    UNREAD,
    ScrapeColumns,
    ScrapeTable,
    TextGaps,
    Timeline,
    number_cells,
)
from loadfactor.sources.gpu_scrapes.table_rows import BATCH_ROWS, GpuFacts, OpenSpan, ScrapeRows
from loadfactor.sources.parsing.steps import DEFAULT_STEP_MS, GAPS, NEVER, RunningSteps
from loadfactor.sources.prometheus.families import find_window_ms
from loadfactor.tables.schema import BRIDGED, LABELS, table

_ABSENT = -1
FIRST_GAP_MAX_MS: Final = 5 * MS_PER_MIN
"""The distance of the first two scrapes of a GPU shows its step where it is no longer; else it may be a gap."""
UNTIL_SECOND_MS: Final = 1
"""So far back does a first scrape reach before the second one came: what was once emitted of an interval is never taken back."""


class SeenRows:
    """The fixed columns of one row for each key, a number."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._rows = schema.empty_table()
        self._new: list[tuple[Any, ...]] = []
        self._at = np.empty(0, np.int64)  # the row of each key

    def put(self, key: int, row: tuple[Any, ...]) -> None:
        """The fixed columns of a key, instead of those it had."""
        if key >= len(self._at):
            self._at = np.append(self._at, np.full(key + 1, _ABSENT))
        self._at[key] = self._rows.num_rows + len(self._new)
        self._new.append(row)

    def forget(self, key: int) -> None:
        """Nothing is known of a key any more."""
        if key < len(self._at):
            self._at[key] = _ABSENT

    def take(self, keys: NDArray[np.int32], to_ms: NDArray[np.int64]) -> pa.Table:
        """The rows of those of these keys that have one, each with its end."""
        if self._new:
            self._add_new()
        keys, to_ms = keys[keys < len(self._at)], to_ms[keys < len(self._at)]
        at = self._at[keys]
        has = at != _ABSENT
        return self._rows.take(pa.array(at[has])).append_column("to_utc", pa.array(to_ms[has]))

    def _add_new(self) -> None:
        columns = zip(*self._new, strict=True)
        new = pa.table([pa.array(c, f.type) for c, f in zip(columns, self._schema, strict=True)], schema=self._schema)
        used = np.flatnonzero(self._at != _ABSENT)
        rows = pa.concat_tables([self._rows, new])
        if rows.num_rows > 2 * len(used) + 1000:  # most are of keys that have another by now
            rows, self._at[used] = rows.take(pa.array(self._at[used])), np.arange(len(used))
        self._rows, self._new = rows.combine_chunks(), []


_DEVICE: Final = ("device_id", "node", "accelerator", "gpu_index", "from_utc")
_ALLOCATION: Final = ("job_id", "device_id", "team", "user", "experiment_id", "tags", "known_from", "from_utc")


class WatchedRows:
    """Rows of whole GPUs, and of holders that share with nobody, are made once and get another end; others are made each time."""

    def __init__(self, rows: ScrapeRows, known: KnownDevices, where: str) -> None:
        self._rows, self._known, self._where = rows, known, where
        self._devices = SeenRows(_pick_schema("devices", _DEVICE))
        self._allocations = SeenRows(_pick_schema("allocations", _ALLOCATION))
        self._divided: set[int] = set()  # GPUs
        self._shared: set[int] = set()  # places

    def list_devices(self, line: Timeline) -> Iterator[Rows]:
        """The devices of these scrapes, and those that they were until now."""
        begins = np.flatnonzero(line.is_first)
        ends = np.append(begins[1:], len(line.gpu))[: len(begins)]  # none, where errors came alone
        gpus, to_ms = line.gpu[begins], line.at_ms[ends - 1]
        seen = set(gpus.tolist())
        slow = (self._rows.changed | self._divided) & seen
        fast = _exclude(gpus, slow)
        yield from self._make("devices", self._devices.take(gpus[fast], to_ms[fast]))
        yield from self._rows.make_devices(sorted(slow))
        for gpu in self._rows.changed & seen:
            facts = self._rows.gpus[gpu]
            self._devices.forget(gpu)
            self._divided.discard(gpu)
            if facts.is_divided:
                self._divided.add(gpu)
            else:
                ((device_id, (_, from_ms)),) = facts.history.open.items()
                self._devices.put(gpu, (device_id, facts.node, facts.accelerator, facts.index, from_ms))
        self._rows.changed -= seen

    def list_allocations(self, scrapes: ScrapeColumns) -> Iterator[Rows]:
        """The allocations of the devices of these scrapes."""
        places, last = np.unique(scrapes.place[::-1], return_index=True)
        to_ms = scrapes.at_ms[::-1][last]
        places_of_all = self._known.places.all
        if self._known.changed_holders:
            names, self._known.changed_holders = self._known.changed_holders, set()
            spans = self._rows.holders.open.items()
            self._rows.holders.changed |= {place for place, span in spans if not names.isdisjoint(span.holders)}
        changed = self._rows.holders.changed
        seen = set(places.tolist())
        beside = {p for p in seen if places_of_all[p][0] in self._divided} if self._divided else set()
        slow = (changed | self._shared | beside) & seen
        fast = _exclude(places, slow)
        yield from self._make("allocations", self._allocations.take(places[fast], to_ms[fast]))
        yield from self._rows.make_allocations(self._rows.holders.list_open(sorted(slow)))
        for place in changed & seen:
            span = self._rows.holders.open.get(place)
            self._allocations.forget(place)
            self._shared.discard(place)
            if span is not None and len(span.holders) > 1:
                self._shared.add(place)
            elif span is not None:
                holder = span.holders[0]
                facts = self._known.holder_facts.get(holder, HolderFacts())
                device = self._known.name_place(place)
                self._allocations.put(place, (holder, device, find_team(holder), *facts, LABELS, span.from_ms))
        self._rows.holders.changed = changed - seen

    def _make(self, name: str, data: pa.Table) -> Iterator[Rows]:
        for i in range(0, data.num_rows, BATCH_ROWS):
            yield Rows(name, data.slice(i, BATCH_ROWS), self._where)


def _exclude(numbers: NDArray[np.int32], others: Iterable[int]) -> NDArray[np.bool_]:
    return ~np.isin(numbers, np.array(sorted(others), np.int64))


def _pick_schema(name: str, columns: tuple[str, ...]) -> pa.Schema:
    schema = table(name).schema
    return pa.schema([schema.field(column) for column in columns])


_POWER: Final = np.array([KEY_NUMBER["power_w"], KEY_NUMBER["power_now_w"]])
_KEY: Final = ("device_id", "to_utc")


class GpuSource:
    """The GPUs that one job of Prometheus scrapes, and what is remembered of them."""

    def __init__(self, name: str, is_live: bool = True) -> None:
        """A live one lists devices, and who holds them, as far as it knows by now; another one when all was read (`end`)."""
        self.name = name
        self._is_live = is_live
        self.known = KnownDevices()
        self.gaps = TextGaps()
        self.steps = RunningSteps()
        self.events = DeviceEvents(self.known, name)
        self.rows = ScrapeRows(None, name, self.known, self.gaps)
        self._window_ms = find_window_ms(name)
        self._watched = WatchedRows(self.rows, self.known, name)

    def decode(self, values: FieldValues, is_late: bool) -> Iterator[Rows | Gap]:
        """The rows of values; late ones are not later than all of their GPUs that were decoded before."""
        for rows in self._decode_late(values) if is_late else self._decode_next(values):
            yield self._say_window(rows)
        yield from self.gaps.drain()

    def _decode_next(self, values: FieldValues) -> Iterator[Rows]:
        scrapes = self._find_scrapes(self.events.feed(values))
        yield from self.events.drain()
        self.steps.grow(len(self.known.gpus))
        line = Timeline(scrapes)
        alone = self.steps.find_alone()
        line.start_ms, line.step_ms, before_ms = self.steps.follow(line.gpu, line.at_ms)
        self._date_first(line, before_ms, alone)
        yield from self.rows.add(scrapes, line)
        if self._is_live:
            yield from self._watched.list_allocations(scrapes)
            yield from self._watched.list_devices(line)

    def _date_first(self, line: Timeline, before_ms: NDArray[np.int64], alone: NDArray[np.bool_]) -> None:
        """The first scrape of a GPU reaches back as far as the second one lies after it; until that is there, hardly at all.

        Where the second one comes after a gap, as far as `DEFAULT_STEP_MS`. `alone`: GPUs of which the first one came by itself,
        in an earlier portion.
        """
        new = before_ms == NEVER
        is_second = np.append(False, new[:-1])[: len(new)] & ~line.is_first | (line.is_first & alone[line.gpu])
        line.start_ms[new] = line.at_ms[new] - UNTIL_SECOND_MS
        second = np.flatnonzero(is_second)
        gap_ms = line.at_ms[second] - before_ms[second]
        begin_ms = before_ms[second] - np.where(gap_ms <= FIRST_GAP_MAX_MS, gap_ms, DEFAULT_STEP_MS)
        here = ~line.is_first[second]
        line.start_ms[second[here] - 1] = begin_ms[here]
        self.rows.begin_earlier(dict(zip(line.gpu[second[~here]].tolist(), begin_ms[~here].tolist(), strict=True)))

    def end(self) -> Iterator[Rows]:
        """Devices and open allocations, where nothing more is to come: a GPU that was scraped once was there `DEFAULT_STEP_MS`."""
        alone = np.flatnonzero(self.steps.find_alone()).tolist()
        self.rows.begin_earlier({gpu: int(self.steps.last_ms[gpu]) - DEFAULT_STEP_MS for gpu in alone})
        yield from self.rows.make_allocations(self.rows.holders.list_open(self.rows.holders.open))
        yield from self.rows.make_devices(self.rows.gpus)

    def _decode_late(self, values: FieldValues) -> Iterator[Rows]:
        """The samples of values that are not later, each by itself, with rates among themselves only; and who held GPUs meanwhile.

        The power of a GPU that counts its energy comes from there: a glimpse of it must not stand in its place. Of events only what
        is later than the last reading of its own counts: a sender may bring one series long after another.
        """
        scrapes = self._find_scrapes(self.events.feed(values))
        yield from self.events.drain()
        counted = np.flatnonzero(self.rows.rates.has_total(ENERGY, len(self.known.places))[scrapes.place])
        scrapes.state[counted[:, None], _POWER] = UNREAD
        steps = RunningSteps()
        for of in (self.steps, steps):
            of.grow(len(self.known.gpus))
        steps.gaps_ms = self.steps.gaps_ms.copy()  # how far the first one of each GPU reaches back
        line = Timeline(scrapes)
        line.start_ms, line.step_ms, _ = steps.follow(line.gpu, line.at_ms)
        late = ScrapeRows(None, self.name, self.known, self.gaps)
        spans = late.holders.list_open(late.holders.open)  # those that are open when it is read, at the end
        for rows in chain(late.add(scrapes, line), late.make_allocations(spans)):
            some = _drop_empty(rows) if rows.table == "samples" else self._pick_unknown(rows, scrapes.place)
            if some.data.num_rows:
                yield some

    def _pick_unknown(self, held: Rows, places: NDArray[np.int32]) -> Rows:
        """Of allocations that come late those outside the open ones; they count where no label that came in time does."""
        spans = {self.known.name_place(place): self.rows.holders.open.get(place) for place in set(places.tolist())}

        def is_known(row: dict[str, Any]) -> bool:
            span = spans[row["device_id"]]
            return (
                span is not None
                and row["job_id"] in span.holders
                and span.from_ms <= row["from_utc"]
                and row["to_utc"] <= span.to_ms
            )

        rows = [{**row, "known_from": BRIDGED} for row in held.data.to_pylist() if not is_known(row)]
        return replace(held, data=pa.Table.from_pylist(rows, held.data.schema))

    def _say_window(self, rows: Rows) -> Rows:
        if self._window_ms is None or rows.table != "samples":
            return rows
        began = pc.subtract(rows.data["to_utc"], self._window_ms)
        return replace(rows, data=rows.data.append_column("from_utc", began))

    def _find_scrapes(self, values: FieldValues) -> ScrapeColumns:
        """One row a scrape of one GPU or MIG instance, by GPU, then time."""
        table = ScrapeTable(self.known, self.gaps)
        cells, firsts = number_cells(values.place, values.at_ms)
        first = values.pick(firsts)
        sized = self.known.list_places().sized[first.place]
        row = np.where(sized, np.cumsum(sized) - 1, -1)
        table.open_rows(first.pick(sized))
        table.feed(values, row[cells], [self.name])
        found = table.columns
        return found.pick(np.lexsort((found.at_ms, found.gpu)))


def _drop_empty(rows: Rows) -> Rows:
    measured = [rows.data[name].is_valid().to_numpy() for name in rows.data.column_names if name not in _KEY]
    return replace(rows, data=rows.data.filter(pa.array(np.logical_or.reduce(measured))))


FORGET_AFTER_MS: Final = 7 * MS_PER_DAY
"""A GPU not seen for so long, beside the newest of its source, is a new one when it comes again."""
_INT: Final = pa.int64()
GPUS: Final = pa.schema(
    {
        "source": pa.string(),
        "gpu": pa.string(),
        "node": pa.string(),
        "model": pa.string(),
        "seen_ms": _INT,  # its devices, through when
        "devices": pa.list_(pa.string()),
        "shares": pa.list_(pa.float64()),
        "from_ms": pa.list_(_INT),
        "last_ms": _INT,
        "gaps_ms": pa.list_(_INT, GAPS),
        "told": pa.list_(_INT, len(EVENT_COLUMNS)),
        "index": _INT,
        "reported_ms": pa.list_(_INT, len(EVENT_COLUMNS)),
    }
)
PLACES: Final = pa.schema(
    {
        "source": pa.string(),
        "gpu": pa.string(),
        "instance": pa.string(),
        "at_ms": pa.list_(_INT, len(TOTALS)),
        "total": pa.list_(pa.float64(), len(TOTALS)),
        "holders": pa.list_(pa.string()),
        "from_ms": _INT,
        "to_ms": _INT,
    }
)


def list_gpus(source: GpuSource) -> pa.Table:
    """The GPUs that were seen not long ago."""
    kept, last_ms = _find_recent(source), source.steps.last_ms
    numbers = kept.tolist()
    facts = [source.rows.gpus[number] for number in numbers]
    spans = [gpu.history.open for gpu in facts]
    source.events.last.grow(len(source.known.gpus))
    columns = [
        [source.name] * len(numbers),
        [source.known.gpus.all[number] for number in numbers],
        [gpu.node for gpu in facts],
        [gpu.model for gpu in facts],
        [gpu.history.to_ms for gpu in facts],
        [list(span) for span in spans],
        [[share for share, _ in span.values()] for span in spans],
        [[from_ms for _, from_ms in span.values()] for span in spans],
        last_ms[kept],
        pa.FixedSizeListArray.from_arrays(pa.array(source.steps.gaps_ms[kept].ravel()), GAPS),
        pa.FixedSizeListArray.from_arrays(pa.array(source.events.last.values[kept].ravel()), len(EVENT_COLUMNS)),
        [gpu.index for gpu in facts],
        pa.FixedSizeListArray.from_arrays(pa.array(source.events.last.at_ms[kept].ravel()), len(EVENT_COLUMNS)),
    ]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, GPUS, strict=True)], schema=GPUS)


def list_places(source: GpuSource) -> pa.Table:
    """Their parts of which totals or holders are known."""
    known, rates, open_ = source.known, source.rows.rates, source.rows.holders.open
    rates.grow(len(known.places))
    recent = set(_find_recent(source).tolist())
    counted = set(np.flatnonzero((rates.at_ms >= 0).any(axis=1)).tolist())
    numbers = [n for n in range(len(known.places)) if (n in counted or n in open_) and known.places.all[n][0] in recent]
    places = [known.places.all[number] for number in numbers]
    spans = [open_.get(number) for number in numbers]
    size = len(TOTALS)
    columns = [
        [source.name] * len(numbers),
        [known.gpus.all[gpu] for gpu, _, _ in places],
        [instance for _, instance, _ in places],
        pa.FixedSizeListArray.from_arrays(pa.array(rates.at_ms[numbers].ravel(), _INT), size),
        pa.FixedSizeListArray.from_arrays(pa.array(rates.total[numbers].ravel(), pa.float64()), size),
        [span.holders if span else () for span in spans],
        [span.from_ms if span else None for span in spans],
        [span.to_ms if span else None for span in spans],
    ]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, PLACES, strict=True)], schema=PLACES)


def restore_gpus(source: GpuSource, gpus: pa.Table) -> None:
    """Remembers the GPUs of `list_gpus`, in a source that knows none."""
    source.steps.grow(gpus.num_rows)
    source.events.last.grow(gpus.num_rows)
    for row in gpus.to_pylist():
        number = source.known.gpus.number(row["gpu"])
        facts = source.rows.gpus[number] = GpuFacts()
        facts.read_labels(row["node"], row["model"], row["index"])
        spans = zip(row["devices"], row["shares"], row["from_ms"], strict=True)
        facts.history.open = {device: (share, from_ms) for device, share, from_ms in spans}
        facts.history.to_ms = row["seen_ms"]
        source.steps.last_ms[number], source.steps.gaps_ms[number] = row["last_ms"], row["gaps_ms"]
        source.events.last.values[number] = row["told"]
        source.events.last.at_ms[number] = row["reported_ms"]


def restore_places(source: GpuSource, places: pa.Table) -> None:
    """Remembers the parts of `list_places`, whose GPUs are known."""
    rates = source.rows.rates
    rates.grow(places.num_rows)
    for row in places.to_pylist():
        number = source.known.places.number((source.known.gpus.number(row["gpu"]), row["instance"], True))
        rates.at_ms[number], rates.total[number] = row["at_ms"], row["total"]
        if row["holders"]:
            source.rows.holders.changed.add(number)
            source.rows.holders.open[number] = OpenSpan(tuple(row["holders"]), row["from_ms"], row["to_ms"])


def _find_recent(source: GpuSource) -> NDArray[np.int64]:
    last_ms = source.steps.last_ms[: len(source.known.gpus)]
    return np.flatnonzero((last_ms >= 0) & (last_ms >= last_ms.max(initial=0) - FORGET_AFTER_MS))
