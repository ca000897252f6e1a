"""Points of serving engines → pages of their replicas, counted by the code that counts scraped pages."""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Final

import numpy as np
import pyarrow as pa

from loadfactor.sources.base import Gap, Rows
from loadfactor.sources.gpu_scrapes.fields import FieldValues
from loadfactor.sources.gpu_scrapes.known_devices import KnownDevices, Numbering
from loadfactor.sources.gpu_scrapes.scrape_table import TextGaps
from loadfactor.sources.parsing.steps import RunningSteps
from loadfactor.sources.serving_engines.engines import Labels, is_told, spell
from loadfactor.sources.serving_engines.live_decoder import SERVING, LiveServingDecoder
from loadfactor.sources.serving_engines.pages import EnginePage, add_series, find_place

LATE: Final = "values that came after later ones of their replica; not counted"
_COPIES: Final = ("prometheus_replica", "__replica__")
"""Labels by which two Prometheus servers that scrape the same say which of them it was."""
_APART: Final = "\0"


class EngineSource:
    """The engines that a Prometheus scrapes, and what is remembered of them. `last_ms`: when one reported last."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.known = KnownDevices()  # its GPUs are targets here: the job, the replica, and what was scraped
        self.series: Numbering[tuple[str, Labels]] = Numbering()
        self.gaps = TextGaps()
        self.steps = RunningSteps()
        self.counts = LiveServingDecoder(name.removeprefix(f"{SERVING}:"))
        self.last_ms: int | None = None

    def number_target(self, labels: Mapping[str, str]) -> int | None:
        """The number of the target with these labels; None where none of them names a job."""
        job, replica = find_place(labels, "")
        job = job or labels.get("job", "")
        target = _APART.join((job, replica, labels.get("instance", "")))
        return self.known.gpus.number(target) if job and replica else None

    def number_series(self, labels: Mapping[str, str]) -> int | None:
        """The number of a series among those of the source; None where it tells nothing that is counted."""
        name = spell(labels["__name__"])
        others = {key: value for key, value in labels.items() if key != "__name__" and key not in _COPIES}
        return self.series.number((name, tuple(sorted(others.items())))) if is_told(name, others) else None

    def decode(self, values: FieldValues, is_late: bool) -> Iterator[Rows | Gap]:
        """Count the pages that these values make; `drain_progress` gives what they tell. Late values are not counted."""
        if is_late:
            self.gaps.add(self.name, LATE, len(values))
        else:
            self._count_pages(values)
        yield from self.gaps.drain()

    def drain_progress(self, has_ended: bool) -> Iterator[Rows | Gap]:
        """The rows that are new or longer; all of them where nothing more is to come (`has_ended`)."""
        if has_ended:
            self.counts.end()
        yield from self.counts.drain()

    def _count_pages(self, values: FieldValues) -> None:
        self.steps.grow(len(self.known.gpus))
        order = np.lexsort((values.at_ms, values.gpu))
        columns = (column[order].tolist() for column in (values.gpu, values.at_ms, values.place, values.value))
        points = zip(*columns, strict=True)
        pages = []
        for (target, at_ms), page in groupby(points, lambda one: (one[0], one[1])):
            pages.append((target, self._make_page(target, at_ms, [(series, value) for *_, series, value in page])))
        numbers = np.array([target for target, _ in pages], np.int32)
        times = np.array([page.at_ms for _, page in pages], np.int64)
        _, step_ms, _ = self.steps.follow(numbers, times)
        for number in np.argsort(times, kind="stable").tolist():
            page = pages[number][1]
            if not page.is_empty:
                self.last_ms = max(page.at_ms or 0, self.last_ms or 0)
                self.counts.feed_page(page, float(step_ms[number]))

    def _make_page(self, target: int, at_ms: int, values: list[tuple[int, float]]) -> EnginePage:
        job, replica, _ = self.known.gpus.all[target].split(_APART)
        page = EnginePage((job, replica), at_ms)
        for series, value in values:
            name, labels = self.series.all[series]
            add_series(page, name, dict(labels), value)
        return page


COUNTS: Final = pa.schema({"source": pa.string(), "counts": pa.binary()})


def list_counts(source: EngineSource) -> pa.Table:
    """The counts of all replicas."""
    return pa.table({"source": [source.name], "counts": [source.counts.state()]}, schema=COUNTS)


def restore_counts(source: EngineSource, counts: pa.Table) -> None:
    """Remembers the counts of `list_counts`."""
    source.counts.restore(counts["counts"][0].as_py())
