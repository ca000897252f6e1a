"""scontrol's text and the JSON of squeue, sacct, sinfo and slurmrestd beside text of sacct; and damaged files of each.

Real answers of slurmrestd are of influxdata/telegraf.
"""

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.sources.reading import read
from tests.sources.slurm.sacct_files import DAY, FIELDS, Books, job, tres, write_sacct

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import ReadOptions
from loadfactor.sources.slurm import SOURCE
from loadfactor.sources.slurm.decoder import decode_slurm
from loadfactor.sources.slurm.gpus import list_indices

AT = int(datetime(2026, 10, 1, 9, tzinfo=UTC).timestamp())
JOB = """JobId=104 JobName=a b=c StartTime=never
   UserId=ann(1001) GroupId=ann(1001) MCS_label=N/A
   Priority=1 Nice=0 Account=vision QOS=normal WCKey=*
   JobState={state} Reason={reason} Dependency=(null)
   Requeue=1 Restarts={restarts} BatchFlag=1 Reboot=0 ExitCode=0:0
   SubmitTime=2026-10-01T08:00:00 EligibleTime=2026-10-01T08:00:00
   StartTime={start} EndTime=2026-10-02T09:00:00 Deadline=N/A
   Partition=gpu AllocNode:Sid=login:1
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList={nodes}
   NumNodes=2 NumCPUs=16 NumTasks=2 CPUs/Task=8
   ReqTRES=cpu=16,node=2,billing=16,gres/gpu=4
   AllocTRES={held}
   JOB_GRES=gpu:h100:4
     Nodes=n1 CPU_IDs=0-7 Mem=0 GRES=gpu:h100:3(IDX:0-2)
     Nodes=n2 CPU_IDs=0-7 Mem=0 GRES=gpu:h100:1(IDX:5)
   Comment=exp-7

"""
RUNNING = JOB.format(
    state="RUNNING", reason="None", restarts=1, start=f"{DAY}09:00:00", nodes="n[1-2]", held="cpu=16,gres/gpu:h100=4"
)
PENDING = JOB.format(
    state="PENDING", reason="JobHeldUser", restarts=0, start="2026-10-05T09:00:00", nodes="(null)", held="(null)"
)
NODE = """NodeName=n1 Arch=x86_64 CoresPerSocket=8
   Gres=gpu:h100:8(S:0-1),shard:h100:32(S:0-1)
   GresUsed=gpu:h100:3(IDX:0-2)
   State={state} ThreadsPerCore=1 Partitions=gpu
   CfgTRES=cpu=16,gres/gpu=8
   Reason=bad GPU 3 [root@2026-10-01T10:00:00]
"""


def test_a_running_job_is_where_its_gpus_are(tmp_path):
    """scontrol show job -d counts GPUs by node; the end of a running job is only expected."""
    books = Books(RUNNING, folder=tmp_path)
    assert books.held("104") == [("n1", 3.0), ("n2", 1.0)]
    (row, _) = books.allocations
    assert (row["to_utc"], row["known_from"], row["attempt"], row["end_state"]) == (None, None, 1, "running")
    untyped = Books(RUNNING.replace("gres/gpu:h100=4", "gres/gpu=4"), folder=tmp_path).allocations
    assert {r["accelerator"] for r in (row, *untyped)} == {"h100-sxm"}  # GRES names it where TRES do not
    assert json.loads(row["tags"])["job_name"] == "a b=c StartTime=never"


def test_what_still_ran_is_held_until_slurm_was_asked(tmp_path):
    """scontrol says how long a job ran, accounting as JSON too, slurmctld when its answer is of; --at counts before the last."""
    told = RUNNING.replace("Requeue=1", "RunTime=1-01:00:00 Requeue=1")
    held_back = RUNNING.replace("JobId=104", "JobId=105").replace("Requeue=1", "RunTime=00:30:00 Requeue=1")
    assert Books(told + held_back, folder=tmp_path).hours() == {"104": 100.0, "105": 100.0}
    job = {"job_id": 7, "nodes": "n1", "tres_alloc_str": "gres/gpu=2", "job_state": "RUNNING", "start_time": AT}
    answer = {"jobs": [{**job, "end_time": AT + 86400}], "last_update": {"set": True, "number": AT + 7200}}
    books = Books(json.dumps(answer), folder=tmp_path, timezone=None)
    assert books.hours() == {"7": 4.0}
    assert Books(json.dumps(answer), folder=tmp_path, at_ms=(AT + 10800) * 1000).hours() == {"7": 6.0}
    kept = {"start": AT, "elapsed": 3600, "suspended": 3600, "end": 0}
    gpus = {"allocated": [{"type": "gres", "name": "gpu", "count": 2}]}
    accounted = {"job_id": 9, "state": {"current": "RUNNING"}, "time": kept, "tres": gpus, "nodes": "n1"}
    assert Books(json.dumps({"jobs": [accounted]}), folder=tmp_path).hours() == {"9": 4.0}


