"""Tracked runs that send to `loadfactor up`: what it acknowledged is in the books once, over kills of run and server."""

from pathlib import Path

import httpx
import pytest
from packages.track.tests.loops import run_loop
from tests.live.up_process import UpProcess

from loadfactor.books.books import Books

LOOP = """
with loadfactor.track(experiment="e", job="j") as run:
    for step in range({}):
        if step == {}:
            time.sleep(5)  # what was said is sent, on a busy machine too
            os.kill(os.getpid(), 9)
        run.step(step=step, samples=32, tokens=100 + step)
"""


def read_totals(books: Books) -> dict[tuple[str, bool], float]:
    """Progress in the books by unit, and whether it was kept."""
    rows = books.table("progress").to_pyarrow().to_pylist()
    keys = {(row["unit"], row["kept"]) for row in rows}
    return {k: n for k in keys if (n := sum(row["amount"] for row in rows if (row["unit"], row["kept"]) == k))}


@pytest.mark.long
def test_a_run_that_sends_is_in_the_books_once(tmp_path: Path) -> None:
    """A killed run, a killed server and a run that goes on make each step once, and what was done again is lost."""
    store, folder = tmp_path / "books", tmp_path / "progress"
    server = UpProcess(store).start()
    assert run_loop(LOOP.format("0, 60", 40), folder, LOADFACTOR_URL=server.url).returncode == -9
    server.kill()
    server.start()
    assert run_loop(LOOP.format("30, 60", -1), folder, LOADFACTOR_URL=server.url).stderr == ""
    refused = httpx.post(f"{server.url}/api/v1/progress", content=b'{"kind":"work"}')
    assert (refused.status_code, "line 1 comes before" in refused.text) == (400, True)
    server.stop()
    assert read_totals(Books.open(store)) == {
        ("step", True): 60,
        ("step", False): 10,
        ("train_sample", True): 60 * 32,
        ("train_sample", False): 10 * 32,
        ("train_token", True): sum(100 + step for step in range(60)),
        ("train_token", False): sum(100 + step for step in range(30, 40)),
    }
