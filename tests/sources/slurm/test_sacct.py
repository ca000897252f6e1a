"""Text of `sacct -P`: GPU-hours and waits worked out by hand, once each; summaries of jobstats in AdminComment, by node."""

import base64
import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sources.slurm.sacct_files import DAY, FIELDS, Books, job, tres, write_sacct

import loadfactor
from loadfactor import Books as Stored
from loadfactor.base.errors import SourceError
from loadfactor.interfaces.pages.readings import build_page as show_readings
from loadfactor.interfaces.reports.page import build_page
from loadfactor.interfaces.requests import ReportRequest, ShowRequest
from loadfactor.settings.config import settings
from loadfactor.sources.base import ReadOptions
from loadfactor.sources.slurm.job_rows import NOT_ITS_GPUS, PARTS_REQUESTED, SHARED, UNREADABLE, read_summary
from loadfactor.sources.slurm.live_decoder import ACCOUNTING, LiveSlurmDecoder

NEVER = {"Start": "None", "AllocTRES": "", "NodeList": "None assigned"}


def test_a_job_holds_its_gpus_once(tmp_path):
    """Typed and untyped TRES are one thing, and steps repeat what their job holds."""
    rows = [job("101", end="11:00:00", gpus=4), job("101.batch", end="11:00:00", gpus=4), job("101.0", gpus=4)]
    books = Books(write_sacct(rows), folder=tmp_path)
    assert books.hours() == {"101": 8.0}
    (row,) = books.allocations
    assert (row["user"], row["team"], row["queue"], row["node"], row["pool"]) == ("ann", "vision", "gpu", "n1", None)
    assert (row["end_state"], row["attempt"], row["job_number"], row["known_from"]) == ("completed", None, None, None)
    assert row["eligible_utc"] == row["submitted_utc"] == row["from_utc"] - 3_600_000
    assert not books.events  # the allocation says when it waited


@pytest.mark.parametrize(
    ("held", "gpus", "share"),
    [
        ("gres/gpu:h100=8,cpu=1", 8, None),
        ("gres/gpu:a100=2,gres/gpu:h100=2", 4, None),
        ("gres/gpu=4,gres/gpu:a100=2,gres/gpu:h100=2", 4, None),
        ("gres/gpu=3,gres/gpumem=80G,gres/gpuutil=97", 3, None),
        ("gres/gpu:1g.10gb=2,gres/gpu=2", 2, 1 / 7),
        ("gres/gpu:a100_3g.20gb=1", 1, 3 / 7),
        ("gres/gpu:1g.10gb=2,gres/gpu:h100=1", 1 + 2 / 7, None),
    ],
)
def test_gpus_of_tres(tmp_path, held, gpus, share):
    """Types add up to each other and not to their sum; MIG profiles are their share of a GPU; memory and load are no GPUs."""
    (row,) = Books(write_sacct([job("1", AllocTRES=held)]), folder=tmp_path).allocations
    assert (row["gpus"], row["share"]) == (pytest.approx(gpus), share)


@pytest.mark.parametrize(
    "text", ["gpu:4", "gpu:tesla:4", "gres:gpu:4", "7696487:4", "gpu:a:1,gpu:b:3", "gpu:h100:4(IDX:0-3)"]
)
def test_older_sacct_has_gres(tmp_path, text):
    """AllocGRES of older versions counts GPUs in its own way."""
    fields = ("JobID", "State", "Start", "End", "AllocGRES")
    assert Books(write_sacct([job("1", AllocGRES=text)], fields), folder=tmp_path).hours() == {"1": 4.0}


def test_few_fields_in_any_order(tmp_path):
    """JobID, State, Start, End and one field of TRES are enough, in any order and spelling."""
    rows = [{name.lower(): value for name, value in job("7", gpus=2).items()}]
    books = Books(write_sacct(rows, ("end", "reqtres", "state", "jobid", "start")), folder=tmp_path)
    assert books.hours() == {"7": 2.0}
    assert any("AllocTRES" in what for what in books.gaps)