def test_lines_of_keys_and_values(tmp_path):
    """sacct's names in lines of keys and values, apart by blanks or bars, and Slurm's log of completed jobs."""
    told = f"JobID=7 State=COMPLETED JobName=a b User=ann Submit={DAY}08:00:00 Start={DAY}09:00:00 End={DAY}11:00:00"
    told += " AllocTRES=cpu=8,gres/gpu:h100=2,gres/gpu=2 NodeList=n1\n"
    for mark in (" ", "|", ";"):
        lines = [told.replace("=7 ", "=7.batch ", 1), told]
        text = "\n".join(line.replace(" b", "_b").replace(" ", mark) for line in lines)
        books = Books(text, folder=tmp_path)
        assert (books.hours(), books.allocations[0]["user"]) == ({"7": 4.0}, "ann")
    log = "JobId=9 UserId=ann(1001) GroupId=ann(1001) Name=wrap JobState=COMPLETED Partition=gpu TimeLimit=60"
    log += f" StartTime={DAY}09:00:00 EndTime={DAY}10:00:00 NodeList=n1 ProcCnt=8 WorkDir=/ Tres=cpu=8,gres/gpu=3 Account=vision"
    assert Books(log, folder=tmp_path).hours("team") == {"vision": 3.0}


def test_answers_of_slurm_web(tmp_path):
    """Its gateway lists jobs and nodes without a name around them, and leaves times out of the list; one job alone has them."""
    of_list = {
        "job_id": 8,
        "job_state": ["RUNNING"],
        "nodes": "n1",
        "tres_alloc_str": "gres/gpu=2",
        "account": "vision",
    }
    nodes = [{"name": "n1", "state": ["MIXED"], "partitions": ["gpu"], "gres": "gpu:h100:2"}]
    kept = {"start": AT, "elapsed": 3600, "suspended": 0, "end": 0, "submission": AT}
    gpus = {"allocated": [{"type": "gres", "name": "gpu", "count": 2}]}
    one = {
        "steps": [{"step": {"id": {"job_id": 101}}}],
        "state": {"current": "RUNNING"},
        "time": kept,
        "tres": gpus,
        "nodes": "n1",
    }
    books = Books(*(json.dumps(text).encode("utf-16") for text in ([of_list], nodes, one)), folder=tmp_path)
    assert (books.hours(), len(books.devices)) == ({"101": 2.0}, 2)
    assert any("Slurm-web's lists leave times out" in what for what in books.gaps)
    pods = json.dumps({"kind": "PodList", "apiVersion": "v1", "items": []})
    with pytest.raises(
        SourceError, match=r"no JSON of Slurm \(objects of Kubernetes: `loadfactor import kubernetes`\); save `squeue"
    ):
        Books(pods, folder=tmp_path)


def test_jobs_with_only_mps(tmp_path):
    """100 percentages a GPU on a node of 2: 50 are half a GPU; without a node list nobody says it."""
    mps = job("1", AllocTRES="cpu=1,gres/mps=50", ReqTRES="cpu=1,gres/mps=50")
    node = "NodeName=n1 Gres=gpu:h100:2,mps:200 State=MIXED Partitions=gpu"
    assert Books(write_sacct([mps]), node, folder=tmp_path).hours() == {"1": 0.5}
    books = Books(write_sacct([mps]), folder=tmp_path)
    assert [n for what, n in books.gaps.items() if "shards or MPS percentages" in what] == [1]


