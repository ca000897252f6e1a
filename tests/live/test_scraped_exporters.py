"""`loadfactor up` that scrapes exporters and serving engines: the books are the truth, and bad servers disturb nobody."""

import json
import os
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np
import pytest
from tests.live.fake_dcgm_exporter import METRICS, XID, FakeDcgmExporter, FleetTruth, expose
from tests.live.fake_engine import EngineProcessTruth, FakeEngine
from tests.live.scrapes import read_samples
from tests.live.server_farm import STEP_S, Question, ServerFarm, answer_range
from tests.live.test_kills import ROUNDS
from tests.live.up_process import UpProcess, free_port
from tests.waiting import LONGEST_S, wait_until

from loadfactor.base.units import MS_PER_S
from loadfactor.books.books import Books
from loadfactor.collect.discovery.source_check import check_sources
from loadfactor.settings.config import read_settings
from loadfactor.sources.serving_engines.counting import AGAIN, GAP, SEVERAL
from loadfactor.store.source_status import read_statuses

GPUS = 64
MIB = 2**20
DEAD = ("never", "drip", "html", "endless", "unreachable")
TARGETS, ALIVE = 1_000, 10
FARM_EVERY_S = 5.0
ASKED = 6
MOST_RSS = 2 << 30


def configure(folder: Path, text: str) -> Path:
    """A configuration with these groups, and flushes every second."""
    path = folder / "loadfactor.toml"
    path.write_text(f'[server]\nflush_every = "1s"\n{text}')
    return path


def wait_for_pages(exporter: FakeDcgmExporter, count: int) -> None:
    """Until so many more pages were served."""
    before = len(exporter.answers)
    wait_until(lambda: len(exporter.answers) >= before + count, lambda: "it is not scraped")


def find_group(health: dict[str, Any], name: str) -> dict[str, Any]:
    return next(source for source in health["sources"] if source["name"] == name)


def wait_for_group(up: UpProcess, name: str, **expected: object) -> dict[str, Any]:
    """Until /health says this of a group; all that it says."""
    health = up.wait_for_health(lambda said: (group := find_group(said, name)) | expected == group)
    return find_group(health, name)