def test_tasks_of_arrays(tmp_path):
    """A task is called as people write it; its raw number, which labels carry, stands beside it. Waiting tasks are one each."""
    unknown = NEVER | dict.fromkeys(("Eligible", "Start", "End"), "Unknown")
    rows = [job("102_1", JobIDRaw="103"), job("102_[3-5,8%2]", State="PENDING", JobIDRaw="102", **unknown)]
    books = Books(write_sacct(rows), folder=tmp_path)
    assert [(r["job_id"], r["job_number"]) for r in books.allocations] == [("102_1", "103")]
    assert {e["job_id"] for e in books.events} == {"102_3", "102_4", "102_5", "102_8"}
    assert {(e["event"], e["gpus"], e["queue"]) for e in books.events} == {("submitted", 1.0, "gpu")}


def test_a_dependency_that_was_met_explains_no_wait(tmp_path):
    """sacct keeps the last reason but Priority and Resources: where it held the job back, it was over when the job was eligible."""
    rows = [job(why, Reason=why, Eligible=f"{DAY}08:30:00") for why in ("Dependency", "AssocGrpGRES")]
    books = Books(write_sacct(rows, (*FIELDS, "Reason")), folder=tmp_path)
    told = {(e["job_id"], e["event"]): e["reason"] for e in books.events}
    assert told["Dependency", "submitted"] == "Dependency"
    assert told["Dependency", "eligible"] is None
    assert told["AssocGrpGRES", "eligible"] == "AssocGrpGRES"


def test_a_requeued_job_is_one_job_with_two_runs(tmp_path):
    """With -D each run of a job is a row; what it held before it was requeued counts."""
    first = job("104", "10:00:00", "10:30:00", gpus=2, State="REQUEUED")
    again = job("104", "10:33:00", "12:33:00", gpus=2, Submit=f"{DAY}10:31:00", Eligible=f"{DAY}10:33:00")
    for rows in ([first, again], [again, first]):
        books = Books(write_sacct(rows), folder=tmp_path)
        assert books.hours() == {"104": 5.0}
        assert sorted((r["attempt"], r["end_state"]) for r in books.allocations) == [(0, "requeued"), (1, "completed")]


def test_restarts_number_the_runs(tmp_path):
    """Where sacct has the field Restarts it counts, also when the runs before are missing, which is said."""
    text = write_sacct([job("104", Restarts="2")], (*FIELDS, "Restarts"))
    books = Books(text, folder=tmp_path)
    assert [r["attempt"] for r in books.allocations] == [2]
    assert any("--duplicates" in what for what in books.gaps)


def test_a_reused_id_is_another_job(tmp_path):
    """An id that comes again long after its job ended is another job, with a name of its own."""
    late = {
        name: f"2027-03-01T{at}" for name, at in (("Submit", "08:00:00"), ("Start", "09:00:00"), ("End", "12:00:00"))
    }
    books = Books(write_sacct([job("9"), job("9", User="bob", **late | {"Eligible": late["Submit"]})]), folder=tmp_path)
    assert books.hours() == {"9": 1.0, "9@2027-03-01T08:00:00Z": 3.0}


def test_a_job_that_two_files_have_counts_once(tmp_path):
    """A job that was running when one file was written and had ended in the next is one run."""
    running = job("5", State="RUNNING", End="Unknown")
    books = Books(write_sacct([running, job("6")]), write_sacct([job("5", end="13:00:00")]), folder=tmp_path)
    assert books.hours() == {"5": 4.0, "6": 1.0}
    assert len(books.allocations) == 2


def test_a_resized_job_is_one_attempt(tmp_path):
    """Rows of one submission with another start are parts of one run."""
    parts = [job("5", "09:00:00", "10:00:00", 4, State="RESIZING"), job("5", "10:00:00", "12:00:00", 2)]
    books = Books(write_sacct(parts), folder=tmp_path)
    assert books.hours() == {"5": 8.0}
    assert {r["attempt"] for r in books.allocations} == {0}


def test_cancelled_while_pending(tmp_path):
    """A job that never started waited from its submission to its cancellation, and held nothing."""
    books = Books(write_sacct([job("3", State="CANCELLED by 1001", **NEVER)]), folder=tmp_path)
    assert not books.allocations
    assert books.happened("3") == ["eligible", "submitted", "cancelled"]


def test_cancelled_before_it_might_have_begun(tmp_path):
    """sbatch --begin: the time from which it might have begun lies after its cancellation, and never came."""
    row = job("3", gpus=2, State="CANCELLED by 0", Start="None", Eligible="2026-10-01T12:00:00", AllocTRES="")
    assert Books(write_sacct([row]), folder=tmp_path).happened("3") == ["submitted", "cancelled"]


