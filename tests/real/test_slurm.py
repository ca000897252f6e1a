"""A story of a real Slurm cluster, followed through kills and imported; examples/slurm/job_submit.lua in its slurmctld."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import ibis
import pytest
from tests.live.up_process import UpProcess
from tests.real.slurm_cluster import GPUS, SlurmCluster
from tests.waiting import wait_until

from loadfactor.base.units import MS_PER_HOUR, MS_PER_S
from loadfactor.books.books import Books
from loadfactor.ledger.waits import list_waits

FIELDS = "JobID,State,User,Account,Submit,Eligible,Start,End,AllocTRES,ReqTRES,JobName"
IMPORTED = (
    "JobID,JobIDRaw,Cluster,User,Account,QOS,Partition,State,Reason,Submit,Eligible,Start,End,ElapsedRaw,Suspended,"
)
IMPORTED += "AllocTRES,ReqTRES,NodeList,Comment,JobName"
STATES = "BF,CA,CD,DL,F,NF,OOM,PD,PR,R,RQ,RS,RV,S,TO"
REASONS = {"after": "Dependency", "held": "JobHeldUser", "dropped": "(Resources|Priority)", "later": "BeginTime"}
"""Why jobs wait."""
CLEAN_UP = {"epilog": "#!/bin/sh\nwhile [ -e ${0%/*}/dirty ]; do sleep 0.2; done\n"}
"""So long as a file is there, jobs whose run is over stay COMPLETING."""
TWICE = 'if [ "${SLURM_RESTART_COUNT:-0}" = 0 ]; then sleep 600; else sleep 2; fi'


@dataclass
class Told:
    """What happened, and what was said of it."""

    folder: Path
    text: str = ""
    accounting: list[dict[str, str]] = field(default_factory=list)
    ids: dict[str, str] = field(default_factory=dict)
    health: list[dict[str, Any]] = field(default_factory=list)
    drained_s: tuple[float, float] = (0.0, 0.0)
    """Just before it, and when it was heard of."""
    resumed_s: tuple[float, float] = (0.0, 0.0)


class Story:
    """What happens in the cluster, chapter by chapter."""

    def __init__(self, cluster: SlurmCluster, told: Told) -> None:
        self.cluster, self.told = cluster, told
        self._freed = cluster.folder / "freed"
        self.until_freed = f"until [ -e {self._freed} ]; do sleep 0.2; done"
        """What the first job runs, which the others wait behind."""

    def begin(self) -> None:
        """Two users fill the node; others wait behind them: for GPUs, for a job, for a hold."""
        submit, ids = self.cluster.submit, self.told.ids
        ids["whole"] = submit("nobody", self.until_freed, f"--gpus-per-node={GPUS}", "--comment=whole/node|1", "-Ja|b")
        ids["array"] = submit("daemon", "sleep 3", "--array=0-3%2", "--gres=gpu:2", "--comment=sweep")
        ids["after"] = submit("daemon", "sleep 1", f"--dependency=afterok:{ids['whole']}", "--gpus=1")
        ids["held"] = submit("nobody", "sleep 1", "--hold", "--gres=gpu:h100:2")
        ids["dropped"] = submit("nobody", "sleep 9", f"--gres=gpu:{GPUS}")
        ids["later"] = submit("nobody", "sleep 1", "--begin=now+1hour", "--gpus=1")
        ids["no gpus"] = submit("nobody", "sleep 1")
        for name, reason in REASONS.items():
            self.wait_until_said(ids[name], f"Reason={reason} ")

    def go_on(self, up: UpProcess) -> None:
        """One is cancelled while it waits, the node is freed, one is requeued while it runs."""
        self.cluster.run("scancel", self.told.ids["dropped"], user="nobody")
        self._freed.touch()
        self.told.ids["twice"] = self.cluster.submit("daemon", TWICE, "--gpus=4", "--requeue")
        self.wait_for(self.told.ids["twice"], "RUNNING")
        wait_until_heard(up, *PARTS)
        dirty = self.cluster.folder / "dirty"
        dirty.touch()
        self.cluster.run("scontrol", "requeue", self.told.ids["twice"])
        self.wait_for(self.told.ids["twice"], "COMPLETING")
        wait_until_heard(up, *PARTS)
        dirty.unlink()
        self.wait_for(self.told.ids["twice"], "PENDING")

    def go_on_unseen(self) -> None:
        """Nobody watches: a requeued job runs again, a job fails, a held one is let go."""
        self.cluster.run("scontrol", "update", f"jobid={self.told.ids['twice']}", "starttime=now")
        self.told.ids["failed"] = self.cluster.submit("daemon", "exit 3", "--gpus=1")
        self.cluster.run("scontrol", "release", self.told.ids["held"])
        self.wait_for(self.told.ids["held"], "COMPLETED")

    def drain(self, up: UpProcess) -> None:
        """The node is drained for a while; accounting is away for a part of it."""
        began = time.time()
        self.cluster.run("scontrol", "update", f"nodename={self.cluster.host}", "state=drain", "reason=bad gpu 3")
        self.told.ids["waits"] = self.cluster.submit("nobody", "sleep 1", "--gpus=2")
        self.cluster.stop_accounting()
        wait_until_heard(up, "slurm: jobs", "slurm: nodes")
        self.told.drained_s = began, time.time()

    def end(self) -> None:
        """The node and accounting are back; one job is cancelled although it might have begun an hour later."""
        self.told.resumed_s = time.time(), 0.0
        self.cluster.run("scontrol", "update", f"nodename={self.cluster.host}", "state=resume")
        self.cluster.start_accounting()
        self.wait_for(self.told.ids["waits"], "COMPLETED")
        self.cluster.run("scancel", self.told.ids["later"], user="nobody")

    def wait_for(self, number: str, state: str) -> None:
        """Until the controller says that a job is in a state."""
        self.wait_until_said(number, f"JobState={state} ")

    def wait_until_said(self, number: str, pattern: str) -> None:
        """Until the controller says this of a job."""

        def show() -> str:
            return self.cluster.run("scontrol", "show", "job", number)

        wait_until(lambda: re.search(pattern, show()), show)

    def export(self, fields: str, *options: str) -> str:
        """What accounting knows of all jobs, every run."""
        return self.cluster.run(
            "sacct", "-aDXP", "-S", "2020-01-01", "-E", "now", "-s", STATES, *options, "-o", fields, TZ="UTC"
        )

    def wait_until_accounted(self) -> None:
        """Until accounting knows the end of every job."""

        def is_complete() -> bool:
            self.told.accounting = read_table(self.export(FIELDS, "--delimiter=\x1f"))
            numbers = {row["JobID"].partition("_")[0] for row in self.told.accounting}
            return numbers >= {*self.told.ids.values()} and all(r["End"] != "Unknown" for r in self.told.accounting)

        wait_until(is_complete, lambda: self.told.accounting)
        self.told.text = self.export(IMPORTED.replace(",Comment", ""))


def read_table(text: str) -> list[dict[str, str]]:
    """The rows under a heading."""
    heading, *lines = (line.split("\x1f") for line in text.splitlines())
    return [dict(zip(heading, line, strict=True)) for line in lines]


def read_ms(text: str) -> int:
    """A time that sacct wrote in UTC."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * MS_PER_S


