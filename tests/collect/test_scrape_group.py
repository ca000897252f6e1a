"""A group of exporters: its schedule, what is said of it, and the gaps that are remembered from one process to the next."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.live.fake_dcgm_exporter import FakeDcgmExporter, FleetTruth
from tests.live.up_process import free_port

from loadfactor.base.errors import StoreError
from loadfactor.collect.exporters import FoundTargets, TargetDefaults
from loadfactor.collect.http_fetch import RequestPools
from loadfactor.collect.payloads import unpack_page
from loadfactor.collect.scrape_group import MOST_GAPS, ScrapeGroup, find_next
from loadfactor.settings.sources import DcgmExporters
from loadfactor.settings.table import Duration
from loadfactor.store.source_status import SourceStatus, TargetGap

LONGEST_S = 240.0
EVERY_S = 0.1


class QuickGroup(DcgmExporters):
    """Exporters that are scraped more often than settings allow, and have longer to answer."""

    @property
    def timeout_s(self) -> float:
        """Seconds that a scrape may take."""
        return 5.0


@dataclass
class Finder:
    """Finds what a test says."""

    addresses: list[str]
    error: str = ""
    every_s: float = 0.02

    async def find(self) -> FoundTargets:
        """The exporters at these addresses."""
        if self.error == "broken":
            raise RuntimeError("a defect")
        return FoundTargets(tuple(TargetDefaults().read(address) for address in self.addresses), self.error)


@dataclass
class Kept:
    """Bodies that a group handed over; `full` refuses them."""

    payloads: list[bytes] = field(default_factory=list)
    full: bool = False

    async def take(self, payload: bytes) -> None:
        """Keep one."""
        if self.full:
            raise StoreError("no space left")
        self.payloads.append(payload)


def scrape(
    finder: Finder, kept: Kept, *steps: Callable[[SourceStatus], bool], before: tuple[TargetGap, ...] = ()
) -> SourceStatus:
    """Run a group until each of these has held of its status, one after the other; the last status."""

    async def run() -> SourceStatus:
        settings = QuickGroup.model_construct(name="a", every=Duration(f"{EVERY_S}s"))
        group = ScrapeGroup(settings, RequestPools(), kept.take, before, finder)
        task = asyncio.create_task(group.run())
        end = time.monotonic() + LONGEST_S
        for step in steps:
            while not step(group.status()):
                assert time.monotonic() < end, group.status()
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return group.status()

    return asyncio.run(run())


def is_(word: str) -> Callable[[SourceStatus], bool]:
    """Holds where a group's status is this word."""
    return lambda status: status.status == word


def test_pages_with_their_times() -> None:
    """Each page is handed over with when it was asked for and what is known of its exporter."""
    kept, began_ms = Kept(), int(time.time() * 1000)
    with FakeDcgmExporter(FleetTruth(gpus=1)) as exporter:
        status = scrape(Finder([exporter.address]), kept, lambda _: len(kept.payloads) >= 3)
    pages = [unpack_page(payload) for payload in kept.payloads]
    times = [page.at_ms for page in pages]
    assert times == sorted(set(times))
    assert began_ms <= times[0]
    assert status.last_sample_ms in times[-2:]  # the last page may be kept while scraping ends
    assert dict(pages[0].target) == {"instance": exporter.address, "node": "127.0.0.1"}
    assert (status.status, status.targets, status.answering, status.error) == ("ok", 1, 1, None)


def test_a_gap_from_its_first_failure_to_the_next_page() -> None:
    """The gap of an exporter that fails and comes back is remembered, and why."""
    kept = Kept()
    with FakeDcgmExporter(FleetTruth(gpus=1)) as exporter:

        def fail(status: SourceStatus) -> bool:
            exporter.status = 500
            return status.status == "failing"

        def heal(status: SourceStatus) -> bool:
            exporter.status = 200
            return status.status == "ok"

        status = scrape(Finder([exporter.address]), kept, is_("ok"), fail, heal)
    (gap,) = status.gaps
    assert (gap.target, gap.error) == (exporter.address, "answered 500")
    assert gap.to_ms is not None
    assert gap.from_ms < gap.to_ms
    assert any(unpack_page(payload).at_ms == gap.to_ms for payload in kept.payloads)