def test_cancelled_with_a_start_in_older_versions(tmp_path):
    """Older versions write when it was cancelled as its start, too: without GPUs given it was none."""
    books = Books(
        write_sacct([job("3", "10:00:00", "10:00:00", State="CANCELLED by 0", AllocTRES="")]), folder=tmp_path
    )
    assert not books.allocations
    assert books.happened("3")[-1] == "cancelled"


def test_running_and_suspended_jobs_are_open(tmp_path):
    """What has no end yet holds its GPUs; a suspended job does, too."""
    rows = [job(n, State=state, End="Unknown") for n, state in (("1", "RUNNING"), ("2", "SUSPENDED"))]
    books = Books(write_sacct(rows), folder=tmp_path)
    assert [(r["end_state"], r["to_utc"]) for r in books.allocations] == [("running", None), ("suspended", None)]


STILL = ("ElapsedRaw", "Suspended")


def test_a_running_job_is_held_until_sacct_was_asked(tmp_path):
    """Its elapsed and suspended time say when that was, in both spellings; --at says it too; the receipt repeats it."""
    long = job("1", State="RUNNING", End="Unknown", gpus=2, ElapsedRaw="360000", Suspended="00:00:00")
    still = job("2", State="SUSPENDED", End="Unknown", ElapsedRaw="352800", Suspended="02:00:00")
    over = job("3", ElapsedRaw="3600", Suspended="00:00:00")
    for rows in ([long, still, over], [over, still, long]):
        books = Books(write_sacct(rows, (*FIELDS, *STILL)), folder=tmp_path)
        assert books.hours() == {"1": 200.0, "2": 100.0, "3": 1.0}
        assert [(what[-24:], n) for what, n in books.gaps.items()] == [(" 2026-10-05 13:00:00 UTC", 2)]
    clock = {**long, "Elapsed": "4-04:00:00"}
    assert Books(write_sacct([clock], (*FIELDS, "Elapsed")), folder=tmp_path).hours() == {"1": 200.0}
    at_ms = int(datetime(2026, 10, 6, tzinfo=UTC).timestamp() * 1000)
    assert Books(write_sacct([long], (*FIELDS, *STILL)), folder=tmp_path, at_ms=at_ms).hours() == {"1": 222.0}
    assert Books(write_sacct([long]), folder=tmp_path, at_ms=at_ms).hours() == {"1": 222.0}
    assert any("give --at" in what for what in Books(write_sacct([long]), folder=tmp_path).gaps)
    with pytest.raises(SourceError, match="job 1: it still ran at 2026-10-05 13:00:00 UTC, after --at 2026-10-05"):
        Books(write_sacct([long], (*FIELDS, *STILL)), folder=tmp_path, at_ms=at_ms - 86_400_000)
    assert "--at changed nothing" in str(Books(write_sacct([over]), folder=tmp_path, at_ms=at_ms).gaps)


def test_suspended_time_counts(tmp_path):
    """The time in which a job was suspended lies between its start and its end, and its GPUs are nobody else's."""
    text = write_sacct([job("1", Suspended="00:30:00", ElapsedRaw="1800")], (*FIELDS, "Suspended", "ElapsedRaw"))
    assert Books(text, folder=tmp_path).hours() == {"1": 1.0}


def test_gpus_on_several_nodes_are_split_evenly(tmp_path):
    """Nobody says which node has how many: they are split evenly and marked, as fractions where that must be."""
    rows = [job("1", gpus=16, NodeList="n[1-2]"), job("2", gpus=2, NodeList="gpu-a[08-10],x")]
    books = Books(write_sacct(rows), folder=tmp_path)
    assert books.held("1") == [("n1", 8.0), ("n2", 8.0)]
    assert books.held("2") == [("gpu-a08", 0.5), ("gpu-a09", 0.5), ("gpu-a10", 0.5), ("x", 0.5)]
    assert {r["known_from"] for r in books.allocations} == {"even_split"}
    assert books.hours() == {"1": 16.0, "2": 2.0}