def count(tres: str) -> int:
    """The GPUs in a list of resources."""
    found = re.search(r"gres/gpu=(\d+)", tres)
    return int(found[1]) if found else 0


PARTS = ("slurm: jobs", "slurm: nodes", "slurm: accounting")


def said_of(health: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What /health says of each source."""
    return {one["name"]: one for one in health["sources"]}


def wait_until_heard(up: UpProcess, *parts: str) -> None:
    """Until these questions were answered twice from now on: the first answer may be to one that was asked before."""
    for _ in range(2):
        told = datetime.now(UTC).isoformat()
        up.wait_for_health(
            lambda said, since=told: all((said_of(said)[part]["last_sample"] or "") > since for part in parts)
        )


def wait_until_asked(up: UpProcess) -> None:
    """Until every question was answered, and booked."""
    wait_until_heard(up, *PARTS)
    up.wait_until_booked()


def wait_until_only(up: UpProcess, *failing: str) -> dict[str, Any]:
    """Until these are failing and nothing is said against any other source; what /health says then."""
    return up.wait_for_health(
        lambda said: all(one["status"] == ("failing" if one["name"] in failing else "ok") for one in said["sources"])
    )


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """The story, with `up` killed and started again in its middle."""
    folder = tmp_path_factory.mktemp("slurm")
    config = folder / "loadfactor.toml"
    config.write_text('[server]\nflush_every = "5s"\n[[slurm]]\nevery = "1s"\ntimeout = "20s"\n')
    with SlurmCluster("Epilog={folder}/epilog", CLEAN_UP) as cluster:
        told = Told(folder)
        story = Story(cluster, told)
        up = UpProcess(folder / "books", config=config, environment=cluster.environment)
        with up:
            story.begin()
            wait_until_asked(up)
            story.go_on(up)
            told.health.append(wait_until_only(up))
            up.kill()
            story.go_on_unseen()
            up.start()
            wait_until_asked(up)
            story.drain(up)
            told.health.append(wait_until_only(up, "slurm: accounting"))
            story.end()
            story.wait_until_accounted()
            wait_until_asked(up)
            told.resumed_s = told.resumed_s[0], time.time()
            told.health.append(wait_until_only(up))
            assert up.stop() == 0
        config.write_text(f'[[slurm]]\nurl = "{cluster.start_rest()}"\nevery = "1s"\n')
        with UpProcess(folder / "rest", config=config) as up:
            wait_until_asked(up)
            assert up.stop() == 0
    (folder / "sacct.txt").write_text(told.text)
    command = [sys.executable, "-c", "from loadfactor.interfaces.cli import main; main()", "import", "slurm"]
    done = subprocess.run(
        [*command, "sacct.txt", "--timezone", "UTC", "--store", "imported"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return told


def rows_of(folder: Path, name: str) -> list[dict[str, Any]]:
    """The rows of a table."""
    with Books(folder).snapshot() as snapshot:
        rows: list[dict[str, Any]] = snapshot.fetch(snapshot.view(name)).to_pylist()
        return rows


def waits_of(folder: Path) -> list[tuple[str, float, int | None, bool]]:
    """Each wait: job, GPUs, how long (ms, of those that started), whether it was started."""
    with Books(folder).snapshot() as snapshot:
        tables = [snapshot.fetch(snapshot.view(name)) for name in ("allocations", "queue_events")]
    waits = ibis.duckdb.connect().to_pyarrow(list_waits(*(ibis.memtable(table) for table in tables)))
    return sorted(
        (w["job_id"], w["gpus"], round(w["wait_s"] * MS_PER_S) if w["started"] else None, w["started"])
        for w in waits.to_pylist()
    )


@pytest.mark.parametrize("books", ["books", "imported", "rest"])
def test_gpu_hours_are_those_of_accounting(told: Told, books: str) -> None:
    """Each run of each job once, as sacct --duplicates has it: live through kills, imported, and from slurmrestd."""
    expected = sorted(
        (row["JobID"], read_ms(row["Start"]), read_ms(row["End"]), count(row["AllocTRES"]))
        for row in told.accounting
        if row["Start"] not in ("None", "Unknown") and count(row["AllocTRES"])
    )
    found = sorted(
        (r["job_id"], r["from_utc"], r["to_utc"], r["gpus"]) for r in rows_of(told.folder / books, "allocations")
    )
    assert found == expected
    hours = sum(row["gpus"] * (row["to_utc"] - row["from_utc"]) for row in rows_of(told.folder / books, "allocations"))
    assert hours / MS_PER_HOUR == pytest.approx(sum(g * (e - s) for _, s, e, g in expected) / MS_PER_HOUR)
    assert len([r for r in found if r[0] == told.ids["twice"]]) == 2
    assert {job for job, *_ in found} >= {f"{told.ids['array']}_{task}" for task in range(4)}


@pytest.mark.parametrize("books", ["books", "imported", "rest"])
def test_waits_are_those_of_accounting(told: Told, books: str) -> None:
    """From eligible to started; those that were cancelled before are counted as never started.

    Accounting may write the second of a cancellation as the start of a job that never had anything: what started had
    GPUs.
    """
    expected = []
    for row in told.accounting:
        if not (gpus := count(row["ReqTRES"])):
            continue
        started = row["Start"] not in ("None", "Unknown") and count(row["AllocTRES"]) > 0
        waited = read_ms(row["Start"]) - read_ms(row["Eligible"]) if started else None
        expected.append((row["JobID"], float(gpus), waited, started))
    assert waits_of(told.folder / books) == sorted(expected)


def test_live_books_are_those_of_history(told: Told) -> None:
    """Holders, times, ends and places are the same, whether they came live, all at once, or from slurmrestd."""
    both = []
    for books in ("books", "imported", "rest"):
        rows = rows_of(told.folder / books, "allocations")
        both.append(
            sorted(
                (
                    {k: v for k, v in r.items() if k not in ("attempt", "source", "tags", "gpu_indices")}
                    | {"attempt": r["attempt"] or 0}
                    for r in rows
                ),
                key=lambda r: (r["job_id"], r["from_utc"]),
            )
        )
    assert both[0] == both[1] == both[2]
    users = {(row["user"], row["team"]) for row in both[0]}
    assert users == {("nobody", "vision"), ("daemon", "nlp")}


def test_what_only_the_live_books_know(told: Told) -> None:
    """GPUs of the node and which of them a job had, its drain, comments, and why jobs waited."""
    books = told.folder / "books"
    numbers = {row["job_id"]: row["gpu_indices"] for row in rows_of(books, "allocations")}
    assert numbers[told.ids["whole"]] == ",".join(map(str, range(GPUS)))
    devices = rows_of(books, "devices")
    assert len(devices) == GPUS
    assert {row["accelerator"] for row in devices} == {devices[0]["accelerator"]}
    (down,) = rows_of(books, "outages")
    assert down["reason"] == "bad gpu 3"
    for column, (before_s, after_s) in {"from_utc": told.drained_s, "to_utc": told.resumed_s}.items():
        assert before_s - 1.5 <= down[column] / MS_PER_S <= after_s, column
    tags = {row["job_id"]: json.loads(row["tags"]) for row in rows_of(books, "allocations")}
    assert tags[told.ids["whole"]]["comment"] == "whole/node|1"
    assert tags[told.ids["whole"]]["job_name"] == "a|b"
    reasons = {row["job_id"]: row["reason"] for row in rows_of(books, "queue_events") if row["reason"]}
    for name, reason in REASONS.items():
        assert re.fullmatch(reason, reasons[told.ids[name]])


def test_accounting_that_is_away_is_said_and_stops_nothing(told: Told) -> None:
    """While slurmdbd is away, /health says so; jobs and nodes go on; afterwards the failure is remembered."""
    first, away, back = ({s["name"]: s for s in health["sources"]} for health in told.health)
    assert {s["status"] for s in first.values()} == {"ok"}
    assert away["slurm: accounting"]["status"] == "failing"
    assert (away["slurm: jobs"]["status"], away["slurm: nodes"]["status"]) == ("ok", "ok")
    assert told.health[1]["status"] == "degraded"
    assert {s["status"] for s in back.values()} == {"ok"}
    kept = {one["name"]: one for one in json.loads((told.folder / "books" / "sources.json").read_text())}
    assert kept["slurm: accounting"]["failures"]


LUA = Path(__file__).resolve().parents[2] / "examples" / "slurm" / "job_submit.lua"
WARNING = "Nobody will know what these GPU-hours were for"


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    """A cluster whose controller asks the script."""
    with SlurmCluster("JobSubmitPlugins=lua", {LUA.name: LUA.read_text()}) as cluster:
        yield cluster


@pytest.mark.parametrize("asked", ["--gpus=1", "--gres=gpu:h100:1", "--gpus-per-node=1", "--gpus-per-task=1"])
def test_a_job_without_an_experiment_is_warned_about(cluster: SlurmCluster, asked: str) -> None:
    """However it asks for GPUs; it runs all the same. With a comment, or without GPUs, nothing is said."""
    assert cluster.submit("nobody", "true", "--ntasks=1", asked).isdigit()
    assert WARNING in cluster.complaint
    cluster.submit("nobody", "true", "--ntasks=1", asked, "--comment=exp-7")
    assert WARNING not in cluster.complaint
    cluster.submit("nobody", "true")
    assert WARNING not in cluster.complaint


def test_a_job_without_an_experiment_is_refused(cluster: SlurmCluster) -> None:
    """Where the site wants that; a comment may be corrected afterwards, not emptied."""
    cluster.start_controller(LOADFACTOR_REFUSE="1")
    with pytest.raises(AssertionError, match="This job asks for GPUs; name its experiment"):
        cluster.submit("nobody", "true", "--gpus=1")
    job = cluster.submit("nobody", "true", "--gpus=1", "--hold", "--comment=exp-7")
    cluster.run("scontrol", "update", f"jobid={job}", "comment=exp-8", user="nobody")
    with pytest.raises(AssertionError):
        cluster.run("scontrol", "update", f"jobid={job}", "comment=not an experiment", user="nobody")
    assert "Comment=exp-8" in cluster.run("scontrol", "show", "job", job)
