"""Values of one time belong to one scrape of a GPU; scrapes are put into the order of time before they become rows."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from loadfactor.errors import SourceError
from loadfactor.sources.base import ReadOptions
from loadfactor.sources.dcgm.metric_lines import MetricLine
from loadfactor.sources.dcgm.scrape import Scrape
from loadfactor.sources.parsing.gaps import Gaps
from loadfactor.units import MS_PER_S

SCRAPES_HELD: Final = 20_000  # of one GPU at one time each; a few hundred bytes a reading

Instances = dict[str, Scrape]  # by MIG instance; "" is the GPU itself


class ScrapeWindow:
    """Holds the latest scrapes of all GPUs, so that rows come in the order of time and memory stays bounded."""

    def __init__(self, options: ReadOptions, gaps: Gaps) -> None:
        self._options, self._gaps = options, gaps
        self._held: dict[str, dict[int, Instances]] = {}
        self._count = self._limit = 0
        self._done_ms: dict[str, int] = {}
        self._untimed: dict[str, tuple[str, int, int]] = {}  # by GPU: input, scrape of it, how many before

    def put(self, label: str, line: MetricLine) -> None:
        """Adds a value to its scrape."""
        gpu = line.of.gpu or ""
        at_ms = line.at_ms if line.at_ms is not None else self._find_time(label, gpu, line)
        if at_ms is None:
            self._gaps.add(label, "skipped: a further scrape without a time (say the step with --step)")
            return
        if at_ms <= self._done_ms.get(gpu, -1):
            when = datetime.fromtimestamp(at_ms / MS_PER_S, UTC)
            raise SourceError(
                f"{label}, line {line.line}: a value of {gpu} at {when:%Y-%m-%d %H:%M:%S} UTC stands far behind later "
                "ones; sort the lines by time, and import files that overlap one after the other"
            )
        of, kind = line.of, line.of.field
        assert kind is not None
        if of.instance is not None and of.slices is None:
            self._gaps.add(label, "skipped: a MIG instance without its profile")
            return
        scrapes = self._held.setdefault(gpu, {})
        if at_ms not in scrapes:
            scrapes[at_ms] = {}
            self._count += 1
        if of.instance is not None and kind.whole:
            self._gaps.add(label, f"{of.name} of the whole GPU on the row of a MIG instance")
        instances, instance = scrapes[at_ms], of.instance or ""
        scrape = instances.get(instance)
        if scrape is None:
            scrape = instances[instance] = Scrape(of)
        if of.holder is not None:
            scrape.holders.add(of.holder)
        if of.instance is None or not kind.whole:
            wrong = scrape.put(kind, line.counts, line.value, of.holder)
            if wrong:
                self._gaps.add(label, f"{of.name} {wrong}")

    @property
    def full(self) -> bool:
        """True when the older half should be taken out."""
        return self._count > max(SCRAPES_HELD, self._limit)

    @property
    def gpus(self) -> tuple[str, ...]:
        """The GPUs of which scrapes are held."""
        return tuple(self._held)

    def times(self, gpu: str) -> list[int]:
        """The times of the scrapes held of this GPU, sorted."""
        return sorted(self._held.get(gpu, ()))

    def take(self, everything: bool) -> Iterator[tuple[str, list[tuple[int, Instances]]]]:
        """Takes out the older half of the scrapes held, or all: by GPU, in the order of time."""
        times = sorted(t for scrapes in self._held.values() for t in scrapes)
        if not times:
            return
        until = times[-1] if everything else times[len(times) // 2]
        for gpu, scrapes in list(self._held.items()):
            newest = max(scrapes, default=0)  # may still be being read
            ripe = sorted(t for t in scrapes if t <= until and (everything or t < newest))
            if ripe:
                yield gpu, [(t, scrapes[t]) for t in ripe]
                for t in ripe:
                    del scrapes[t]
                self._count -= len(ripe)
                self._done_ms[gpu] = ripe[-1]
        self._limit = 2 * self._count

    def _find_time(self, label: str, gpu: str, line: MetricLine) -> int | None:
        """The time of a value whose line has none: as the caller says, a step later for each further scrape."""
        if self._options.at_ms is None:
            raise SourceError(f"{label}: its lines carry no times; say when it was scraped with --at")
        source, scrape, before = self._untimed.get(gpu, (label, line.scrape, 0))
        if (source, scrape) != (label, line.scrape):
            before += 1
        self._untimed[gpu] = (label, line.scrape, before)
        if before and self._options.step_s is None:
            return None
        return self._options.at_ms + round(before * (self._options.step_s or 0) * MS_PER_S)