def test_jobs_without_gpus_are_counted_not_booked(tmp_path):
    """A CPU job is in no table."""
    books = Books(write_sacct([job("1"), job("2", AllocTRES="cpu=8", ReqTRES="cpu=8")]), folder=tmp_path)
    assert (books.hours(), books.gaps) == ({"1": 1.0}, {"jobs without GPUs: not booked": 1})


def test_heterogeneous_jobs_are_their_parts(tmp_path):
    """Each part of a heterogeneous job has its own row."""
    rows = [job("200+0", JobIDRaw="200", gpus=2), job("200+1", JobIDRaw="201", gpus=4)]
    books = Books(write_sacct(rows), folder=tmp_path)
    assert books.hours() == {"200+0": 2.0, "200+1": 4.0}
    assert [r["job_number"] for r in books.allocations] == ["200", "201"]


def test_what_stands_between_fields_is_found(tmp_path):
    """-p closes every line; --delimiter may be one or several characters; gzip is unpacked."""
    rows = [job("1", gpus=3)]
    for text in (
        write_sacct(rows, closed=True),
        write_sacct(rows, mark=";"),
        write_sacct(rows, mark="\t"),
        write_sacct(rows, mark="@@"),
        write_sacct(rows, mark="☃"),
        write_sacct(rows, mark="¦", closed=True),
        gzip.compress(write_sacct(rows).encode()),
        write_sacct(rows) + "\n" + write_sacct([job("1.batch")]),
    ):
        assert Books(text, folder=tmp_path).hours() == {"1": 3.0}


@pytest.mark.long
def test_slurm_alone_prices_its_gpus(tmp_path, monkeypatch):
    """The type in TRES is the model, by which prices find what nobody lists; what a site calls its GPUs is in the settings."""
    (tmp_path / "loadfactor.toml").write_text('[accelerator_names]\nLarge = "h100-sxm"\n')
    monkeypatch.setattr("loadfactor.settings.config.CHOSEN.path", tmp_path / "loadfactor.toml")
    mixed = {"AllocTRES": "gres/gpu=2,gres/gpu:a100=1,gres/gpu:v100=1"}
    rows = [job("1", gpus=2, AllocTRES=tres(2, "a100")), job("2", AllocTRES=tres(1, "large"), NodeList="n2")]
    (tmp_path / "sacct.txt").write_text(write_sacct([*rows, job("3", NodeList="n3", **mixed)]))
    (tmp_path / "prices.csv").write_text(
        "accelerator,basis,price_per_gpu_hour\nA100,contracted,2\nh100-sxm,contracted,5\n"
    )
    books = Stored(tmp_path / "books")
    books.add("slurm", [tmp_path / "sacct.txt"], ReadOptions(timezone=UTC))
    books.add("prices", [tmp_path / "prices.csv"])
    costs = {reading.by["accelerator"]: reading.value for reading in books.show("cost", by="accelerator")}
    assert costs == {"a100-sxm": 4.0, "h100-sxm": 5.0, None: None}
    who = {reading.by["job"]: reading.value for reading in books.show("allocated_gpu_hours", by="job")}
    assert who == {"1": 2.0, "2": 1.0, "3": 2.0}  # and no unknown holder of 0 hours


def test_a_name_with_bars_is_the_last_field(tmp_path):
    """A job's name may hold what stands between fields where it is the last one; elsewhere the line is named."""
    text = write_sacct([job("1", JobName='a|b "c"'), job("2", JobName="plain")], (*FIELDS, "JobName"))
    names = {r["job_id"]: r["tags"] for r in Books(text, folder=tmp_path).allocations}
    assert names["1"] == r'{"account":"vision","job_name":"a|b \"c\"","partition":"gpu"}'
    text = write_sacct([job("1", JobName="plain"), job("2", JobName="a|b")], ("JobName", *FIELDS))
    with pytest.raises(SourceError, match=r"line 3: more fields than the 14 of the heading.*JobName as the last field"):
        Books(text, folder=tmp_path)


def test_times_in_seconds_and_with_an_offset(tmp_path):
    """SLURM_TIME_FORMAT=%s writes seconds since 1970; times with an offset need no zone."""
    seconds = {"Submit": "1790841600", "Eligible": "1790841600", "Start": "1790845200", "End": "1790848800"}
    offset = {
        "Submit": f"{DAY}10:00:00+0200",
        "Eligible": "Unknown",
        "Start": f"{DAY}11:00:00+0200",
        "End": f"{DAY}12:00:00+0200",
    }
    plain = Books(write_sacct([job("1")]), folder=tmp_path).allocations[0]["from_utc"]
    for fields in (seconds, offset):
        books = Books(write_sacct([job("1", **fields)]), folder=tmp_path, timezone=None)
        assert books.hours() == {"1": 1.0}
        assert books.allocations[0]["from_utc"] == plain


