"""Decoder of serving engines that are scraped: the counts of each replica go on from page to page, and from process to process.

An event is a page as `read_scrape` reads it. The same code counts as for pages that were saved.
"""

import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from loadfactor.base.errors import SourceError
from loadfactor.base.units import MS_PER_DAY
from loadfactor.sources.base import Gap, Input, Rows
from loadfactor.sources.serving_engines.counting import (
    HELD_PAGES,
    MOST_ROWS,
    Amount,
    ProgressRow,
    ReplicaCounts,
    join_amounts,
    make_row,
    make_rows,
    restore_counts,
    restore_page,
    store_amount,
    store_counts,
    store_page,
)
from loadfactor.sources.serving_engines.pages import EnginePage, Place, read_pages

SERVING: Final = "serving"
KEPT_MS: Final = 2 * MS_PER_DAY
"""A replica of which nobody heard for so long is forgotten."""
_VERSION: Final = 1
_QUICK: Final = 1


@dataclass
class _Replica:
    """The counts of a replica, and the last amount of each unit, which may go on."""

    counts: ReplicaCounts
    open: dict[str, Amount] = field(default_factory=dict)


class LiveServingDecoder:
    """The replicas of a group of engines."""

    def __init__(self, name: str, state: bytes = b"") -> None:
        """`state`: as `state()` gave it; empty for a new one. Raises SourceError where it is none."""
        self._source = f"{SERVING}:{name}"
        self._replicas: dict[Place, _Replica] = {}
        self._rows: dict[tuple[Place, int, str], ProgressRow] = {}
        self._gaps: Counter[str] = Counter()
        if state:
            self.restore(state)

    def feed(self, events: Sequence[dict[str, Any]]) -> None:
        """Pages in the order in which they were scraped."""
        for event in events:
            if event["unreadable"]:
                self._gaps["lines that are no metrics"] += event["unreadable"]
            self.feed_page(restore_page(event["page"]), event["step_ms"])

    def feed_page(self, page: EnginePage, step_ms: float) -> None:
        """The next page of a replica, which tells every `step_ms`."""
        replica = self._replicas.setdefault(page.place, _Replica(ReplicaCounts(step_ms)))
        replica.counts.step_ms = step_ms
        self._tell(page.place, replica, replica.counts.add_page(page))
        self._gaps.update(replica.counts.unknown)
        replica.counts.unknown.clear()

    def end(self) -> None:
        """No further page comes: what is held counts."""
        for place, replica in self._replicas.items():
            self._tell(place, replica, replica.counts.end())

    def drain(self) -> Iterator[Rows | Gap]:
        """The rows that are new or longer since they were taken last."""
        self._end_silent()
        rows = list(self._rows.values())
        for start in range(0, len(rows), MOST_ROWS):
            yield make_rows(rows[start : start + MOST_ROWS], self._source)
        yield from (Gap(self._source, what, count) for what, count in self._gaps.items())
        self._rows.clear()
        self._gaps.clear()

    def state(self) -> bytes:
        """All that is needed to go on in another process."""
        replicas = [
            [place, store_counts(replica.counts), [store_amount(amount) for amount in replica.open.values()]]
            for place, replica in self._replicas.items()
        ]
        return zlib.compress(json.dumps([_VERSION, replicas], separators=(",", ":")).encode(), _QUICK)

    def _tell(self, place: Place, replica: _Replica, amounts: Iterable[Amount]) -> None:
        for amount in join_amounts(amounts, replica.open):
            self._rows[place, amount.from_ms, amount.unit] = make_row(*place, amount)

    def _end_silent(self) -> None:
        """Tell what is held of replicas that are gone, as a last page would, and forget them later."""
        last = {place: replica.counts.last_ms or 0 for place, replica in self._replicas.items()}
        now_ms = max(last.values(), default=0)
        for place, replica in list(self._replicas.items()):
            silent_ms = now_ms - last[place]
            if silent_ms > HELD_PAGES * replica.counts.step_ms:
                self._tell(place, replica, replica.counts.end())
            if silent_ms > KEPT_MS:
                del self._replicas[place]

    def restore(self, state: bytes) -> None:
        """Go on from what `state()` gave. Raises SourceError where it is none."""
        try:
            version, replicas = json.loads(zlib.decompress(state))
            if version != _VERSION:
                raise ValueError(f"version {version}")
            for (job, name), counts, open_ in replicas:
                amounts = [Amount(*stored) for stored in open_]
                self._replicas[job, name] = _Replica(restore_counts(counts), {one.unit: one for one in amounts})
        except (zlib.error, ValueError, TypeError, KeyError) as error:
            raise SourceError(f"the state of serving engines cannot be read: {error}") from error


def read_scrape(page: bytes, labels: Mapping[str, str], at_ms: int, step_ms: float) -> list[dict[str, Any]]:
    """The events of a page that was scraped at `at_ms` (ms UTC) of a target with these labels `step_ms`.

    The job is the label `job`, else the pod that the page names; the replica what the page calls it, else the label `instance`.
    Raises SourceError of one line: it is cut off, tells nothing of an engine, or nothing names the job.
    """
    if not page.endswith(b"\n"):
        raise SourceError("its page ends in the middle of a line")
    unreadable: list[str] = []
    routers: dict[str, str] = {}
    events = []
    for one in read_pages(Input("page", [page]), labels.get("instance", ""), unreadable, routers):
        job = labels.get("job") or one.place[0]
        if not job:
            raise SourceError('nothing names the job that it serves; give its group in [[serving]] a job = "NAME"')
        one.place = job, one.place[1]
        one.at_ms = at_ms if one.at_ms is None else one.at_ms
        events.append({"page": store_page(one), "step_ms": step_ms, "unreadable": 0})
    for what, do in routers.items() if not events else ():
        raise SourceError(
            f"its page is of {what}, which does not count the tokens of engines; {do.replace('save', 'scrape', 1)}"
        )
    if not events:
        raise SourceError("its page has no metrics of vLLM, SGLang, TGI, Triton, TensorRT-LLM or llama.cpp")
    events[0]["unreadable"] = len(unreadable)
    return events