@pytest.mark.long
def test_the_books_are_the_truth_after_restarts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Killed, stopped and started again, and the exporter too: every page that was kept is in the books once, with its values."""
    truth = FleetTruth(gpus=GPUS, began_s=time.time(), stay_s=4.0, xid_after_s=3.0)
    with FakeDcgmExporter(truth) as exporter:
        config = configure(tmp_path, f'[[dcgm]]\nname = "a"\ntargets = ["{exporter.address}"]\nevery = "1s"\n')
        up = UpProcess(tmp_path / "books", config=config)
        for round_ in range(4):
            up.start()
            wait_for_pages(exporter, 4)
            if round_ == 1:
                exporter.__exit__(None, None, None)
                wait_for_group(up, "dcgm a", status="failing", answering=0)
                exporter.__enter__()
                wait_for_pages(exporter, 2)
            if round_ % 2:
                assert up.stop() == 0
            else:
                up.kill()
        up.start()
        wait_for_pages(exporter, 2)
        up.wait_until_booked()
        assert up.stop() == 0
    books = Books(up.store)
    rows = read_samples(up.store)
    assert set(rows["source"]) == {"dcgm:a"}
    answers = [round(at_s * MS_PER_S) for at_s in exporter.answers]
    energies = 0
    for gpu in range(GPUS):
        mine = rows[rows["device_id"] == truth.uuid(gpu)]
        pages = [min(a for a in answers if a >= to_ms and a - to_ms < MS_PER_S) for to_ms in mine["to_utc"]]
        assert len(set(pages)) == len(pages), "a page counts twice"
        assert len(pages) >= len(answers) - 2 * 5, "more than what was under way when it was killed is missing"
        for before, row, before_ms, page_ms in zip(
            [None, *mine.itertuples()], mine.itertuples(), [0, *pages], pages, strict=False
        ):
            at_s = page_ms / MS_PER_S
            assert row.busy_share == truth.percent(gpu, at_s) / 100
            assert row.mem_used_bytes == truth.memory_mib(gpu, at_s) * MIB
            if before is not None and row.to_utc - before.to_utc < 1.5 * MS_PER_S:
                joules = truth.energy_j(gpu, before_ms / MS_PER_S, at_s)
                assert row.power_w * (row.to_utc - before.to_utc) / MS_PER_S == pytest.approx(joules, rel=1e-4)
                energies += 1
    assert energies >= GPUS * 3
    assert set(books.table("devices").execute()["node"]) == {truth.node(gpu) for gpu in range(GPUS)}
    held = {job for job in books.table("allocations").execute()["job_id"] if job}
    true = {truth.holder(gpu, truth.began_s + k * truth.stay_s) for gpu in range(GPUS) for k in range(100)}
    assert held <= {"/".join(holder) for holder in true if holder}
    assert held
    faults = books.table("device_events").execute()
    assert set(faults["device_id"]) == {truth.uuid(gpu) for gpu in range(3, GPUS, 16)}
    check = books.check()
    assert check.balance.holds
    assert [f.grade for f in check.findings if "gave nothing from" in f.what] == ["note"]
    with capsys.disabled():
        print(f"\nscraped: {len(rows)} samples of {len(answers)} pages, 2 kills, 3 stops, 1 restart of the exporter")


@pytest.mark.long
def test_lists_that_change_while_it_runs(tmp_path: Path) -> None:
    """Exporters of a file come and go with it, a broken file changes nothing, and a name in DNS is scraped at its address."""
    file, paid = tmp_path / "gpus.json", tmp_path / "token"
    paid.write_text("secret\n")
    with FakeDcgmExporter(FleetTruth(gpus=4)) as first, FakeDcgmExporter(FleetTruth(gpus=12)) as second:
        config = configure(
            tmp_path,
            f'[[dcgm]]\nname = "file"\nfile_sd = ["{tmp_path}/*.json"]\nevery = "1s"\n'
            f'[[scrape]]\nname = "dns"\ndns = "localhost:{second.port}"\nevery = "1s"\nbearer_token_file = "{paid}"\n',
        )
        with UpProcess(tmp_path / "books", config=config) as up:
            assert "no file is called" in str(wait_for_group(up, "dcgm file", status="failing", targets=0)["error"])
            wait_for_group(up, "scrape dns", status="ok", targets=1, answering=1)
            assert second.asked[-1]["authorization"] == "Bearer secret"
            file.write_text(json.dumps([{"targets": [first.address], "labels": {"job": "nodes"}}]))
            wait_for_group(up, "dcgm file", status="ok", answering=1, error=None)
            file.write_text("[{")
            assert "its last good list stays" in str(
                wait_for_group(up, "dcgm file", status="degraded", answering=1)["error"]
            )
            closed = f"127.0.0.1:{free_port()}"
            file.write_text(json.dumps([{"targets": [first.address, closed], "labels": {"job": "nodes"}}]))
            said = wait_for_group(
                up, "dcgm file", targets=2, answering=1, error=f"1 of 2 do not answer: {closed} (connection refused)"
            )
            assert said["status"] == "degraded"
            up.wait_for_health(lambda said: said["status"] == "degraded")
            file.unlink()
            wait_for_group(up, "dcgm file", status="failing", targets=0)
            wait_for_pages(second, 1)  # what was under way is over
            pages = len(first.answers)
            wait_for_pages(second, 2)
            assert len(first.answers) == pages
            up.wait_until_booked()
            assert up.stop() == 0
    books = Books(tmp_path / "books")
    assert set(books.table("samples").execute()["source"]) == {"dcgm:nodes", "dcgm:dns"}
    assert any(f"dcgm file: {closed} gave nothing from" in finding.what for finding in books.check().findings)


def serve_gpu(name: str, _question: Question) -> bytes:
    """The page of an exporter with one GPU of its own."""
    page = expose(FleetTruth(gpus=1), time.time())
    return page.replace(FleetTruth().uuid(0), f"GPU-{name}").replace("node-000", f"node-{name}").encode()


@pytest.mark.long
def test_dead_exporters_disturb_no_live_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of 1,000 exporters 990 hang, drip, say nonsense, never end or are away: the others are scraped at each of their instants."""
    with ServerFarm(serve_gpu) as farm:
        closed = f"127.0.0.1:{free_port()}"
        groups = []
        for number in range(TARGETS):
            kind = "good" if number < ALIVE else DEAD[number % len(DEAD)]
            address = closed if kind == "unreachable" else f"127.0.0.1:{farm.port}"
            groups.append({"targets": [address], "labels": {"__metrics_path__": f"/{kind}/{number}/metrics"}})
        (tmp_path / "all.json").write_text(json.dumps(groups))
        every = f'every = "{FARM_EVERY_S:g}s"'
        config = configure(tmp_path, f'[[scrape]]\nname = "all"\nfile_sd = ["{tmp_path}/all.json"]\n{every}\n')
        with UpProcess(tmp_path / "books", config=config) as up:
            assert up.process
            took, most_rss, end = [], 0, time.monotonic() + LONGEST_S
            asked = [0]
            while min(asked) < ASKED:
                assert time.monotonic() < end, (asked, farm.kinds)
                began = time.monotonic()
                up.ask("/health")
                took.append(time.monotonic() - began)
                resident = int(Path(f"/proc/{up.process.pid}/statm").read_text().split()[1])
                most_rss = max(most_rss, resident * os.sysconf("SC_PAGE_SIZE"))
                time.sleep(0.25)
                asked = [len(farm.asked[f"good/{number}"]) for number in range(ALIVE)]
            said = wait_for_group(up, "scrape all", status="degraded", targets=TARGETS, answering=ALIVE)
            clock = Path(f"/proc/{up.process.pid}/stat").read_text().rpartition(")")[2].split()
            cpu_s = (int(clock[11]) + int(clock[12])) / os.sysconf("SC_CLK_TCK")
            up.wait_until_booked()
            assert up.stop() == 0
    assert f"and {TARGETS - ALIVE - 3} more" in str(said["error"])
    books = Books(tmp_path / "books")
    rows = read_samples(up.store)
    steps = []
    for number in range(ALIVE):
        times = sorted(rows[rows["device_id"] == f"GPU-{number}"]["to_utc"])
        assert len(times) >= ASKED - 1
        steps += [(b - a) / MS_PER_S for a, b in pairwise(times)]
    missed = [step for step in steps if step > 1.5 * FARM_EVERY_S]
    assert len(missed) <= len(steps) / 10, (
        missed
    )  # a busy machine may miss one; dead exporters would keep it late for good
    assert median(steps) == pytest.approx(FARM_EVERY_S, rel=0.1)
    gaps = [finding for finding in books.check().findings if "gave nothing since" in finding.what]
    assert len(gaps) == TARGETS - ALIVE
    with capsys.disabled():
        late_s = max(abs(step - FARM_EVERY_S) for step in steps)
        print(
            f"\n{TARGETS} exporters, {ALIVE} alive, every {FARM_EVERY_S:g} s: steps of the live ones off by at most "
            f"{late_s:.3f} s; /health took at most {max(took):.2f} s; {most_rss / MIB:,.0f} MiB; {cpu_s:.0f} s of CPU; "
            f"asked {dict(farm.kinds)}"
        )
    assert most_rss < MOST_RSS


