"""Nodes in what scontrol and sinfo print: which GPUs there are, which of them nobody held, and which could not be used."""

from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from tests.sources.slurm.sacct_files import DAY, job, write_sacct
from tests.sources.slurm.sacct_files import Books as Rows

from loadfactor.base.errors import SourceError
from loadfactor.books.books import Books
from loadfactor.sources.base import ReadOptions
from loadfactor.sources.slurm.node_rows import FREE, NO_JOBS, ONE_USER

JOBS = write_sacct(
    [job("1", "00:00:00", "10:00:00", 4), job("2", "05:00:00", "20:00:00", 8, User="bob", NodeList="n2")]
)
COLUMNS = ("NODELIST", "PARTITION", "STATE", "GRES", "TIMESTAMP", "REASON")
NODES = (
    ("n1", "gpu*", "idle", "gpu:h100:8(S:0-1)", "Unknown", "none"),
    ("n2", "gpu*", "mix", "gpu:h100:8(S:0-1)", "Unknown", "none"),
    ("n3", "gpu*", "drain", "gpu:h100:8(S:0-1)", f"{DAY}12:00:00", "bad dimm"),
    ("n4", "gpu*", "idle", "gpu:h100:8(S:0-1)", "Unknown", "none"),
    ("n5", "gpu*", "down*", "gpu:h100:8(S:0-1)", "2026-08-01T00:00:00", "Not responding"),
    ("c1", "cpu", "idle", "(null)", "Unknown", "none"),
)


def write(between: str = "|", widths: tuple[int, ...] = ()) -> str:
    """The table of sinfo; with `widths` its columns are padded."""
    rows = [
        [cell.ljust(width) for cell, width in zip(row, widths, strict=True)] if widths else row
        for row in (COLUMNS, *NODES)
    ]
    return "".join(f"{between.join(row)}\n" for row in rows)


def write_scontrol() -> str:
    """The same nodes as scontrol prints them."""
    out = []
    for name, partition, state, gres, since, reason in NODES:
        why = "" if reason == "none" else f"\n   Reason={reason} [root@{since}]"
        out.append(
            f"NodeName={name} Arch=x86_64\n   Gres={gres}\n   State={state.upper()}\n   Partitions={partition.strip('*')}{why}"
        )
    return "\n\n".join(out) + "\n"


@pytest.mark.long
@pytest.mark.parametrize(
    "nodes",
    [
        write(),
        write("☃"),
        write("  ", (12, 12, 8, 20, 22, 20)),
        f"Thu Oct  1 20:00:00 2026\n{write()}",
        write_scontrol(),
    ],
    ids=["pipe", "snowman", "padded", "date above", "scontrol"],
)
def test_what_no_job_holds_is_unallocated(tmp_path: Path, nodes: str) -> None:
    """Of 40 GPUs in 20 hours: 160 GPU-hours held, n5 down throughout, n3 since noon; the books begin with the first job.

    n1: 160 installed, 40 held; n2: 160, 120 held; n3: 64 down of 160; n4: all of 160 free; n5: 160 down.
    """
    found = book(tmp_path, JOBS, nodes)
    assert found["paid_gpu_hours"] == dict.fromkeys(("n1", "n2", "n3", "n4", "n5"), 160.0)
    assert found["unallocated_gpu_hours"] == {"n1": 120.0, "n2": 40.0, "n3": 96.0, "n4": 160.0, "n5": 0.0}
    assert found["down_gpu_hours"] == {"n1": 0.0, "n2": 0.0, "n3": 64.0, "n4": 0.0, "n5": 160.0}
    rows = Rows(JOBS, nodes, folder=tmp_path)
    assert rows.gaps[FREE] == 40
    assert {row["pool"] for row in rows.devices} == {"gpu"}
    assert [row["reason"] for row in rows.outages] == ["bad dimm", "Not responding"]


@pytest.mark.long
def test_without_all_jobs_nobody_says_who_held_the_rest(tmp_path: Path) -> None:
    """A list of nodes alone, and beside the jobs of one user, who may see no others."""
    own = write_sacct([job("1", "00:00:00", "20:00:00", 4)])
    assert book(tmp_path, own, write())["unallocated_gpu_hours"] == {"n1": 80.0} | dict.fromkeys(
        ("n2", "n3", "n4", "n5"), 0.0
    )
    assert Rows(own, write(), folder=tmp_path).gaps[ONE_USER] == 40
    assert Rows(write(), folder=tmp_path).gaps[NO_JOBS] == 40


def test_a_node_of_two_partitions(tmp_path: Path) -> None:
    """A row a partition: one node, in no pool alone."""
    text = "NODELIST|PARTITION|STATE|GRES\nn[1-2]|gpu*|idle|gpu:2\nn2|long|idle|gpu:2\n"
    rows = Rows(text, folder=tmp_path)
    assert [(row["device_id"], row["pool"]) for row in rows.devices] == [
        ("n1:gpu0", "gpu"), ("n1:gpu1", "gpu"), ("n2:gpu0", None), ("n2:gpu1", None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("NODELIST PARTITION STATE\nn1 gpu idle\n", "without GRES; save `sinfo --all -N"),
        (write("", (12, 12, 8, 10, 22, 20)), "line 2: GRES fills its column"),
        ("NODELIST|STATE|GRES\nn[1-|idle|gpu:2\n", "line 2"),
        ("NODELIST|STATE|GRES\nn1|idle\n", "line 2: 2 columns where the heading has 3"),
    ],
)
def test_tables_that_lack_something_are_refused(tmp_path: Path, text: str, why: str) -> None:
    """The line, and what to save instead."""
    with pytest.raises(SourceError, match=why):
        Rows(text, folder=tmp_path)


def book(folder: Path, *texts: str) -> dict[str, dict[str | None, Any]]:
    """GPU-hours by metric and node of books that these texts are imported into at once."""
    paths = [folder / f"{number}.txt" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    books = Books.open(folder / "books", create=True)
    books.add("slurm", paths, ReadOptions(timezone=UTC))
    metrics = ("paid_gpu_hours", "down_gpu_hours", "unallocated_gpu_hours")
    readings = books.show(metrics, ("node",))
    return {name: {r.by["node"]: r.value for r in readings if r.metric == name} for name in metrics}