def test_the_gpus_of_a_node_are_kept_as_slurm_numbers_them(tmp_path):
    """Numbers of each node, written out; a text that does not name every GPU says nothing of which they are."""
    numbers = [row["gpu_indices"] for row in Books(RUNNING, folder=tmp_path).allocations]
    assert numbers == ["0,1,2", "5"]
    less = RUNNING.replace("IDX:0-2", "IDX:0-1").replace("(IDX:5)", "")
    assert [row["gpu_indices"] for row in Books(less, folder=tmp_path).allocations] == [None, None]
    assert Books(less, folder=tmp_path).held("104") == [("n1", 3.0), ("n2", 1.0)]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("gpu:3(IDX:0-2)", (0, 1, 2)),
        ("gpu(IDX:7)", (7,)),
        ("gres/gpu:h100:2(IDX:0,5)", (0, 5)),
        ("gpu:a100:2(IDX:0-1),gpu:v100:1(IDX:4)", (0, 1, 4)),
        ("shard:4(1/4,3/4),gpu:1(IDX:2)", (2,)),
        ("gpu:a100:2(IDX:0-1),gpu:v100:1(IDX:1)", ()),
        ("gpu:a100:2(IDX:0-1),gpu:v100:1", ()),
        ("gpu:1g.10gb:1(IDX:3)", ()),
        ("mps:50(IDX:0)", ()),
        ("gpu:0(IDX:N/A)", ()),
        ("gpu:2(IDX:5-4)", ()),
        ("gpu:1000(IDX:1-1000)", ()),
        (None, ()),
    ],
)
def test_numbers_of_gpus(text, numbers):
    """Whole GPUs that are all named count; parts of GPUs, shards and damage name none."""
    assert list_indices(text) == numbers


def test_one_line_a_job(tmp_path):
    """-o writes the same in one line a record."""
    line = " ".join(RUNNING.split()) + "\n"
    assert Books(line + line.replace("104", "105"), folder=tmp_path).held("105") == [("n1", 3.0), ("n2", 1.0)]


def test_a_held_job_waits_and_is_not_eligible(tmp_path):
    """The start of a pending job is only expected, and a job that somebody holds back may not start."""
    books = Books(PENDING, folder=tmp_path)
    assert not books.allocations
    assert sorted(books.happened("104")) == ["held", "submitted"]
    assert {e["reason"] for e in books.events} == {"JobHeldUser"}


def test_a_job_that_was_cancelled_while_it_waited_held_nothing(tmp_path):
    """22.05 says of it when it was cancelled as its start, and what it asked for as what it has: it was on no node."""
    text = JOB.format(
        state="CANCELLED", reason="None", restarts=0, start="2026-10-02T09:00:00", nodes="(null)", held="(null)"
    )
    books = Books(
        text.replace("  AllocTRES=(null)", "  TRES=cpu=16,gres/gpu=4").partition("   JOB_GRES")[0], folder=tmp_path
    )
    assert not books.allocations
    assert books.happened("104")[-1] == "cancelled"
    queued = {"submit_time": AT, "eligible_time": AT, "start_time": AT + 60, "end_time": AT + 60, "nodes": ""}
    queued |= {"job_id": 5, "job_state": "CANCELLED", "tres_per_node": "gres:gpu:8", "tres_req_str": "cpu=1,gres/gpu=8"}
    assert not Books(json.dumps({"jobs": [queued]}), folder=tmp_path).allocations


def test_sacct_and_scontrol_tell_of_one_run(tmp_path):
    """sacct knows the end, scontrol which node had how many: together they are one run."""
    ended = job("104", gpus=4, NodeList="n[1-2]", end="11:00:00")
    for texts in ((write_sacct([ended]), RUNNING), (RUNNING, write_sacct([ended]))):
        books = Books(*texts, folder=tmp_path)
        assert books.hours("node") == {"n1": 6.0, "n2": 2.0}
        assert [row["gpu_indices"] for row in books.allocations] == ["0,1,2", "5"]
        assert len(books.allocations) == 2