def write_group(job: str, *engines: FakeEngine) -> str:
    targets = json.dumps([engine.address for engine in engines])
    return f'[[serving]]\nname = "{job}"\njob = "{job}"\ntargets = {targets}\nevery = "1s"\n'


def read_totals(books: Books, job: str) -> dict[tuple[str, str], float]:
    """Tokens and requests of a job by replica and unit."""
    found: dict[tuple[str, str], float] = {}
    for row in books.table("progress").to_pyarrow().to_pylist():
        assert row["from_utc"] < row["to_utc"]
        if row["job_id"] == job and not row["unit"].endswith("_s"):
            key = row["replica"], row["unit"]
            found[key] = found.get(key, 0) + row["amount"]
    return found


def wait_for_unknown(up: UpProcess, name: str, what: str, **expected: object) -> None:
    """Until /health says that this is unknown of a group, and what else is expected."""
    up.wait_for_health(
        lambda said: (group := find_group(said, name)) | expected == group and what in group.get("unknown", {})
    )


@pytest.mark.long
def test_tokens_are_right_to_the_unit_over_restarts(tmp_path: Path) -> None:
    """A replica that restarts, two behind one name, a counter that goes, a gap, and a server that is killed and stopped."""
    twins = [EngineProcessTruth(90_000, 800, 70, 60), EngineProcessTruth(20, 10, 5, 1, time.time() - 3600)]
    with FakeEngine() as one, FakeEngine(processes=twins) as two:
        config = configure(tmp_path, write_group("chat", one, two))
        up = UpProcess(tmp_path / "books", config=config).start()
        for engine in (one, two):
            engine.rest()  # what was made before is not known
            engine.works = True
        one.wait_for_pages()
        up.kill()
        up.start()
        one.rest()
        made = [1000 - one.processes[0].prompt, 500 - one.processes[0].output, 100 - one.processes[0].cached]
        one.processes = [EngineProcessTruth()]
        one.works = True
        one.wait_for_pages()
        wait_for_unknown(up, "serving chat", AGAIN)
        one.rest()
        cached = one.processes[0].cached
        one.has_cache, one.works = False, True
        one.wait_for_pages()
        assert up.stop() == 0
        up.start()
        one.__exit__(None, None, None)
        time.sleep(3)
        one.__enter__()
        one.rest()
        two.rest()
        up.wait_until_booked()
        wait_for_group(up, "serving chat", status="ok", targets=2, answering=2)
        assert up.stop() == 0
    assert read_totals(Books(up.store), "chat") == {
        (one.address, "prompt_token"): one.processes[0].prompt - made[0],
        (one.address, "output_token"): one.processes[0].output - made[1],
        (one.address, "cached_prompt_token"): cached - made[2],
        (one.address, "request"): one.processes[0].prompt // 113 * 2 - made[0] // 113 * 2,
        (two.address, "prompt_token"): twins[0].prompt - 90_000 + twins[1].prompt - 20,
        (two.address, "output_token"): twins[0].output - 800 + twins[1].output - 10,
        (two.address, "cached_prompt_token"): twins[0].cached - 70 + twins[1].cached - 5,
        (two.address, "request"): twins[0].requests - 60 + twins[1].requests - 1,
    }


