"""`loadfactor up` that scrapes serving engines: tokens are right to the unit, or unknown, over restarts of either side."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from tests.live.fake_engine import EngineProcessTruth, FakeEngine
from tests.live.up_process import UpProcess

from loadfactor.books.books import Books
from loadfactor.collect.discovery.source_check import check_sources
from loadfactor.settings.config import read_settings
from loadfactor.sources.serving_engines.counting import AGAIN, GAP, SEVERAL
from loadfactor.store.source_status import read_statuses

LONGEST_S = 240.0


def configure(folder: Path, text: str) -> Path:
    """A configuration with these groups, and flushes every second."""
    path = folder / "loadfactor.toml"
    path.write_text(f'[server]\nflush_every = "1s"\n{text}')
    return path


def write_group(job: str, *engines: FakeEngine) -> str:
    """The table of a group."""
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


def wait_for_unknown(up: UpProcess, name: str, what: str) -> dict[str, Any]:
    """Until /health says that this is unknown of a group; all that it says of it."""
    end = time.monotonic() + LONGEST_S
    while True:
        found: dict[str, Any] = next(s for s in up.ask("/health")["sources"] if s["name"] == name)
        if what in found.get("unknown", {}):
            return found
        assert time.monotonic() < end, found
        time.sleep(0.1)


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
        said = next(s for s in up.ask("/health")["sources"] if s["name"] == "serving chat")
        assert (said["status"], said["targets"], said["answering"]) == ("ok", 2, 2)
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
            assert wait_for_unknown(up, "serving twins", SEVERAL)["status"] == "ok"
            one.__exit__(None, None, None)
            time.sleep(3)
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
