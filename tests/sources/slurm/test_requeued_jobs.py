"""A job that is requeued, as Slurm 22.05 reports it second by second: each run is booked once, whenever somebody looked."""

from datetime import UTC
from functools import cache
from itertools import combinations
from typing import Any

import pytest
from tests.live.fake_slurm import job, queued

from loadfactor.collect.slurm_commands import FIELDS
from loadfactor.sources.base import Input, Rows
from loadfactor.sources.slurm.gpus import Notes
from loadfactor.sources.slurm.live_decoder import ACCOUNTING, QUEUE, JobReport, LiveSlurmDecoder, list_job_reports
from loadfactor.sources.slurm.rest_json import decode_rest_jobs
from loadfactor.sources.slurm.sacct import SacctText
from loadfactor.sources.slurm.scontrol import decode_scontrol_jobs
from loadfactor.sources.slurm.squeue import decode_squeue

NEVER = "Unknown"
BASE_S = 1_800_000_000
SUBMITTED, STARTED, REQUEUED, CLEAN, AGAIN, ENDED, FORGOTTEN = (BASE_S + s for s in (0, 10, 100, 104, 130, 200, 600))
"""What happens to the job: it is requeued, its node is cleaned up, it runs again; the controller forgets it."""
LIMIT_S = 600
POLLS = [BASE_S + s for s in (5, 50, 101, 103, 110, 150, 202, 300)]
"""Polls may fall while it waits, runs, is cleaned up after the requeue (two), waits, runs, is cleaned up, and is over."""
TRUTH = [(STARTED, REQUEUED, "requeued"), (AGAIN, ENDED, "completed")]
AWAY_S = 10**6
"""Accounting that lags so far knows nothing of it."""


def answer_queue(at_s: int, limit_s: int | None) -> dict[str, Any]:
    """What scontrol writes of it."""

    def expect(start_s: int) -> dict[str, Any]:
        return {"StartTime": start_s, "EndTime": start_s + limit_s if limit_s else NEVER, "RunTime": "00:00:00"}

    nowhere = {"NodeList": "", "StartTime": NEVER, "EndTime": NEVER, "RunTime": "00:00:00"}
    first = {"SubmitTime": SUBMITTED, "EligibleTime": SUBMITTED}
    second = {"SubmitTime": CLEAN, "EligibleTime": AGAIN, "Restarts": 1}
    if at_s < STARTED:
        return {"JobState": "PENDING", **first, **nowhere}
    if at_s < REQUEUED:
        return {"JobState": "RUNNING", **first, **expect(STARTED), "RunTime": f"00:00:{at_s - STARTED}"}
    if at_s < CLEAN:
        return {"JobState": "COMPLETING", **first, "Restarts": 1, **expect(at_s)}
    if at_s < AGAIN:
        return {"JobState": "PENDING", "Reason": "BeginTime", **second, **expect(AGAIN), "NodeList": ""}
    if at_s < ENDED:
        return {"JobState": "RUNNING", **second, **expect(AGAIN), "RunTime": f"00:00:{at_s - AGAIN}"}
    over = {"StartTime": AGAIN, "EndTime": ENDED, "RunTime": "00:01:10"}
    return {"JobState": "COMPLETING" if at_s < ENDED + 5 else "COMPLETED", **second, **over}


def answer_accounting(at_s: int) -> list[dict[str, Any]]:
    """What sacct --duplicates writes of it."""
    found = []
    if at_s >= SUBMITTED:
        state = "PENDING" if at_s < STARTED else "RUNNING" if at_s < REQUEUED else "REQUEUED"
        ended: dict[str, Any] = {"End": REQUEUED if at_s >= REQUEUED else NEVER}
        held: dict[str, Any] = (
            {"Start": STARTED} if at_s >= STARTED else {"Start": NEVER, "AllocTRES": "", "NodeList": ""}
        )
        found.append(job("8", state, Submit=SUBMITTED, Eligible=SUBMITTED, **ended, **held))
    if at_s >= AGAIN:
        state, end = ("COMPLETED", ENDED) if at_s >= ENDED else ("RUNNING", NEVER)
        found.append(job("8", state, Submit=CLEAN, Eligible=AGAIN, Start=AGAIN, End=end))
    return found


@cache
def read_queue(at_s: int, limit_s: int | None) -> list[JobReport]:
    """The controller's answer, decoded."""
    text = queued("8", **answer_queue(at_s, limit_s)).encode()
    return list_job_reports(decode_scontrol_jobs(Input("scontrol", [text]), UTC, Notes()))