def test_a_local_time_needs_its_zone(tmp_path):
    """Local times are refused in one line that names the option; with the zone they are read."""
    with pytest.raises(
        SourceError, match=r"line 2: submitted 2026-10-01T08:00:00 has no time zone; name it with --timezone"
    ):
        Books(write_sacct([job("1")]), folder=tmp_path, timezone=None)
    books = Books(write_sacct([job("1")]), folder=tmp_path, timezone=ZoneInfo("Europe/Berlin"))
    assert books.allocations[0]["from_utc"] == 1790845200_000 - 7_200_000


@pytest.mark.parametrize(
    ("start", "end", "elapsed", "hours", "guessed"),
    [
        ("2026-10-25T01:30:00", "2026-10-25T02:30:00", "7200", 2.0, 0),  # how long it ran tells
        ("2026-10-25T01:30:00", "2026-10-25T02:30:00", "3600", 1.0, 0),
        ("2026-10-25T02:40:00", "2026-10-25T02:10:00", "", 0.5, 0),  # it cannot end before it starts
        ("2026-10-25T01:30:00", "2026-10-25T02:30:00", "", 1.0, 1),
    ],
)
def test_the_hour_that_comes_twice(tmp_path, start, end, elapsed, hours, guessed):
    """Where clocks go back, a job's own times and its length say which hour is meant; where not, that is said."""
    row = job(
        "1", Submit="2026-10-25T01:00:00", Eligible="2026-10-25T01:00:00", Start=start, End=end, ElapsedRaw=elapsed
    )
    books = Books(write_sacct([row], (*FIELDS, "ElapsedRaw")), folder=tmp_path, timezone=ZoneInfo("Europe/Berlin"))
    assert books.hours() == {"1": hours}
    assert sum(count for what, count in books.gaps.items() if "comes twice" in what) == guessed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("hello world\n", "names no JobID"),
        (
            "   JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n",
            "a table of squeue that names no GPUs; save",
        ),
        ("PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n", "a table of sinfo without GRES; save `sinfo --all"),
        ("123|COMPLETED|2026-10-01T00:00:00|gres/gpu=1\n", r"without its heading; leave --noheader \(-n\) out"),
        ("Job ID: 39798795\nNetID/Account: a/b\n", "report of seff or jobstats.*sacct -P"),
        ("# HELP DCGM_FI_DEV_GPU_UTIL x\n", "Prometheus exporter; import it with `loadfactor import dcgm`"),
        ("timestamp, index, name\n", "nvidia-smi; import it with"),
        ("slurm_load_jobs error: Unable to contact slurm controller\n", "an error of Slurm"),
        ("JobID|State|Start|AllocTRES\n1|RUNNING|Unknown|gres/gpu=1\n", "End are missing"),
        ("JobID|State|Start|End\n1|RUNNING|Unknown|Unknown\n", "add AllocTRES"),
        ("       JobID      State \n------------ ----------\n", "names no JobID|sacct -P"),
        (write_sacct([job("1", Start="yesterday")]), "line 2: started 'yesterday' is no time"),
        (write_sacct([job("1", NodeList="n[1-")]), r"line 2: 'n\[1-' has brackets"),
        (write_sacct([job("1")]) + "2|3\nrest\n", "line 3: fewer fields"),
    ],
)
def test_what_is_no_sacct_text_is_refused(tmp_path, text, message):
    """One line says which file, where, and what to do."""
    with pytest.raises(SourceError, match=message) as error:
        Books(text, folder=tmp_path)
    assert "\n" not in str(error.value)


def test_a_text_that_breaks_off(tmp_path: Path):
    """The line that a text breaks off in is left out, and that is said."""
    books = Books(write_sacct([job("1"), job("2")])[:-120], folder=tmp_path)
    assert books.hours() == {"1": 1.0}
    assert books.gaps == {"the last line breaks off: left out (first in line 3)": 1}


