"""Scraping of a group of exporters: its schedule, its gaps, and targets found in lists, in files of file_sd and in DNS."""

import asyncio
import json
import os
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import dns.message
import dns.rrset
import pytest
from dns.asyncresolver import Resolver
from hypothesis import given
from hypothesis import strategies as st
from tests.live.fake_dcgm_exporter import FakeDcgmExporter, FleetTruth
from tests.live.up_process import free_port
from tests.waiting import LONGEST_S

from loadfactor.base.errors import InputError, StoreError
from loadfactor.collect import scraped_payloads
from loadfactor.collect.exporters import (
    FileTargets,
    FoundTargets,
    NamedTargets,
    Target,
    TargetDefaults,
    TargetFinder,
    drop_repeated,
    split_address,
)
from loadfactor.collect.http_fetch import RequestPools
from loadfactor.collect.payloads import unpack_page
from loadfactor.collect.scrape_group import MOST_GAPS, ScrapeGroup, find_next
from loadfactor.collect.scraped_payloads import ScrapedPayloads
from loadfactor.settings.sources import DcgmExporters
from loadfactor.settings.table import Duration
from loadfactor.store.source_status import SourceStatus, TargetGap

EVERY_S = 0.1


class QuickGroup(DcgmExporters):
    """Exporters that are scraped more often than settings allow, and have longer to answer."""

    @property
    def timeout_s(self) -> float:
        """Seconds that a scrape may take."""
        return LONGEST_S


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


DCGM = TargetDefaults(9400, job="gpus")
NAME = "_dcgm._tcp.example."


def find(finder: TargetFinder) -> FoundTargets:
    """Targets that are found now."""
    return asyncio.run(finder.find())


def names(found: FoundTargets) -> list[str]:
    """Names of the exporters."""
    return [target.name for target in found.targets]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("node-1:9400", ("node-1", 9400)),
        ("node-1", ("node-1", 9400)),
        ("10.0.0.7:80", ("10.0.0.7", 80)),
        ("[fd00::1]:9400", ("fd00::1", 9400)),
        ("[::1]", ("::1", 9400)),
    ],
)
def test_addresses(address: str, expected: tuple[str, int]) -> None:
    """Host and port as people write them, and the usual port where none is said."""
    assert split_address(address, 9400) == expected


@pytest.mark.parametrize(
    "address",
    [
        "",
        ":9400",
        "http://node-1:9400",
        "node-1:0",
        "node-1:99999",
        "node-1:x",
        "::1",
        "a b:1",
        "u@h:1",
        "n:1/m",
        "n\r\nX: y:1",
    ],
)
def test_what_is_no_address(address: str) -> None:
    """Anything else is refused in one line that shows how it is written."""
    with pytest.raises(InputError, match="write host:port"):
        split_address(address, 9400)


def test_a_port_must_be_said_where_there_is_no_usual_one() -> None:
    """Exporters of any kind have no usual port."""
    with pytest.raises(InputError):
        split_address("node-1")


def test_what_a_target_is_told() -> None:
    """Its address is the instance, its host the node, the name of the group the job."""
    target = DCGM.read("10.0.0.7")
    assert target == Target(
        "10.0.0.7", 9400, labels=(("instance", "10.0.0.7:9400"), ("job", "gpus"), ("node", "10.0.0.7"))
    )
    assert (target.name, target.url) == ("10.0.0.7:9400", "http://10.0.0.7:9400/metrics")
    assert names(FoundTargets(drop_repeated([target, DCGM.read("b"), DCGM.read("10.0.0.7:9400")]))) == [
        "10.0.0.7:9400",
        "b:9400",
    ]


def test_files_of_both_kinds(tmp_path: Path) -> None:
    """JSON and YAML say the same; labels that help are kept, those of the exporter's pod are not; scheme and path are obeyed."""
    (tmp_path / "a.json").write_text(
        json.dumps([{"targets": ["n1:9400", "n2"], "labels": {"job": "dcgm", "pod": "exporter-x"}}])
    )
    (tmp_path / "b.yml").write_text(
        "- targets: ['n3:8443', 'n1:9400']\n  labels: {__scheme__: https, __metrics_path__: /gpus, node: r3, team: 7}\n"
    )
    found = find(FileTargets((f"{tmp_path}/*.json", f"{tmp_path}/*.yml"), DCGM))
    assert found.error == ""
    assert [target.url for target in found.targets] == [
        "http://n1:9400/metrics",
        "http://n2:9400/metrics",
        "https://n3:8443/gpus",
        "https://n1:9400/gpus",
    ]
    assert dict(found.targets[1].labels) == {"instance": "n2:9400", "job": "dcgm", "node": "n2"}
    assert dict(found.targets[2].labels) == {"instance": "n3:8443", "job": "gpus", "node": "r3"}
    assert found.targets[2].name == "n3:8443/gpus"


