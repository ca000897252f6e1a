"""Summaries of jobstats in AdminComment: what they say stands beside the job, by node, and is no sample."""

import base64
import gzip
import json
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sources.slurm.sacct_files import FIELDS, Books, job, tres, write_sacct

from loadfactor import Books as Stored
from loadfactor.sources.base import ReadOptions
from loadfactor.sources.slurm.job_rows import NOT_ITS_GPUS, SHARED, UNREADABLE, read_summary
from loadfactor.sources.slurm.live_decoder import ACCOUNTING, LiveSlurmDecoder

GIB = 2**30


def pack(said: Any) -> str:
    return "JS1:" + base64.b64encode(gzip.compress(json.dumps(said).encode(), mtime=0)).decode()


def summarize(**nodes: dict[str, float]) -> str:
    """The summary of a job whose GPUs, by minor number, were busy for so many percent and used so many of 40 GiB."""
    return pack(
        {"nodes": {name.replace("_", "-"): _say_node(busy) for name, busy in nodes.items()}, "total_time": 3600}
    )


def _say_node(busy: dict[str, float]) -> dict[str, Any]:
    return {
        "cpus": 12,
        "total_memory": 128 * GIB,
        "used_memory": 64 * GIB,
        "total_time": 57620.8,
        "gpu_utilization": busy,
        "gpu_used_memory": dict.fromkeys(busy, 10 * GIB),
        "gpu_total_memory": dict.fromkeys(busy, 40 * GIB),
    }


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
    assert books.gaps == {f"{SHARED} (first in line 2)": 1}


def test_a_summary_that_comes_after_the_end_is_taken():
    """jobstats writes it when the job is over, and accounting is asked again: the same row comes once more, with the summary."""
    decoder = LiveSlurmDecoder("")
    run = {"job_id": "1", "state": "completed", "submitted": 0, "started": 3_600_000, "ended": 7_200_000, "nodes": "n1"}
    seen = []
    for summary in ({}, {"admin_comment": summarize(n1={"0": 25})}, {}):
        decoder.feed([(7_300_000, ACCOUNTING, [{**run, "held": tres(1), **summary}])])
        seen.append([row.get("summary_busy_share") for item in decoder.drain() for row in item.data.to_pylist()])
    assert seen == [[None], [0.25], []]


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


def test_summaries_are_in_books(tmp_path: Path):
    """Some jobs have one and some do not: all are booked, and the columns of the others are empty. No number is made of them."""
    rows = [job("1", AdminComment=summarize(n1={"0": 40})), job("2", "11:00:00", "12:00:00")]
    rows += [job("3", "12:00:00", "13:00:00", State="REQUEUED"), job("3", "14:00:00", "15:00:00")]
    (tmp_path / "sacct.txt").write_text(write_sacct(rows, (*FIELDS, "AdminComment")))
    books = Stored(tmp_path / "books")
    books.add("slurm", [tmp_path / "sacct.txt"], ReadOptions(timezone=UTC))
    stored = books.table("allocations").select("job_id", "summary_busy_share").to_pyarrow().to_pylist()
    assert sorted((r["job_id"], r["summary_busy_share"] or 0) for r in stored) == [
        ("1", 0.4),
        ("2", 0),
        ("3", 0),
        ("3", 0),
    ]
    observed, allocated = books.show(["observed_gpu_hours", "allocated_gpu_hours"])
    assert (observed.value, allocated.value) == (None, 4)
    said = next(f for f in books.check().findings if "jobstats" in f.what)
    assert (said.coverage, said.gpu_hours) == (0.25, 3)