def test_shards_of_unknown_size_are_said(tmp_path):
    """A share of a GPU whose size nobody says is not booked as a GPU."""
    books = Books(write_sacct([job("1", AllocTRES="gres/shard=2", ReqTRES="gres/shard=2")]), folder=tmp_path)
    assert not books.allocations
    assert any("shards or MPS percentages of GPUs" in what for what in books.gaps)


def test_summaries_of_jobstats_are_no_tags(tmp_path):
    """What jobstats keeps in AdminComment is not what an administrator says."""
    text = write_sacct(
        [job("1", AdminComment="JS1:H4sIAAAA"), job("2", AdminComment="exp=7")], (*FIELDS, "AdminComment")
    )
    first, second = (r["tags"] for r in Books(text, folder=tmp_path).allocations)
    assert "JS1" not in first
    assert '"admin_comment":"exp=7"' in second


@pytest.mark.long
def test_a_run_that_two_exports_number_differently_counts_once(tmp_path: Path) -> None:
    """The second export begins after the first run of a job: its second run comes first there, and is the same run."""
    first = job("104", "09:00:00", "10:00:00", 2, State="REQUEUED")
    second = job("104", "11:00:00", "13:00:00", 2, Submit=f"{DAY}10:00:05", Eligible=f"{DAY}10:02:00")
    books = loadfactor.Books(tmp_path / "books")
    for number, runs in enumerate(([first, second], [second])):
        path = tmp_path / f"export-{number}.txt"
        path.write_text(write_sacct(runs))
        books.add("slurm", [path], ReadOptions(timezone=UTC))
    (held,) = [r.value for r in books.show("allocated_gpu_hours", by="job") if r.by["job"] == "104"]
    assert held == 2 * 1 + 2 * 2


GIB = 2**30


def pack(said: Any) -> str:
    return "JS1:" + base64.b64encode(gzip.compress(json.dumps(said).encode(), mtime=0)).decode()


def summarize(**nodes: dict[str, float]) -> str:
    """The summary of a job whose GPUs, by minor number, were busy for so many percent and used so many of 40 GiB."""
    measured: dict[str, Any] = {}
    for name, busy in nodes.items():
        node = {"cpus": 12, "total_memory": 128 * GIB, "used_memory": 64 * GIB, "total_time": 57620.8}
        node |= {"gpu_utilization": busy, "gpu_used_memory": dict.fromkeys(busy, 10 * GIB)}
        measured[name.replace("_", "-")] = node | {"gpu_total_memory": dict.fromkeys(busy, 40 * GIB)}
    return pack({"nodes": measured, "total_time": 3600})


def book(folder: Path, summary: str, gpus: int = 1, **fields: str) -> Books:
    row = job("1", gpus=gpus, AdminComment=summary, **fields)
    return Books(write_sacct([row], (*FIELDS, "AdminComment")), folder=folder)


def said(books: Books) -> list[tuple[Any, ...]]:
    names = ("node", "gpus", "summary_gpus", "summary_busy_share", "summary_mem_peak_share")
    return [tuple(row.get(name) for name in names) for row in books.allocations]


def test_a_summary_stands_beside_its_job(tmp_path):
    """Of two GPUs one was busy for 98.6 %, one for 1.4 % of the run: half of it, and a quarter of the memory at most."""
    books = book(tmp_path, summarize(n1={"0": 98.6, "3": 1.4}), 2)
    assert said(books) == [("n1", 2.0, 2.0, pytest.approx(0.5), pytest.approx(0.25))]
    assert not books.gaps
    assert "JS1" not in books.allocations[0]["tags"]


def test_a_summary_says_where_gpus_are(tmp_path):
    """sacct knows four GPUs on two nodes, the summary three and one: nothing is an estimate, whatever the domain is called."""
    text = summarize(**{"n1.site": {"0": 90, "1": 60, "2": 30}, "n2.site": {"0": 10}})
    books = book(tmp_path, text, 4, NodeList="n[1-2]")
    assert said(books) == [("n1", 3.0, 3.0, pytest.approx(0.6), 0.25), ("n2", 1.0, 1.0, pytest.approx(0.1), 0.25)]
    assert {row["known_from"] for row in books.allocations} == {None}


