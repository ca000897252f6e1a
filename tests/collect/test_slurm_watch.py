"""Asking Slurm where its commands fail, are slow, late or forgetful: a gap that is said, never an end and never a zero."""

import asyncio
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.live.fake_slurm import NODE, FakeSlurm, ago_s, job, queued
from tests.waiting import LONGEST_S, wait_until

from loadfactor.collect.payloads import unpack_events
from loadfactor.collect.slurm_commands import CommandError, SlurmCommands, TooMuchOutputError, run_command
from loadfactor.collect.slurm_watch import SlurmWatch
from loadfactor.settings.config import Settings
from loadfactor.settings.sources import SlurmCluster
from loadfactor.sources.base import Gap, Rows
from loadfactor.sources.slurm.live_decoder import (
    ACCOUNTING,
    NODES,
    QUEUE,
    JobReport,
    LiveSlurmDecoder,
    list_node_values,
)
from loadfactor.sources.slurm.node_rows import NodeRecord

SHORT_TIMEOUT_S = 1.5


class Watched:
    """A cluster that is asked when a test says so; rows as books would have them, the later one of a key in place of others."""

    def __init__(self, slurm: FakeSlurm) -> None:
        self.slurm = slurm
        self.timeout_s = LONGEST_S
        self.cursor: dict[str, str] = {}
        self.bodies = 0
        self.rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.gaps: list[Gap] = []
        self._state = b""
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self.start()

    def start(self) -> None:
        """A new process, which goes on from what was kept."""
        cluster = SlurmCluster(bin=str(self.slurm.bin), timeout=f"{self.timeout_s}s")
        stopped = threading.Event()
        self._watch = SlurmWatch(
            "slurm", SlurmCommands(cluster, stopped), 1.0, ago_s(7200), self.cursor, self._take, stopped
        )
        self._watch._loop = self._loop  # the test's own thread asks

    async def _take(self, body: bytes) -> None:
        self.bodies += 1
        events, cursor = unpack_events(body)
        self.cursor |= cursor
        decoder = LiveSlurmDecoder("", self._state)
        decoder.feed(events)
        for item in decoder.drain():
            self._book(item)
        self._state = decoder.state()

    def _book(self, item: Rows | Gap) -> None:
        if isinstance(item, Gap):
            self.gaps.append(item)
            return
        for row in item.data.to_pylist():
            names = ("job_id", "attempt", "node", "from_utc", "at_utc", "event", "device_id")
            self.rows[(item.table, *(row.get(name) for name in names))] = row

    def ask(self, times: int = 1) -> dict[str, str]:
        """Ask everything; how each part fares."""
        for _ in range(times):
            self._watch.poll()
        return {one.name.partition(": ")[2]: one.status for one in self._watch.statuses()}

    def errors(self) -> dict[str, str | None]:
        """Status of each part."""
        return {one.name.partition(": ")[2]: one.error for one in self._watch.statuses()}

    def table(self, name: str) -> list[dict[str, Any]]:
        """The rows of a table."""
        return [row for key, row in self.rows.items() if key[0] == name]

    def held(self) -> list[tuple[str, int | None, str]]:
        """Job, end (s) and how it ended."""
        return [(r["job_id"], r["to_utc"] and r["to_utc"] // 1000, r["end_state"]) for r in self.table("allocations")]

    def close(self) -> None:
        """End the loop."""
        self._loop.call_soon_threadsafe(self._loop.stop)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    """A cluster of two nodes on which nothing runs."""
    found = Watched(FakeSlurm(tmp_path))
    yield found
    found.close()


def test_accounting_that_fails_is_said_and_what_runs_is_known(watched: Watched) -> None:
    """sacct ends with 1: the controller's jobs and nodes are booked, and accounting goes on where it stopped."""
    watched.slurm.account(job("1"))
    watched.ask()
    reached = watched.cursor["reached"]
    watched.slurm.break_down("sacct", text="sacct: error: slurm_persist_conn_open: Connection refused\n")
    watched.slurm.say("queue", queued("1") + queued("2"))
    assert watched.ask() == {"jobs": "ok", "nodes": "ok", "accounting": "failing"}
    assert watched.errors()["accounting"] == "sacct: slurm_persist_conn_open: Connection refused"
    assert watched.held() == [("1", None, "running"), ("2", None, "running")]
    assert watched.cursor["reached"] == reached
    watched.slurm.mend("sacct")
    ended = ago_s(1)
    watched.slurm.account(job("1", "COMPLETED", End=ended), job("2", "FAILED", End=ended))
    assert set(watched.ask().values()) == {"ok"}
    assert watched.held() == [("1", ended, "completed"), ("2", ended, "failed")]


def test_a_controller_that_is_slow_is_left_and_accounting_goes_on(watched: Watched) -> None:
    """scontrol does not answer in time: said; jobs are known by accounting, and no node ends."""
    watched.ask()
    assert len(watched.table("devices")) == 16
    watched.slurm.break_down("scontrol", "slow")
    watched.slurm.account(job("1"))
    watched.timeout_s = SHORT_TIMEOUT_S
    watched.start()
    wait_until(lambda: watched.ask() == {"jobs": "failing", "nodes": "failing", "accounting": "ok"}, watched.errors)
    assert watched.errors()["nodes"] == f"scontrol show node did not answer within {SHORT_TIMEOUT_S:g} seconds"
    assert watched.held() == [("1", None, "running")]
    assert not watched.table("outages")


def test_commands_that_are_not_there_are_said(watched: Watched) -> None:
    """No sacct: that there is no such command; whatever the shell or env says."""
    (watched.slurm.bin / "sacct").unlink()
    assert watched.ask()["accounting"] == "failing"
    assert str(watched.errors()["accounting"]).startswith("there is no command sacct: ")


def test_accounting_that_lags_ends_a_job_when_it_says_so(watched: Watched) -> None:
    """A job that no answer has any more is asked for by its number; its end counts as accounting knows it."""
    watched.slurm.account(job("1"))
    watched.slurm.say("queue", queued("1"))
    watched.ask()
    watched.slurm.account()
    watched.slurm.say("queue", "")
    ended = ago_s(500)
    watched.slurm.account(job("1", "COMPLETED", End=ended), to="jobs.by-id")
    watched.ask()
    assert watched.held() == [("1", ended, "completed")]
    asked = len(watched.slurm.asked)
    watched.ask()
    assert not [line for line in watched.slurm.asked[asked:] if "--jobs" in line]


def test_a_job_that_nobody_knows_any_more_was_held_until_it_was_seen(watched: Watched) -> None:
    """Its history was purged: not at once, and only where everybody answers, it ends when it was seen last, and that is a gap."""
    watched.slurm.account(job("1"))
    watched.ask()
    seen = time.time()
    watched.slurm.account()
    watched.slurm.break_down("scontrol", text="slurm_load_jobs error: Unable to contact slurm controller")
    watched.ask(times=5)
    watched.start()
    watched.ask()
    assert watched.held() == [("1", None, "running")]
    watched.slurm.mend("scontrol")
    watched.ask(times=2)
    assert watched.held() == [("1", None, "running")]
    watched.ask()
    ((number, ended, state),) = watched.held()
    assert (number, state) == ("1", "vanished")
    assert ended is not None
    assert abs(ended - seen) <= 60
    assert sum(gap.count for gap in watched.gaps) == 1


def test_an_empty_answer_is_a_failure(watched: Watched) -> None:
    """sacct that writes not even a heading said nothing of jobs."""
    watched.slurm.account(job("1"))
    watched.ask()
    watched.slurm.say("accounting", "")
    assert watched.ask()["accounting"] == "failing"
    assert watched.held() == [("1", None, "running")]


def test_a_line_that_cannot_be_read_costs_that_line(watched: Watched) -> None:
    """Others of the same answer count, and the source is degraded."""
    watched.slurm.account(job("1"), job("2", Start="someday"), job("3"))
    assert watched.ask()["accounting"] == "degraded"
    assert [number for number, *_ in watched.held()] == ["1", "3"]
    assert str(watched.errors()["accounting"]).startswith("1 lines are not understood")


def test_a_node_that_is_drained_is_out_of_use_until_it_is_back(watched: Watched) -> None:
    """Since when and why as the controller says; until it is seen in use again. A node that is taken away is no longer down."""
    since = ago_s(300)
    down = NODE.format(name="n1", gpus=8, state="IDLE+DRAIN", reason=f"Reason=bad fan [root@{since}]")
    watched.slurm.say("nodes", NODE.format(name="n0", gpus=8, state="MIXED", reason="") + down)
    watched.ask()
    (row,) = watched.table("outages")
    assert (row["node"], row["from_utc"], row["to_utc"], row["reason"]) == ("n1", since * 1000, None, "bad fan")
    watched.start()
    watched.slurm.say("nodes", NODE.format(name="n0", gpus=8, state="MIXED", reason=""))
    watched.ask()
    (row,) = watched.table("outages")
    assert row["to_utc"] is not None


def test_what_is_said_again_is_kept_once(watched: Watched) -> None:
    """Nothing new: a poll keeps only its cursor, and a restart makes no row again."""
    watched.slurm.account(job("1"), job("2", "COMPLETED", End=ago_s(60)))
    watched.slurm.say("queue", queued("1"))
    watched.ask()
    before, bodies = dict(watched.rows), watched.bodies
    watched.ask()
    assert watched.bodies == bodies + 2
    watched.start()
    watched.ask()
    assert watched.rows == before


def test_history_comes_in_chunks(tmp_path: Path) -> None:
    """The first time, days one by one; the next time, an hour again."""
    watched = Watched(FakeSlurm(tmp_path))
    watched._watch._reached_s = ago_s(86400 * 2.5)
    watched.ask()
    asked = [line for line in watched.slurm.asked if "--starttime" in line]
    assert len(asked) == 3
    watched.close()


def test_accounting_goes_on_after_a_clock_that_was_ahead(tmp_path: Path) -> None:
    """Of a time that is yet to come nothing is requested: the hour before now comes, and what follows."""
    watched = Watched(FakeSlurm(tmp_path))
    watched._watch._reached_s, watched._watch._is_new = ago_s(-3 * 3600), False
    watched.ask()
    assert watched._watch._reached_s == pytest.approx(ago_s(0), abs=5)
    watched.close()


@pytest.mark.parametrize(
    ("clusters", "why"),
    [
        ([{}, {}], "two clusters of Slurm have one name"),
        ([{"url": "http://slurm:6820", "bin": "/opt/slurm"}], "either url or command and bin"),
        ([{"url": "slurm:6820"}], "pattern"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(clusters: list[dict[str, str]], why: str) -> None:
    """In one line, before anything is asked."""
    with pytest.raises(ValidationError, match=why):
        Settings.model_validate({"slurm": clusters})


def put(decoder: LiveSlurmDecoder, kind: str, *sayings: JobReport, at_s: int = 10_000) -> list[dict[str, Any]]:
    """The allocations that follow from what is said."""
    decoder.feed([[1_800_000_000_000 + at_s * 1000, kind, list(sayings)]])
    return [
        row
        for item in decoder.drain()
        if isinstance(item, Rows) and item.table == "allocations"
        for row in item.data.to_pylist()
    ]


def say(number: str, state: str, started: int | None, ended: int | None = None, **fields: Any) -> JobReport:
    """A job as events have it; times in seconds since an instant."""
    at = {"submitted": 0, "eligible": 0, "started": started, "ended": ended}
    at |= {name: fields.pop(name) for name in ("submitted", "eligible") if name in fields}
    times = {name: 1_800_000_000_000 + s * 1000 for name, s in at.items() if s is not None}
    held = {"held": "gres/gpu=4", "nodes": "n0"} if started is not None else {}
    return {"job_id": number, "state": state, "user": "ann", "requested": "gres/gpu=4", **held, **times, **fields}


def test_an_earlier_run_found_later_changes_no_key() -> None:
    """Accounting tells of the run before a requeue after the run after it was told: that one keeps its number."""
    decoder = LiveSlurmDecoder("")
    (told,) = put(decoder, ACCOUNTING, say("1", "running", 100, submitted=90))
    decoder = LiveSlurmDecoder("", decoder.state())
    later = put(decoder, ACCOUNTING, say("1", "requeued", 10, 90))
    assert [row["from_utc"] for row in later] == [1_800_000_010_000]
    (ended,) = put(decoder, ACCOUNTING, say("1", "completed", 100, 200, submitted=90))
    assert ended["attempt"] == told["attempt"]
    assert ended["to_utc"] == 1_800_000_200_000


def test_the_controller_knows_an_end_sooner_and_accounting_corrects_it() -> None:
    """Neither an old saying of accounting opens a run again, nor does its delay hide the end."""
    decoder = LiveSlurmDecoder("")
    put(decoder, ACCOUNTING, say("1", "running", 100))
    (row,) = put(decoder, QUEUE, say("1", "completed", 100, 200))
    assert row["to_utc"] == 1_800_000_200_000
    assert put(decoder, ACCOUNTING, say("1", "running", 100)) == []
    (row,) = put(decoder, ACCOUNTING, say("1", "requeued", 100, 230))
    assert (row["to_utc"], row["end_state"]) == (1_800_000_230_000, "requeued")


def test_numbers_of_gpus_outlast_the_job_that_only_the_controller_numbers() -> None:
    """The controller forgets them with the job, and accounting never knows them; a run after a requeue has its own."""
    decoder = LiveSlurmDecoder("")
    of_run = {"placed": "n0=4.0", "indices": "n0=0 1 2 3"}
    (row,) = put(decoder, QUEUE, say("1", "running", 100, **of_run))
    assert row["gpu_indices"] == "0,1,2,3"
    decoder = LiveSlurmDecoder("", decoder.state())
    (row,) = put(decoder, ACCOUNTING, say("1", "requeued", 100, 200))
    assert (row["gpu_indices"], row["to_utc"]) == ("0,1,2,3", 1_800_000_200_000)
    (row,) = put(decoder, QUEUE, say("1", "running", 300, submitted=250, placed="n0=4.0", indices="n0=4 5 6 7"))
    assert row["gpu_indices"] == "4,5,6,7"


def test_nodes_are_listed_anew_once_jobs_of_several_users_are_known() -> None:
    """Then nobody holds what none of them does; a user who sees no jobs of others cannot know it."""
    decoder = LiveSlurmDecoder("")

    def poll(*events: Any) -> list[Any]:
        decoder.feed([[1_800_000_000_000, kind, reported] for kind, reported in events])
        rows = [item for item in decoder.drain() if isinstance(item, Rows) and item.table == "devices"]
        return [(row["device_id"], row["known_from"]) for item in rows for row in item.data.to_pylist()]

    node = list_node_values(NodeRecord("n1", "gpu:2", frozenset({"idle"}), None, None))
    assert poll((NODES, [node]), (QUEUE, [say("1", "running", 100)])) == [("n1:gpu0", None), ("n1:gpu1", None)]
    assert poll((QUEUE, [say("2", "running", 100) | {"user": "bob"}])) == [
        ("n1:gpu0", "scheduled"),
        ("n1:gpu1", "scheduled"),
    ]
    decoder = LiveSlurmDecoder("", decoder.state())
    assert poll((NODES, [[*node[:1], "gpu:3", *node[2:]]])) == [(f"n1:gpu{n}", "scheduled") for n in range(3)]


def test_a_task_that_accounting_knows_by_its_number_only_is_the_task() -> None:
    """Slurm stores the end of a task before its start, as a job of its own, when messages come out of order."""
    decoder = LiveSlurmDecoder("")
    put(decoder, QUEUE, say("2_1", "running", 100, job_number="9"))
    (row,) = put(decoder, ACCOUNTING, say("9", "completed", 100, 200))
    assert (row["job_id"], row["to_utc"]) == ("2_1", 1_800_000_200_000)


def test_a_job_waited_for_the_reason_that_lasted_longest() -> None:
    """Of the reasons that were seen while it waited."""
    decoder = LiveSlurmDecoder("")
    for at_s, reason in ((10, "Priority"), (20, "Resources"), (90, "Priority")):
        put(decoder, QUEUE, say("1", "pending", None, reason=reason), at_s=at_s)
    decoder.feed([[1_800_000_100_000, QUEUE, [say("1", "running", 100)]]])
    reasons = {
        row["reason"]
        for item in decoder.drain()
        if isinstance(item, Rows) and item.table == "queue_events"
        for row in item.data.to_pylist()
    }
    assert reasons == {"Resources"}


def test_commands_are_bounded_and_leave_nothing_behind(tmp_path: Path) -> None:
    """In bytes and in time; what a command started ends with it."""
    with pytest.raises(TooMuchOutputError, match="wrote over 1,000 bytes"):
        run_command(["yes"], "yes", LONGEST_S, 1000)
    mark = tmp_path / "pid"
    for within_s in (0.5, 5.0, 60.0):  # a slow machine takes its time to begin
        with pytest.raises(CommandError, match=f"did not answer within {within_s:g} seconds"):
            run_command(["sh", "-c", f"sleep 3600 & echo $! > {mark}; wait"], "sh", within_s, 1000)
        if mark.exists() and mark.read_text():
            break
    show = ["ps", "-o", "stat=", "-p", mark.read_text().strip()]
    wait_until(lambda: subprocess.run(show, capture_output=True, check=False).stdout.strip()[:1] in (b"", b"Z"))
    with pytest.raises(CommandError, match=r"no-such-thing cannot be run: No such file"):
        run_command(["no-such-thing"], "x", LONGEST_S, 10)
