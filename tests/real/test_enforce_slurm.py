"""An idle job of a real Slurm is warned of, and cancelled by scancel."""

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.interfaces.digests.mail_server import receive
from tests.real.slurm_cluster import PATH, SlurmCluster
from tests.waiting import wait_until

from loadfactor.books.books import Books
from loadfactor.interfaces.enforcement.enforcer import Enforcer
from loadfactor.settings.config import Settings


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    """A cluster of two users."""
    with SlurmCluster() as cluster:
        yield cluster


def wait_for(cluster: SlurmCluster, number: str, pattern: str) -> str:
    """Until the controller says something of a job; what it says."""
    said = ""

    def is_so() -> object:
        nonlocal said
        said = cluster.run("scontrol", "show", "job", "-o", number)
        return re.search(pattern, said)

    wait_until(is_so, lambda: said)
    return said


def test_an_idle_job_is_cancelled_by_scancel(
    cluster: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Warned, idle still after the grace, then cancelled in the controller; another user's job of another team runs on."""
    monkeypatch.setenv("SLURM_CONF", str(cluster.folder / "slurm.conf"))
    monkeypatch.setenv("PATH", PATH)
    jobs = {cluster.submit(user, "sleep 600", "--gpus=1"): user for user in ("nobody", "daemon")}
    for number in jobs:
        said = wait_for(cluster, number, "JobState=RUNNING")
    epoch = cluster.run("scontrol", "show", "job", "-o", *list(jobs)[:1], SLURM_TIME_FORMAT="%s", TZ="UTC")
    start = datetime.fromtimestamp(int(re.search(r"StartTime=(\d+)", epoch)[1]), UTC)
    teams = {"nobody": "vision", "daemon": "nlp"}
    books = Books(tmp_path / "books")

    def add(table: str, text: str) -> None:
        (tmp_path / f"{table}.csv").write_text(text)
        books.add("tables", [tmp_path / f"{table}.csv"])

    def sample(first: int, last: int) -> None:
        spans = [(start + timedelta(seconds=s), start + timedelta(seconds=s + 10)) for s in range(first, last, 10)]
        rows = "".join(f"{job},{a.isoformat()},{b.isoformat()},0\n" for job in jobs for a, b in spans)
        add("samples", f"device_id,from_utc,to_utc,sm_active_share\n{rows}")

    add("devices", "device_id,node,from_utc\n" + "".join(f"{job},n,{start.isoformat()}\n" for job in jobs))
    held = "".join(f"{job},{job},{user},{teams[user]},{start.isoformat()}\n" for job, user in jobs.items())
    add("allocations", f"job_id,device_id,user,team,from_utc\n{held}")
    sample(0, 120)
    first, second = jobs
    with receive() as (mailbox, server):
        policy = {"name": "idle", "team": ["vision"], "below": 0.01, "window": "1min", "grace": "1s", "act": "scancel"}
        mail = server.model_dump(by_alias=True)
        settings = Settings.model_validate({"mail": mail, "enforce": [policy | {"to": ["{user}@here.example"]}]})
        (warned,) = Enforcer(books, settings).run()
        assert warned.done == "warned nobody@here.example"
        assert "JobState=RUNNING" in cluster.run("scontrol", "show", "job", "-o", first)
        sample(120, 240)
        time.sleep(1.1)
        (ended,) = Enforcer(books, settings).run()
        assert ended.done == f"scancel {first}", said
        assert len(mailbox.mails) == 2
    wait_for(cluster, first, "JobState=CANCELLED")
    assert "JobState=RUNNING" in cluster.run("scontrol", "show", "job", "-o", second)
    cluster.run("scancel", second)
