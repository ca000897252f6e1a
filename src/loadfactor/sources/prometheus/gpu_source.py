"""Points of the GPUs of one source → rows: samples, events, and what its devices and their holders are by now."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.sources.base import Gap, Rows
from loadfactor.sources.gpu_scrapes.device_events import DeviceEvents, drop_told
from loadfactor.sources.gpu_scrapes.field_values import FieldValues
from loadfactor.sources.gpu_scrapes.fields import KEY_NUMBER
from loadfactor.sources.gpu_scrapes.known_devices import KnownDevices
from loadfactor.sources.gpu_scrapes.sample_columns import ENERGY
from loadfactor.sources.gpu_scrapes.scrape_cells import number_cells
from loadfactor.sources.gpu_scrapes.scrape_table import UNREAD, ScrapeColumns, ScrapeTable
from loadfactor.sources.gpu_scrapes.table_rows import ScrapeRows
from loadfactor.sources.gpu_scrapes.text_gaps import TextGaps
from loadfactor.sources.gpu_scrapes.timeline import Timeline
from loadfactor.sources.prometheus.families import find_window_ms
from loadfactor.sources.prometheus.running_steps import RunningSteps
from loadfactor.sources.prometheus.watched_rows import WatchedRows

_POWER: Final = np.array([KEY_NUMBER["power_w"], KEY_NUMBER["power_now_w"]])
_KEY: Final = ("device_id", "to_utc")


class GpuSource:
    """The GPUs that one job of Prometheus scrapes, and what is remembered of them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.known = KnownDevices()
        self.gaps = TextGaps()
        self.steps = RunningSteps()
        self.events = DeviceEvents(self.known, name)
        self.rows = ScrapeRows(None, name, self.known, self.gaps, names_team=True)
        self._window_ms = find_window_ms(name)
        self._watched = WatchedRows(self.rows, self.known, name)

    def decode(self, values: FieldValues, is_late: bool) -> Iterator[Rows | Gap]:
        """The rows of values; late ones are not later than all of their GPUs that were decoded before."""
        for rows in self._decode_late(values) if is_late else self._decode_next(values):
            yield self._say_window(rows)
        yield from self.gaps.take()

    def _decode_next(self, values: FieldValues) -> Iterator[Rows]:
        scrapes = self._find_scrapes(self.events.put(values))
        yield from self.events.take()
        self.steps.grow(len(self.known.gpus))
        line = Timeline(scrapes)
        line.start_ms, line.step_ms, _ = self.steps.follow(line.gpu, line.at_ms)
        yield from self.rows.add(scrapes, line)
        yield from self._watched.list_allocations(scrapes)
        yield from self._watched.list_devices(line)

    def _decode_late(self, values: FieldValues) -> Iterator[Rows]:
        """The samples of values that are not later: each by itself, with rates among themselves only.

        The power of a GPU that counts its energy comes from there: a glimpse of it must not stand in its place. Events are changes
        from what was read last, so late values tell of none.
        """
        scrapes = self._find_scrapes(drop_told(values))
        counted = np.flatnonzero(self.rows.rates.has_total(ENERGY, len(self.known.places))[scrapes.place])
        scrapes.state[counted[:, None], _POWER] = UNREAD
        steps = RunningSteps()
        steps.grow(len(self.known.gpus))
        line = Timeline(scrapes)
        line.start_ms, line.step_ms, _ = steps.follow(line.gpu, line.at_ms)
        for rows in ScrapeRows(None, self.name, self.known, self.gaps).add(scrapes, line):
            if rows.table == "samples" and (some := _drop_empty(rows)).data.num_rows:
                yield some

    def _say_window(self, rows: Rows) -> Rows:
        """Samples with where they begin, where they observe less than all the time since the one before."""
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
        table.put(values, row[cells], [self.name])
        found = table.columns
        return found.pick(np.lexsort((found.at_ms, found.gpu)))


def _drop_empty(rows: Rows) -> Rows:
    """The rows in which something was measured."""
    measured = [rows.data[name].is_valid().to_numpy() for name in rows.data.column_names if name not in _KEY]
    return replace(rows, data=rows.data.filter(pa.array(np.logical_or.reduce(measured))))