@pytest.mark.long
def test_what_cannot_be_told_apart_is_unknown(tmp_path: Path) -> None:
    """Of two replicas behind one name that say no start nothing counts, a gap is counted, and a page of nothing is said."""
    twins = [EngineProcessTruth(90_000, 800, 70, 60), EngineProcessTruth(20, 10, 5, 1)]
    with FakeEngine(says_start=False, processes=twins, works=True) as two, FakeEngine(says_start=False) as one:
        config = configure(tmp_path, write_group("twins", two) + write_group("alone", one))
        with UpProcess(tmp_path / "books", config=config) as up:
            wait_for_unknown(up, "serving twins", SEVERAL, status="ok")
            wait_for_group(up, "serving alone", status="ok")
            one.__exit__(None, None, None)
            wait_for_group(up, "serving alone", status="failing")
            time.sleep(2)
            one.__enter__()
            wait_for_unknown(up, "serving alone", GAP)
            up.wait_until_booked()
            assert up.stop() == 0
    assert read_totals(Books(tmp_path / "books"), "twins") == {}
    kept = next(status for status in read_statuses(tmp_path / "books") if status.name == "serving twins")
    assert SEVERAL in dict(kept.unknown)


def test_check_says_what_engines_tell(tmp_path: Path) -> None:
    """Which engine answers, what its version does not count, and that its processes cannot be told apart."""
    with FakeEngine(says_start=False, has_cache=False) as engine:
        config = configure(tmp_path, write_group("chat", engine))
        (found,) = check_sources(read_settings(config), tmp_path / "books").sources
    assert (found.name, found.reachable, found.exporters, found.answering) == ("serving chat", True, ("vllm",), 1)
    assert [one.what.partition(":")[0] for one in found.missing] == [
        "no cached prompt tokens",
        "no process_start_time_seconds",
    ]


SERVERS = 1_000 if ROUNDS >= 200 else 200
BAD = ("never", "drip", "html", "wrong", "endless", "turns")
GOOD = 3
BACKFILL_S = 120
ASKED_OF_MANY = 10
"""So often each good one is asked before the books are looked at."""


def wait_for_states(up: UpProcess, states: dict[str, str]) -> None:
    """Until /health says these states of sources."""
    up.wait_for_health(lambda said: states.items() <= {s["name"]: s["status"] for s in said["sources"]}.items())