@cache
def read_accounting(at_s: int) -> list[JobReport]:
    """Accounting's answer, decoded."""
    lines = [FIELDS, *([row.get(name, "") for name in FIELDS] for row in answer_accounting(at_s))]
    data = "".join("\x1f".join(map(str, line)) + "\n" for line in lines).encode()
    return [r for jobs in SacctText(Input("sacct", [data]), UTC).decode(Notes()) for r in list_job_reports(jobs)]


class Follower:
    """What the books hold of a cluster whose answers are fed; an answer that repeats itself comes once."""

    def __init__(self, limit_s: int | None = None) -> None:
        self.rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        self._decoder = LiveSlurmDecoder("")
        self._limit_s = limit_s
        self._fed: list[Any] = []

    def poll(self, at_s: int, accounted_s: int) -> None:
        """Take what both report at an instant; accounting knows what was before another one."""
        if at_s < FORGOTTEN:
            self._feed(at_s, QUEUE, read_queue(at_s, self._limit_s))
        self._feed(at_s, ACCOUNTING, read_accounting(accounted_s))
        for item in self._decoder.drain():
            if isinstance(item, Rows) and item.table == "allocations":
                self.rows |= {(r["job_id"], r["attempt"], r["from_utc"]): r for r in item.data.to_pylist()}

    def _feed(self, at_s: int, kind: str, reports: list[JobReport]) -> None:
        new = [report for report in reports if (kind, report) not in self._fed]
        self._fed += [(kind, report) for report in new]
        self._decoder.feed([[at_s * 1000 + 400, kind, new]])

    def runs(self) -> list[tuple[int, int | None, str]]:
        """Start, end (s) and state of each row."""
        assert {row["job_id"] for row in self.rows.values()} <= {"8"}
        found = (
            (r["from_utc"] // 1000, r["to_utc"] and r["to_utc"] // 1000, r["end_state"]) for r in self.rows.values()
        )
        return sorted(found)


def list_open(at_s: int) -> set[int]:
    """Starts of the runs that go on at an instant."""
    return {start for start, end, _ in TRUTH if start <= at_s < end}


@pytest.mark.long
@pytest.mark.parametrize("limit_s", [None, LIMIT_S])
@pytest.mark.parametrize("lag_s", [0, 6, AWAY_S])
def test_each_run_of_a_requeued_job_is_booked_once(lag_s: int, limit_s: int | None) -> None:
    """Whichever polls there were, and however late accounting was: in the end its runs are there, and no other rows.

    Meanwhile no row begins when no run did, and open is what goes on, or goes on as far as accounting knows.
    """
    for polls in (chosen for count in range(4) for chosen in combinations(POLLS, count)):
        follower = Follower(limit_s)
        for at_s in polls:
            follower.poll(at_s, at_s - lag_s)
            assert {start for start, *_ in follower.runs()} <= {STARTED, AGAIN}, polls
            open_ = {start for start, end, _ in follower.runs() if end is None or end > at_s}
            assert list_open(at_s) <= open_ <= list_open(at_s) | list_open(at_s - lag_s), polls
        follower.poll(FORGOTTEN, FORGOTTEN)
        assert follower.runs() == TRUTH, polls


def test_all_answers_of_the_controller_say_that_a_requeued_job_waits() -> None:
    """While its nodes are cleaned up; a job whose nodes are cleaned up after its end has ended."""
    for at_s, state in ((REQUEUED + 2, "pending"), (ENDED + 2, "completing")):
        for limit_s in (None, LIMIT_S):
            fields = answer_queue(at_s, limit_s)
            end = fields["EndTime"]
            table = (
                "JOBID|STATE|START_TIME|END_TIME|TIME|NODES|NODELIST|TRES_ALLOC\n"
                f"8|COMPLETING|{fields['StartTime']}|{end}|{fields['RunTime'].removeprefix('00:')}|1|n0|gres/gpu=4\n"
            )
            of_rest = {
                "job_id": 8,
                "job_state": "COMPLETING",
                "start_time": fields["StartTime"],
                "end_time": 0 if end == NEVER else end,
                "restart_cnt": 1,
                "nodes": "n0",
                "tres_alloc_str": "gres/gpu=4",
            }
            found = [
                *read_queue(at_s, limit_s),
                *decode_squeue(Input("squeue", [table.encode()]), UTC, Notes()).to_pylist(),
                *decode_rest_jobs({"jobs": [of_rest]}, "slurmrestd", at_s * 1000).to_pylist(),
            ]
            times = (None, None) if state == "pending" else (AGAIN * 1000, ENDED * 1000)
            assert [(r["state"], r.get("started"), r.get("ended")) for r in found] == [(state, *times)] * 3
