"""Sending to a server that takes everything or is away, and merging: records hold what the loop gave."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any

import pytest
from loops import read_lines, run_loop

from loadfactor_track.merging import Merger, Record
from loadfactor_track.run import TrackedRun

LOOP = """
with loadfactor.track(job="j") as run:
    for step in range(20):
        run.step(step=step, samples=1)
        time.sleep(0.01)
    {}
"""

SLOW_CLIENT = """
import threading
from importlib.abc import MetaPathFinder
loads = threading.Event()
class Slow(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "http.client":
            asked.set()
            loads.wait()
asked = threading.Event()
sys.meta_path.insert(0, Slow())
with loadfactor.track(job="j") as run:
    wait_until(asked.is_set)
    run.step(step=1)
    wait_until(lambda: count_written() == 1)
    print("it is written")
    loads.set()
"""


class Taking(ThreadingHTTPServer):
    """Takes progress, and remembers the lines."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lines: list[dict[str, Any]] = []
        self.tokens: set[str | None] = set()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Taking

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.tokens.add(self.headers["Authorization"])
        self.server.lines += [json.loads(line) for line in body.splitlines()]
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def server() -> Iterator[Taking]:
    with Taking() as taking:
        threading.Thread(target=taking.serve_forever, daemon=True).start()
        yield taking
        taking.shutdown()


def count_steps(lines: list[dict[str, Any]]) -> int:
    """Steps of records, each record once."""
    return sum({(line["from"], line["n"]): line["steps"] for line in lines if line["kind"] == "work"}.values())


def test_everything_arrives_and_nothing_stays(server: Taking, tmp_path: Path) -> None:
    """With a server every record arrives under the token, each body begins with the process, and the buffer is gone."""
    said = run_loop(LOOP.format("pass"), tmp_path, LOADFACTOR_URL=server.url, LOADFACTOR_TOKEN="lf_secret")
    assert said.stderr == ""
    assert count_steps(server.lines) == 20
    assert server.lines[0]["kind"] == "begin"
    assert server.lines[-1]["kind"] == "end"
    assert server.tokens == {"Bearer lf_secret"}
    assert list(tmp_path.rglob("*.jsonl")) == []


def test_a_server_that_is_away_costs_nothing_and_is_told_later(server: Taking, tmp_path: Path) -> None:
    """Records of a run without its server wait on the disk; the next run there sends them, and those of a killed one."""
    said = run_loop(LOOP.format("pass"), tmp_path, LOADFACTOR_URL="http://127.0.0.1:9")
    assert said.returncode == 0
    assert said.stderr.count("loadfactor:") == 1
    run_loop(
        LOOP.format("wait_until(lambda: count_written() == 40); os.kill(os.getpid(), 9)"),
        tmp_path,
        LOADFACTOR_URL="http://127.0.0.1:9",
    )
    assert count_steps(read_lines(tmp_path)) == 40
    run_loop(LOOP.format("wait_until(lambda: count_written() == 20)"), tmp_path, LOADFACTOR_URL=server.url)
    assert count_steps(server.lines) == 60
    assert list(tmp_path.rglob("*.jsonl")) == []


def test_the_end_of_a_run_waits_for_no_server_that_refused(tmp_path: Path) -> None:
    """Once the last try has failed, the run ends, though it might take longer."""
    code = "with loadfactor.track(job='j') as run:\n    run.step()\n    began = time.monotonic()\n"
    code += "print(time.monotonic() - began < recorder.END_S)"
    assert run_loop(code, tmp_path, LOADFACTOR_URL="http://127.0.0.1:9").stdout == "True\n"


def test_records_are_written_while_the_http_client_loads(server: Taking, tmp_path: Path) -> None:
    """Records wait for nothing that only sending needs: a step is in the file before the HTTP client is there."""
    said = run_loop(SLOW_CLIENT, tmp_path, LOADFACTOR_URL=server.url)
    assert (said.stdout, said.stderr) == ("it is written\n", "")
    assert count_steps(server.lines) == 1


def test_an_address_that_is_none_costs_nothing(tmp_path: Path) -> None:
    """Where LOADFACTOR_URL is no address, that is said once, and the records wait on the disk."""
    said = run_loop(LOOP.format("pass"), tmp_path, LOADFACTOR_URL="http://[books:9417")
    assert (said.returncode, said.stderr.count("loadfactor:")) == (0, 1)
    assert count_steps(read_lines(tmp_path)) == 20


@pytest.mark.parametrize("seed", range(200))
def test_micro_batches_that_are_taken_at_any_time(seed: int) -> None:
    """Steps of micro-batches, said by number or as not done, are counted once each and keep their own samples."""
    random = Random(seed)
    run, merger = TrackedRun({}, "", "global"), Merger(0)
    run._is_on = True  # without a thread: this test takes what was said
    records: list[Record] = []
    said: list[int] = []
    for step in range(random.randint(1, 12)):
        is_by_number = random.random() < 0.5
        batches = [random.choice((1, 1, 2)) for _ in range(random.randint(1, 3))]
        for place, samples in enumerate(batches, 1):
            run.step(step=step, samples=samples, done=is_by_number or place == len(batches))
            if random.random() < 0.3:
                records += merger.merge(run._give())
        said.append(sum(batches))
    records += merger.merge(run._give())
    kept = [0] * len(said)
    for record in records:
        samples = record["samples"]
        for place in range(max(record["steps"], 1)):
            kept[record["step"] + place] += samples[place] if isinstance(samples, list) else samples
    assert kept == said
    assert sum(record["steps"] for record in records) == len(said)