def test_a_summary_names_the_nodes_that_no_list_does(tmp_path):
    """Without NodeList its nodes are the job's; a name that is none leaves the summary out."""
    summary = summarize(n1={"0": 50}, n2={"0": 100, "1": 0})
    assert [row[:3] for row in said(book(tmp_path, summary, 3, NodeList=""))] == [("n1", 1, 1), ("n2", 2, 2)]
    assert [row[:3] for row in said(book(tmp_path, summarize(n1={"0": 50}), 2, NodeList=""))] == [("n1", 2, 1)]
    hostile = pack({"nodes": {"n[1-": {"gpu_utilization": {"0": 5}}}})
    assert book(tmp_path, hostile, NodeList="").gaps == {f"{NOT_ITS_GPUS} (first in line 2)": 1}


def test_a_summary_that_lacks_a_gpu_covers_those_it_has(tmp_path):
    """Three of four GPUs were measured: they stay split evenly, and the summary says of how many it speaks."""
    books = book(tmp_path, summarize(n1={"0": 90, "1": 60}, n2={"0": 10}), 4, NodeList="n[1-2]")
    assert said(books) == [("n1", 2.0, 2.0, 0.75, 0.25), ("n2", 2.0, 1.0, pytest.approx(0.1), 0.25)]
    assert {row["known_from"] for row in books.allocations} == {"even_split"}


def test_a_summary_without_utilization_says_nothing_of_it(tmp_path):
    """Of MIG instances jobstats knows the memory alone."""
    node = {"gpu_total_memory": {"1": 10200547328}, "gpu_used_memory": {"1": 124780544}, "cpus": 1}
    assert said(book(tmp_path, pack({"nodes": {"n1": node}}))) == [("n1", 1.0, None, None, None)]


@pytest.mark.parametrize("text", ["JS1:None", "JS1:Short", "JS1:", pack({"nodes": {"n1": {"cpus": 4}}})])
def test_a_job_that_was_not_measured_is_no_gap(tmp_path, text):
    """jobstats says so itself, and of jobs whose GPUs it did not see."""
    books = book(tmp_path, text)
    assert said(books) == [("n1", 1.0, None, None, None)]
    assert not books.gaps


@pytest.mark.parametrize(
    "text",
    [
        "JS1:H4sIAAAA",
        "JS1:äöü",
        summarize(n1={"0": 50})[:-20],
        pack(["nodes"]),
        pack({"nodes": ["n1"]}),
        pack({"nodes": {"n1": {"gpu_utilization": 50}}}),
        pack({"nodes": {"n1": {"gpu_utilization": {"0": "50"}}}}),
        pack({"nodes": {"n1": {"gpu_utilization": {"0": True}}}}),
        pack({"nodes": {"n1": {"gpu_utilization": {"0": 396}}}}),
        pack({"nodes": {"n1": {"gpu_utilization": {"0": float("nan")}}}}),
        pack({"nodes": {"n1": {"gpu_utilization": {"0": 10**400}}}}),
        pack({"nodes": {"n1": {"gpu_used_memory": {"0": 2}, "gpu_total_memory": {"0": 1}}}}),
        "JS1:" + base64.b64encode(gzip.compress(b" " * 2**24, mtime=0)).decode(),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_counted(tmp_path, text):
    """The job is booked all the same; a summary that unpacks to megabytes is not unpacked."""
    books = book(tmp_path, text)
    assert said(books) == [("n1", 1.0, None, None, None)]
    assert books.gaps == {f"{UNREADABLE} (first in line 2)": 1}


def test_a_summary_of_other_gpus_is_counted(tmp_path):
    """Of other nodes, or of more GPUs than the job held: labels of exporters outlast jobs."""
    other = book(tmp_path, summarize(n1={"0": 5}, n9={"0": 5}), 2, NodeList="n[1-2]")
    more = book(tmp_path, summarize(n1={"0": 5, "1": 5}), 1)
    for books in (other, more):
        assert all(row[2:] == (None, None, None) for row in said(books))
        assert books.gaps == {f"{NOT_ITS_GPUS} (first in line 2)": 1}


def test_a_job_on_one_node_is_on_the_one_that_was_measured(tmp_path):
    """Exporters may be known by an address."""
    text = pack({"nodes": {"10.0.0.7": {"gpu_utilization": {"0": 40.0}}}})
    assert said(book(tmp_path, text)) == [("n1", 1.0, 1.0, 0.4, None)]


def test_parts_of_gpus_are_not_summed_up(tmp_path):
    """What jobstats measures of a whole GPU is not what a job with a slice of it did."""
    books = book(tmp_path, summarize(n1={"0": 50}), AllocTRES=tres(1, "1g.10gb"), ReqTRES=tres(1, "1g.10gb"))
    assert said(books)[0][2:] == (None, None, None)
    assert books.gaps == {f"{what} (first in line 2)": 1 for what in (SHARED, PARTS_REQUESTED)}


def test_a_summary_that_comes_after_the_end_is_taken():
    """jobstats writes it when the job is over, and accounting is asked again: the same row comes once more, with the summary."""
    decoder = LiveSlurmDecoder("")
    run = {"job_id": "1", "state": "completed", "submitted": 0, "started": 3_600_000, "ended": 7_200_000, "nodes": "n1"}
    seen = []
    for summary in ({}, {"admin_comment": summarize(n1={"0": 25})}, {}):
        decoder.feed([(7_300_000, ACCOUNTING, [{**run, "held": tres(1), **summary}])])
        seen.append([row.get("summary_busy_share") for item in decoder.drain() for row in item.data.to_pylist()])
    assert seen == [[None], [0.25], []]


@pytest.mark.long
@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=5) | st.integers(), lambda inner: (
    st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["nodes", "gpu_utilization", "n1", "0"]), inner, max_size=3)
)))  # fmt: skip
def test_any_json_is_read_or_refused(value: Any):
    """Nothing but a ValueError comes out, and shares are shares."""
    try:
        nodes = read_summary(pack(value))
    except ValueError:
        return
    assert all(one.busy_share is None or 0 <= one.busy_share <= 1 for one in nodes.values())