def test_a_file_that_changes_and_breaks(tmp_path: Path) -> None:
    """Changes are read; a broken file keeps its last good list; one that is gone takes its exporters along."""
    file = tmp_path / "a.json"
    finder = FileTargets((f"{tmp_path}/*.json", f"{tmp_path}/*.yaml"), DCGM)
    nothing = find(finder)
    assert names(nothing) == []
    assert "no file is called" in nothing.error
    for text, expected, said in (
        ('[{"targets": ["n1"]}]', ["n1:9400"], ""),
        ('[{"targets": ["n1", "n2"]}]', ["n1:9400", "n2:9400"], ""),
        ('[{"targets": ["n1", "n', ["n1:9400", "n2:9400"], "no JSON"),
        ('{"targets": ["n1"]}', ["n1:9400", "n2:9400"], "not the format of file_sd"),
        ('[{"targets": ["http://n1"]}]', ["n1:9400", "n2:9400"], "no address of an exporter"),
        ('[{"targets": "n1"}]', ["n1:9400", "n2:9400"], "not a list"),
        ('[{"targets": ["n1"], "labels": {"__metrics_path__": "a b"}}]', ["n1:9400", "n2:9400"], "no path"),
        ('[{"targets": ["n3"]}]', ["n3:9400"], ""),
    ):
        file.write_text(text)
        for _ in range(2):  # what is wrong is said as long as it is there
            found = find(finder)
            assert names(found) == expected
            assert said in found.error if said else not found.error
            assert not said or "its last good list stays" in found.error
    (tmp_path / "b.yaml").write_text("- targets: [n4\n")
    found = find(finder)
    assert names(found) == ["n3:9400"]
    assert "b.yaml: no YAML" in found.error
    (tmp_path / "b.yaml").unlink()
    os.replace(file, tmp_path / "c.json")
    assert names(find(finder)) == ["n3:9400"]
    (tmp_path / "c.json").unlink()
    assert names(find(finder)) == []


def test_an_address_in_dns() -> None:
    """Every address is an exporter, of IPv4 where there is one: localhost is one exporter, not two. None is the name of a node."""
    found = find(NamedTargets("localhost:9400", DCGM))
    assert names(found) == ["127.0.0.1:9400"]
    assert "node" not in dict(found.targets[0].labels)
    assert names(find(NamedTargets("[::1]", DCGM))) == ["[::1]:9400"]


@contextmanager
def serve_dns(records: list[str]) -> Iterator[Resolver]:
    """A server of DNS that knows the SRV records of one name: whatever the list holds when it is asked."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            data, socket = self.request
            query = dns.message.from_wire(data)
            answer = dns.message.make_response(query)
            if query.question[0].name.to_text() == NAME and records:
                answer.answer.append(dns.rrset.from_text(NAME, 1, "IN", "SRV", *records))
            else:
                answer.set_rcode(dns.rcode.NXDOMAIN)
            socket.sendto(answer.to_wire(), self.client_address)

    with socketserver.ThreadingUDPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        resolver = Resolver(configure=False)
        resolver.nameservers, resolver.port, resolver.lifetime = ["127.0.0.1"], server.server_address[1], 3.0
        yield resolver
        server.shutdown()


def test_services_in_dns() -> None:
    """SRV records give host and port; a name that is gone keeps its last exporters, and is said."""
    records = ["0 0 9401 node-2.example.", "0 0 9400 node-1.example."]
    with serve_dns(records) as resolver:
        finder = NamedTargets(NAME.rstrip("."), DCGM, resolver)
        found = find(finder)
        assert names(found) == ["node-1.example:9400", "node-2.example:9401"]
        assert dict(found.targets[0].labels)["node"] == "node-1.example"
        records.pop()
        assert names(find(finder)) == ["node-2.example:9401"]
        records.clear()
        gone = find(finder)
    assert names(gone) == ["node-2.example:9401"]
    assert "not found in DNS" in gone.error
    assert "NXDOMAIN" in gone.error


def test_a_name_that_nobody_knows() -> None:
    """It is said, and nothing is asked."""
    found = find(NamedTargets("no-such-name.invalid:9400", DCGM))
    assert found.targets == ()
    assert "not found in DNS" in found.error


def test_what_the_disk_does_not_take_waits_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scraped payloads wait in their order while nothing can be written, the oldest are dropped for want of room, and counted."""
    monkeypatch.setattr(scraped_payloads, "MOST_HELD_BYTES", 10)
    taken: list[bytes] = []
    is_ill = True

    async def write(content: bytes, _stream_id: str, _kind: str) -> None:
        if is_ill:
            raise StoreError("full")
        taken.append(content)

    async def scrape() -> None:
        nonlocal is_ill
        held = ScrapedPayloads(write)
        for content in (b"first", b"other", b"third"):
            await held.keep(content, "scrape a", "page")
        assert (held.dropped, held.bytes, len(held)) == (1, 10, 2)
        await held.deliver()
        assert (taken, len(held)) == ([], 2)
        is_ill = False
        await held.keep(b"4th", "scrape a", "page")  # behind those that wait
        assert (held.dropped, taken) == (2, [])
        await held.deliver()
        await held.keep(b"fifth", "scrape a", "page")
        assert (held.dropped, held.bytes, len(held)) == (2, 0, 0)

    asyncio.run(scrape())
    assert taken == [b"third", b"4th", b"fifth"]