def test_nodes_list_their_gpus_and_say_since_when_they_are_drained(tmp_path):
    """GPUs are called by node and number; a drained node is out of use since its reason's time, until the output was taken."""
    taken = (AT + 7200) * 1000
    books = Books(NODE.format(state="IDLE+DRAIN"), folder=tmp_path, at_ms=taken)
    assert [d["device_id"] for d in books.devices] == [f"n1:gpu{number}" for number in range(8)]
    assert {(d["node"], d["pool"]) for d in books.devices} == {("n1", "gpu")}
    (outage,) = books.outages
    assert (outage["node"], outage["reason"]) == ("n1", "bad GPU 3")
    assert (outage["from_utc"], outage["to_utc"]) == ((AT + 3600) * 1000, taken)
    assert not Books(NODE.format(state="MIXED"), folder=tmp_path).outages


def test_shards_are_shares_of_a_gpu_where_a_node_list_says_so(tmp_path):
    """32 shards on 8 GPUs: two shards are half a GPU."""
    shards = dict.fromkeys(("AllocTRES", "ReqTRES"), "cpu=1,gres/shard=2")
    books = Books(write_sacct([job("1", **shards)]), NODE.format(state="MIXED"), folder=tmp_path)
    assert books.hours() == {"1": 0.5}


def number(value: int, wrapped: bool) -> Any:
    return {"set": True, "infinite": False, "number": value} if wrapped else value


@pytest.mark.parametrize("wrapped", [False, True])
def test_squeue_json_of_several_versions(tmp_path, wrapped):
    """Numbers are plain in v0.0.38 and wrapped later; a state is a text or a list."""
    queued = {"array_job_id": number(102, wrapped), "array_task_id": number(1, wrapped)}
    queued |= {"submit_time": number(AT - 60, wrapped), "eligible_time": number(AT - 60, wrapped)}
    queued |= {"start_time": number(AT, wrapped), "end_time": number(AT + 86400, wrapped), "nodes": "n[1-2]"}
    queued |= {"job_id": 103, "user_name": "bob", "account": "nlp", "partition": "gpu", "restart_cnt": 0}
    queued |= {"job_state": ["RUNNING"] if wrapped else "RUNNING", "tres_alloc_str": "cpu=4,gres/gpu=4"}
    queued["gres_detail"] = ["gpu:h100:3(IDX:0-2)", "gpu:h100:1(IDX:0)"]
    waiting = {**queued, "array_task_id": None, "array_task_string": "2-3%1", "job_state": "PENDING", "nodes": ""}
    waiting |= {"job_id": 102, "tres_alloc_str": "", "gres_detail": [], "tres_req_str": "gres/gpu=4"}
    waiting["state_reason"] = "Priority"
    books = Books(json.dumps({"jobs": [queued, waiting, {}, 7]}), folder=tmp_path, timezone=None)
    assert books.held("102_1") == [("n1", 3.0), ("n2", 1.0)]
    assert [r["gpu_indices"] for r in books.allocations] == ["0,1,2", "0"]
    assert {r["to_utc"] for r in books.allocations} == {None}
    assert {e["job_id"] for e in books.events} == {"102_2", "102_3"}
    assert {e["reason"] for e in books.events} == {"Priority"}


def test_sacct_json(tmp_path):
    """slurmdbd lists TRES one by one and keeps times together."""
    done = {
        "job_id": 11,
        "array": {"job_id": 0, "task_id": {"set": False, "number": 0}, "task": ""},
        "association": {"account": "nlp", "cluster": "c", "user": "bob"},
        "state": {"current": ["COMPLETED"], "reason": "None"},
        "time": {"submission": AT - 60, "eligible": AT - 60, "start": AT, "end": AT + 7200},
        "nodes": "n1",
        "tres": {
            "allocated": [{"type": "gres", "name": "gpu", "count": 2}, {"type": "gres", "name": "gpu:h100", "count": 2}]
        },
    }
    books = Books(json.dumps({"jobs": [done]}), folder=tmp_path, timezone=None)
    assert books.hours("team") == {"nlp": 4.0}


def test_nodes_in_json(tmp_path):
    """slurmrestd lists nodes with states and flags, sinfo those alike together."""
    rest = {
        "nodes": [{"name": "n1", "gres": "gpu:2", "state": "idle", "state_flags": ["DRAIN"], "reason_changed_at": AT}]
    }
    sinfo = {
        "sinfo": [{"nodes": {"nodes": ["n2", "n3"]}, "gres": {"total": "gpu:h100:1"}, "node": {"state": ["DOWN"]}}],
        "last_update": {"set": True, "infinite": False, "number": AT},
    }
    books = Books(json.dumps(rest), json.dumps(sinfo), folder=tmp_path, timezone=None)
    assert sorted(d["device_id"] for d in books.devices) == ["n1:gpu0", "n1:gpu1", "n2:gpu0", "n3:gpu0"]
    assert sorted((o["node"], o["reason"]) for o in books.outages) == [("n1", "drain"), ("n2", "down"), ("n3", "down")]


