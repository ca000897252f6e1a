"""Days of the ledger as an array of a real Slurm."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from tests.ledger.test_books_balance import near
from tests.real.slurm_cluster import SlurmCluster

from loadfactor.books.books import Books


def test_an_array_books_every_day(simulated_books: Books, tmp_path: Path) -> None:
    """Submitted, waited for, published: the answers of before."""
    store = shutil.copytree(simulated_books.store.folder, tmp_path / "books")
    with SlurmCluster() as cluster:

        def run(*words: str) -> str:
            done = subprocess.run(
                [sys.executable, "-m", "loadfactor", *words, "--store", str(store)],
                env=cluster.environment,
                capture_output=True,
                text=True,
                cwd=tmp_path,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        before = json.loads(run("show", "--json"))
        days = len(json.loads(run("ledger", "plan", "--all", "--json"))["tasks"])
        assert days > 1
        run("ledger", "book", "--all", "--engine", "slurm")
        assert json.loads(run("ledger", "publish", "--json")) == {"tasks": days, "dropped": 0, "stale_hours": 0}
        after = json.loads(run("show", "--json"))
    assert [reading["metric"] for reading in after] == [reading["metric"] for reading in before]
    for old, new in zip(before, after, strict=True):
        assert near(old["value"], new["value"]), old["metric"]
