"""`loadfactor up` that scrapes exporters itself: the books are the truth, whoever is restarted, and dead ones disturb nobody."""

import json
import os
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest
from tests.live.fake_dcgm_exporter import FakeDcgmExporter, FleetTruth, expose
from tests.live.server_farm import Question, ServerFarm
from tests.live.up_process import UpProcess, free_port

from loadfactor.base.units import MS_PER_S
from loadfactor.books.books import Books

LONGEST_S = 240.0
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
    end, before = time.monotonic() + LONGEST_S, len(exporter.answers)
    while len(exporter.answers) < before + count:
        assert time.monotonic() < end, "it is not scraped"
        time.sleep(0.05)


def find_group(up: UpProcess, name: str) -> dict[str, object]:
    """A group in /health."""
    return next(source for source in up.ask("/health")["sources"] if source["name"] == name)


def wait_for_group(up: UpProcess, name: str, **expected: object) -> dict[str, object]:
    """Until /health says this of a group; all that it says."""
    end = time.monotonic() + LONGEST_S
    while (found := find_group(up, name)) | expected != found:
        assert time.monotonic() < end, found
        time.sleep(0.1)
    return found


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
    rows = books.table("samples").execute().sort_values(["device_id", "to_utc"])
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
            assert said["status"] == up.ask("/health")["status"] == "degraded"
            file.unlink()
            wait_for_group(up, "dcgm file", status="failing", targets=0)
            pages = len(first.answers)
            wait_for_pages(second, 3)
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
            said = find_group(up, "scrape all")
            clock = Path(f"/proc/{up.process.pid}/stat").read_text().rpartition(")")[2].split()
            cpu_s = (int(clock[11]) + int(clock[12])) / os.sysconf("SC_CLK_TCK")
            up.wait_until_booked()
            assert up.stop() == 0
    assert (said["status"], said["targets"], said["answering"]) == ("degraded", TARGETS, ALIVE)
    assert f"and {TARGETS - ALIVE - 3} more" in str(said["error"])
    books = Books(tmp_path / "books")
    rows = books.table("samples").execute()
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