def test_real_answers_of_slurmrestd(shared: Path):
    """Answers of a cluster without GPUs: its jobs are counted, and so are its nodes."""
    folder = shared / "data" / "metrics" / "slurm_rest"
    reading = read(
        SOURCE, *(folder / f"{name}.json" for name in ("jobs", "nodes", "partitions", "reservations", "diag"))
    )
    jobs, nodes = (json.loads((folder / f"{name}.json").read_text()) for name in ("jobs", "nodes"))
    counts = {gap.what: gap.count for gap in reading.gaps}
    assert not reading.tables
    assert counts["jobs without GPUs: not booked"] == len(jobs["jobs"])
    assert counts["nodes without GPUs: not listed"] == len(nodes["nodes"])


@pytest.mark.parametrize("text", ["{", '{"a": 1}', "[1, 2]", '{"jobs": [}', "JobId=1 NodeList=n[1- StartTime=Unknown"])
def test_what_is_damaged_is_refused(tmp_path, text):
    """One line names the file."""
    with pytest.raises(SourceError, match=r"slurm-0\.txt") as error:
        Books(text, folder=tmp_path)
    assert "\n" not in str(error.value)


def test_the_decoder_takes_bytes():
    """Live collection hands over what a command wrote."""
    from loadfactor.sources.base import Input

    items = list(decode_slurm([Input("scontrol on login-1", [RUNNING.encode()])], ReadOptions(timezone=UTC)))
    assert [item.table for item in items if hasattr(item, "table")] == ["allocations"]


SETTINGS = settings(
    max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)
SACCT = write_sacct(
    [
        job("101", gpus=4),
        job("102_[3-5%2]", State="PENDING", Start="Unknown", End="Unknown"),
        job("104", NodeList="n[1-2]"),
        job("104", "12:00:00", "13:00:00", Submit="2026-10-01T11:00:00", JobName="a|b"),
        job("7", AllocTRES="gres/shard=2"),
    ],
    (*FIELDS, "JobName"),
)
JSON = '{"jobs": [{"job_id": 5, "job_state": "RUNNING", "nodes": "n1", "tres_alloc_str": "gres/gpu=2", "start_time": 1790845200}]}'
ODD = (
    *("", "|", "\n", "[", "]", "-", "9" * 30, "n[1-99999999]"),
    *("gres/gpu=1e9", "None", "é", "\x1f", '"', "=", "1970-01-01T00:00:00"),
)


def damage(text: str, rnd: random.Random) -> bytes:
    """The text cut off, with bits flipped, or with odd pieces put in."""
    data = bytearray(text.encode())
    for _ in range(rnd.choice((1, 1, 2, 5))):
        at = rnd.randrange(len(data) or 1)
        kind = rnd.randrange(4)
        if kind == 0:
            data = data[:at]
        elif kind == 1 and data:
            data[at] ^= 1 << rnd.randrange(8)
        elif kind == 2:
            data[at:at] = rnd.choice(ODD).encode()
        else:
            del data[at : at + rnd.randrange(40)]
    return bytes(data)


STILL = [job(str(n), State="RUNNING", End="Unknown", gpus=n, ElapsedRaw="7200", JobName=f"j{n}") for n in range(1, 6)]
HEADING, *LINES = write_sacct(STILL, (*FIELDS, "ElapsedRaw", "JobName")).splitlines()
KEYS = [
    f"JobID={n}|State=RUNNING|User=ann|Start={DAY}09:00:00|End=Unknown|ElapsedRaw=7200|AllocTRES=gres/gpu={n}|NodeList=n1"
    for n in range(1, 6)
]
WEB = [{"job_id": 8, "job_state": ["RUNNING"], "nodes": "n1", "tres_alloc_str": "gres/gpu=2", "start_time": AT}]