@pytest.mark.long
def test_summaries_are_in_books(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Some jobs have one and some do not: all are booked, and the columns of the others are empty. No number is made of them."""
    rows = [job("1", AdminComment=summarize(n1={"0": 40})), job("2", "11:00:00", "12:00:00")]
    rows += [job("3", "12:00:00", "13:00:00", State="REQUEUED"), job("3", "14:00:00", "15:00:00")]
    (tmp_path / "sacct.txt").write_text(write_sacct(rows, (*FIELDS, "AdminComment")))
    books = Stored(tmp_path / "books")
    books.add("slurm", [tmp_path / "sacct.txt"], ReadOptions(timezone=UTC))
    stored = books.table("allocations").select("job_id", "summary_busy_share").to_pyarrow().to_pylist()
    expected = [("1", 0.4), ("2", 0), ("3", 0), ("3", 0)]
    assert sorted((r["job_id"], r["summary_busy_share"] or 0) for r in stored) == expected
    observed, allocated = books.show(["observed_gpu_hours", "allocated_gpu_hours"])
    assert (observed.value, allocated.value) == (None, 4)
    said = next(f for f in books.check().findings if "jobstats" in f.what)
    assert (said.coverage, said.gpu_hours) == (0.25, 3)
    where = {"store": tmp_path / "books"}
    text = "reported busy 40.0 % of 100 % of its GPU-hours, memory up to 25.0 % (jobstats: mean GPU_UTIL of whole runs)"
    assert text in " ".join(str(loadfactor.seff(job="1", **where)).split())
    assert any(text in tile.note for tile in build_page(ReportRequest(job="1", **where)).tiles)
    for asked in ({"by": ("job",)}, {"where": ("job=1",)}):
        page = show_readings(ShowRequest(metrics=("utilization",), **asked, **where))
        assert [row[:4] for row in page.sections[-1].tables[0].rows] == [("1", 0.4, 0.25, 1.0)]
        assert page.sections[-1].lead == "jobstats: mean GPU_UTIL of whole runs; in no other number."
    rule = tmp_path / "loadfactor.toml"
    rule.write_text("[wasteful]\nutilization_below = 0.5\nleast_gpu_hours = 1\nleast_coverage = 0.2\n")
    monkeypatch.setattr("loadfactor.settings.config.CHOSEN.path", rule)
    settings.cache_clear()
    (user,) = loadfactor.users(wasteful=True, **where).data.users
    settings.cache_clear()
    assert user.because == ("utilization 40 % is below 50 % over 4 GPU-hours (jobstats: mean GPU_UTIL of whole runs)",)