@pytest.mark.long
def test_bad_servers_disturb_no_good_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The good ones are asked as often as configured and their samples booked once; /health answers; the healed come back."""
    with ServerFarm(answer_range) as fake:
        lines = []
        closed = free_port()
        for number in range(SERVERS):
            kind = "good" if number < GOOD else [*BAD, "unreachable"][number % (len(BAD) + 1)]
            port = closed if kind == "unreachable" else fake.port
            every = "1s" if kind in ("good", "turns") else "5s"
            lines.append(
                f'[[prometheus]]\nname = "s{number}"\nurl = "http://127.0.0.1:{port}/{kind}/{number}"\nevery = "{every}"\n'
                f'backfill = "{BACKFILL_S}s"\n'
            )
        settings = tmp_path / "loadfactor.toml"
        settings.write_text("\n".join(lines))
        with UpProcess(tmp_path / "books", config=settings) as up:
            assert up.process
            took, most_rss, start = [], 0, time.monotonic()
            asked = [0]
            while min(asked) < ASKED_OF_MANY:
                assert time.monotonic() < start + LONGEST_S, (asked, fake.kinds)
                began = time.monotonic()
                up.ask("/health")
                took.append(time.monotonic() - began)
                pages = int(Path(f"/proc/{up.process.pid}/statm").read_text().split()[1])
                most_rss = max(most_rss, pages * os.sysconf("SC_PAGE_SIZE"))
                time.sleep(0.25)
                asked = [len(fake.asked[f"good/{number}"]) for number in range(GOOD)]
            watched_s = time.monotonic() - start
            states = dict.fromkeys((f"prometheus s{number}" for number in range(GOOD)), "ok")
            states |= {f"prometheus s{BAD.index('html') + len(BAD) + 1}": "failing"}
            wait_for_states(up, states)
            fake.healed.add("turns")
            turned = [n for n in range(GOOD, SERVERS) if n % (len(BAD) + 1) == BAD.index("turns")]
            wait_for_states(up, dict.fromkeys((f"prometheus s{n}" for n in turned), "ok"))
            assert up.stop() == 0
        rows = read_samples(up.store)
        for number in range(GOOD):
            times = sorted(rows[rows["device_id"] == f"GPU-{number}"]["to_utc"])
            assert len(times) >= BACKFILL_S / STEP_S - 1
            assert times == list(range(times[0], times[-1] + 1, STEP_S * 1000))
        with capsys.disabled():
            print(
                f"\nmany servers: {SERVERS} configured, {GOOD} good, asked {asked} times in {watched_s:.0f} s; /health took at "
                f"most {max(took):.2f} s; {most_rss / 2**20:,.0f} MiB; {len(turned)} healed ones came back; "
                f"asked {dict(fake.kinds)}"
            )
        assert most_rss < MOST_RSS


BEGAN = 1_772_409_600.0


def test_the_page_is_served_as_of_the_clock() -> None:
    """A scrape gets the page of its instant, and the instant is kept."""
    clock = iter((BEGAN + 1.25, BEGAN + 100.0))
    truth = FleetTruth(gpus=12, began_s=BEGAN)
    with FakeDcgmExporter(truth, clock=lambda: next(clock)) as exporter:
        for at_s in (BEGAN + 1.25, BEGAN + 100.0):
            with urlopen(f"http://{exporter.address}/metrics") as answer:
                assert answer.read().decode() == expose(truth, at_s)
        exporter.status = 503
        with pytest.raises(HTTPError):
            urlopen(f"http://{exporter.address}/metrics")
        assert exporter.answers == [BEGAN + 1.25, BEGAN + 100.0]


def test_the_page_looks_like_the_exporters() -> None:
    """Every metric has its title, and a line a GPU with the labels of dcgm-exporter."""
    truth = FleetTruth(gpus=20, began_s=BEGAN)
    lines = expose(truth, BEGAN + 91, timed=True).splitlines()
    assert len(lines) == len(METRICS) * 22
    assert (
        f'DCGM_FI_DEV_XID_ERRORS{{gpu="3",UUID="{truth.uuid(3)}",pci_bus_id="00000000:04:00.0",'
        'device="nvidia3",modelName="NVIDIA H100 80GB HBM3",Hostname="node-000",container="main",namespace="team-1",'
        f'pod="train-0-1"}} {XID} {int(BEGAN + 91) * 1000}'
    ) in lines


def test_energy_is_the_integral_of_power() -> None:
    """The counter rises by power times time, whatever the ends."""
    truth = FleetTruth(gpus=3, began_s=BEGAN)
    for gpu in range(3):
        instants = BEGAN + np.arange(0, 400, 0.05) + 0.025
        summed = np.cumsum([0.0] + [truth.power_w(gpu, at_s) * 0.05 for at_s in instants.tolist()])
        for k in (0, 40, 101, 3333, 8000):
            assert truth.energy_j(gpu, BEGAN, BEGAN + k * 0.05) == pytest.approx(summed[k], abs=1e-4)


def test_stays_cover_the_time_once() -> None:
    """The holder of a GPU is said for every instant between two, once."""
    truth = FleetTruth(gpus=8, began_s=BEGAN)
    stays = list(truth.stays(5, BEGAN + 10, BEGAN + 430))
    assert [stay[0] for stay in stays[1:]] == [stay[1] for stay in stays[:-1]]
    assert (stays[0][0], stays[-1][1]) == (BEGAN + 10, BEGAN + 430)
    assert all(truth.holder(5, (begin + end) / 2) == held for begin, end, held in stays)
    assert None in {held for *_, held in stays}