@pytest.mark.parametrize("is_sacct", [True, False])
@pytest.mark.parametrize("name", ["bom", "crlf", "doubled", "shuffled", "utf-16", "cut", "hostile"])
def test_a_mutant_has_the_same_hours(tmp_path, is_sacct, name):
    """2 h of 1 to 5 GPUs each, however the lines come; a line that breaks off is left out and said; names may hold anything."""
    lines, heading = list(LINES if is_sacct else KEYS), HEADING.splitlines() if is_sacct else []
    if name == "doubled":
        lines += lines
    if name == "shuffled":
        random.Random(3).shuffle(lines)
    if name == "hostile":
        lines = [f"{line}\u202e<script>;'\"{{}}☃" if is_sacct else f"{line}|Comment=<script>☃" for line in lines]
    text = "\n".join(heading + lines) + "\n"
    if name == "cut":
        text = text[:-60]
    text = text.replace("\n", "\r\n") if name == "crlf" else text
    encoding = {"bom": "utf-8-sig", "utf-16": "utf-16"}.get(name, "utf-8")
    books = Books(text.encode(encoding), folder=tmp_path)
    assert books.hours() == {str(n): 2.0 * n for n in range(1, 5 if name == "cut" else 6)}
    assert name != "cut" or any("left out" in what or "not booked" in what for what in books.gaps)


RUNS_ON = "\n".join([HEADING, *LINES]).replace("|", "☃")
OUTPUT = {
    "running": RUNS_ON,
    "keys": "\n".join(KEYS),
    "web": json.dumps(WEB),
    "sacct": SACCT,
    "job": RUNNING + PENDING,
    "node": NODE.format(state="IDLE*+DRAIN"),
    "json": JSON,
}


@pytest.mark.long
@pytest.mark.parametrize("kind", OUTPUT)
def test_damaged_output_is_read_or_refused_in_one_line(kind):
    """No traceback, and nothing enters that may not."""

    @SETTINGS
    @given(st.randoms(use_true_random=False))
    def run(rnd: random.Random) -> None:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "slurm.txt"
            path.write_bytes(damage(OUTPUT[kind], rnd))
            try:
                read(SOURCE, path, options=ReadOptions(timezone=UTC))
                said = f"{path}"
            except SourceError as error:
                said = str(error)
            assert str(path) in said
            assert "\n" not in said

    run()


@pytest.mark.long
@SETTINGS
@given(st.randoms(use_true_random=False))
def test_gpu_hours_equal_a_slow_sum(rnd: random.Random):
    """GPU-hours by user of random jobs with steps, requeues and nodes are what a loop adds up, in any order of the rows."""
    rows, expected = [], dict[str, float]()
    for number in range(rnd.randrange(1, 12)):
        user, at = (
            rnd.choice(("ann", "bob")),
            datetime(2026, 10, 1, tzinfo=UTC) + timedelta(minutes=rnd.randrange(10_000)),
        )
        for attempt in range(rnd.choice((1, 1, 2, 3))):
            gpus, minutes = rnd.randrange(0, 9), rnd.randrange(0, 600)
            start, end = at + timedelta(minutes=5), at + timedelta(minutes=5 + minutes)
            texts = dict(
                zip(
                    ("Submit", "Eligible", "Start", "End"),
                    (f"{t:%Y-%m-%dT%H:%M:%S}" for t in (at, at, start, end)),
                    strict=True,
                )
            )
            state = "REQUEUED" if attempt == 0 else "COMPLETED"
            held = rnd.choice((tres(gpus), f"gres/gpu:h100={gpus}", f"cpu=1,gres/gpu={gpus},gres/gpumem=80G"))
            row = job(str(number), User=user, State=state, NodeList=rnd.choice(("n1", "n[1-3]")), **texts)
            row |= {"AllocTRES": held, "ReqTRES": held}
            rows += [row, row | {"JobID": f"{number}.batch", "User": ""}]
            expected[user] = expected.get(user, 0.0) + gpus * minutes / 60
            at = end + timedelta(minutes=1)
    rnd.shuffle(rows)
    with TemporaryDirectory() as folder:
        found = Books(write_sacct(rows), folder=Path(folder)).hours("user")
    assert found == pytest.approx({user: hours for user, hours in expected.items() if user in found}, abs=1e-9)
    assert all(hours == pytest.approx(0) for user, hours in expected.items() if user not in found)