def test_gaps_of_earlier_processes() -> None:
    """One that lasts goes on where it began; one of an exporter that is off the list is over; those that are over are kept."""
    dead = f"127.0.0.1:{free_port()}"
    before = (TargetGap("old:1", 1, 2, "x"), TargetGap(dead, 5, None, "y"), TargetGap("gone:1", 7, None, "z"))
    status = scrape(Finder([dead]), Kept(), lambda status: "refused" in (status.error or ""), before=before)
    assert status.gaps[0] == before[0]
    assert (status.gaps[1].target, status.gaps[1].from_ms, status.gaps[1].error) == ("gone:1", 7, "z")
    assert status.gaps[1].to_ms is not None
    assert status.gaps[2] == TargetGap(dead, 5, None, "connection refused")
    assert status.since_ms == 5
    many = tuple(TargetGap(f"n{k}:1", k, None, "x") for k in range(3 * MOST_GAPS))
    assert len(scrape(Finder([]), Kept(), lambda status: len(status.gaps) == MOST_GAPS, before=many).gaps) == MOST_GAPS


def test_a_page_that_cannot_be_kept() -> None:
    """With a full disk nothing is measured, and that is said; with room again it goes on."""
    kept = Kept(full=True)
    with FakeDcgmExporter(FleetTruth(gpus=1)) as exporter:

        def make_room(status: SourceStatus) -> bool:
            kept.full = False
            return status.status == "ok"

        status = scrape(
            Finder([exporter.address]), kept, lambda status: "no space left" in (status.error or ""), make_room
        )
    assert kept.payloads
    assert status.gaps[0].error == "no space left"


def test_a_page_that_is_being_kept_when_scraping_ends() -> None:
    """It is kept to its end."""
    began, kept = [], []

    class SlowlyKept(Kept):
        async def take(self, payload: bytes) -> None:
            began.append(payload)
            await asyncio.sleep(0.3)
            kept.append(payload)

    with FakeDcgmExporter(FleetTruth(gpus=1)) as exporter:
        scrape(Finder([exporter.address]), SlowlyKept(), lambda _: bool(began))
    assert kept == began


def test_lists_that_break_and_change() -> None:
    """A defect of what finds exporters stops none of them; those that leave the list are asked no more, and their gap is over."""
    dead = f"127.0.0.1:{free_port()}"
    with FakeDcgmExporter(FleetTruth(gpus=1)) as exporter:
        finder, kept = Finder([exporter.address, dead]), Kept()

        def break_(status: SourceStatus) -> bool:
            finder.error = "broken"
            return "RuntimeError: a defect" in (status.error or "") and status.answering == 1

        def mend(status: SourceStatus) -> bool:
            finder.error, finder.addresses = "", [exporter.address]
            return status.status == "ok" and status.targets == 1

        status = scrape(finder, kept, is_("degraded"), break_, mend)
    assert [(gap.target, gap.error) for gap in status.gaps] == [(dead, "connection refused")]
    assert status.gaps[0].to_ms is not None
    assert scrape(Finder([], "no file"), Kept(), is_("failing")).error == "no file"


@given(
    st.floats(1e9, 2e9), st.floats(1, 600), st.floats(0, 0.999), st.lists(st.floats(-0.4, 0.9), min_size=1, max_size=20)
)
def test_instants_follow_each_other(now_s: float, every_s: float, share: float, late: list[float]) -> None:
    """Whatever a scrape takes, and though clocks are read a little early, each instant is one step after the last one."""
    offset_s, due_s = share * every_s, 0.0
    for part in late:
        after_s = find_next(due_s, now_s, every_s, offset_s)
        assert after_s > now_s - every_s / 2
        assert (after_s - offset_s) % every_s == pytest.approx(0, abs=1e-3) or (
            after_s - offset_s
        ) % every_s == pytest.approx(every_s, abs=1e-3)
        if due_s:
            assert after_s - due_s == pytest.approx(every_s, abs=1e-3)
        due_s, now_s = after_s, after_s + part * every_s


def test_a_clock_that_is_set() -> None:
    """A clock set back or ahead by hours costs one step, not hours."""
    for now_s in (1e9, 1e9 + 7200):
        assert 0 < find_next(1e9 + 3600, now_s, 15, 4) - now_s <= 15
