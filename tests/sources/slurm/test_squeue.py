"""Text of squeue with a heading: the jobs of `squeue --json`, however its columns stand apart; what may be cut off is refused."""

from pathlib import Path
from random import Random

import pytest
from tests.sources.slurm.sacct_files import DAY, Books

from loadfactor.base.errors import SourceError

COLUMNS = (
    "JOBID",
    "STATE",
    "SUBMIT_TIME",
    "START_TIME",
    "TIME",
    "NODES",
    "TRES_ALLOC",
    "TRES_PER_NODE",
    "NODELIST",
    "USER",
    "PARTITION",
)
WIDTHS = (40, 20, 25, 25, 20, 9, 200, 80, 200, 40, 40)
TRES = "cpu=8,mem=64G,node=1,billing=8"
ROWS = (
    ("102_1", "RUNNING", f"{DAY}08:00:00", f"{DAY}09:00:00", "3:00:00", "2", f"{TRES},gres/gpu=8,gres/gpu:h100=8",
     "gres/gpu:h100:4", "n[1-2]", "ann", "gpu"),
    ("103", "RUNNING", f"{DAY}08:00:00", f"{DAY}11:30:00", "30:00", "1", f"{TRES},gres/gpu=2", "N/A", "n3", "bob", "gpu"),
    ("104", "PENDING", f"{DAY}08:30:00", "2026-10-02T00:00:00", "0:00", "2", "N/A", "gres/gpu:4", "", "eve", "gpu"),
    ("105", "RUNNING", f"{DAY}08:30:00", f"{DAY}09:00:00", "3:00:00", "1", TRES, "N/A", "n4", "eve", "cpu"),
)  # fmt: skip
HOURS = {"102_1": 24.0, "103": 1.0}


def write(
    between: str = "|",
    rows: tuple[tuple[str, ...], ...] = ROWS,
    columns: tuple[str, ...] = COLUMNS,
    widths: tuple[int, ...] = (),
) -> str:
    """The table; with `widths` each cell is padded, or cut off, as --Format does it."""
    lines = []
    for row in (columns, *rows):
        of = dict(zip(COLUMNS, row, strict=True)) if row is not columns else dict(zip(columns, columns, strict=True))
        cells = [of[name] for name in columns]
        lines.append(
            between.join(f"{c[:w]:{w}}" for c, w in zip(cells, widths, strict=True)) if widths else between.join(cells)
        )
    return "".join(f"{line}\n" for line in lines)


@pytest.mark.parametrize("between", ["|", "\t", ",,", "☃", " ", ";"])
def test_columns_apart_by_anything(tmp_path: Path, between: str) -> None:
    """GPUs held until squeue was asked, waits, models and nodes."""
    books = Books(write(between), folder=tmp_path)
    assert books.hours() == HOURS
    assert books.held("102_1") == [("n1", 4.0), ("n2", 4.0)]
    assert {row["accelerator"] for row in books.allocations} == {"h100-sxm", None}
    assert books.happened("104") == ["submitted"]
    assert not books.held("104")
    assert any("still ran when Slurm was queried" in what and "12:00" in what for what in books.gaps)


@pytest.mark.parametrize(
    "mutant", ["shuffled", "doubled", "CRLF", "BOM", "padded", "padded and |", "reordered", "closed", "twice"]
)
def test_the_same_however_it_was_written(tmp_path: Path, mutant: str) -> None:
    """No sum changes with the order of rows or columns, doubled rows, line ends, a byte order mark, widths or repeated headings."""
    rows, text = list(ROWS), write()
    if mutant == "shuffled":
        Random(2).shuffle(rows)
        text = write(rows=tuple(rows))
    elif mutant == "doubled":
        text = write(rows=ROWS + ROWS)
    elif mutant == "CRLF":
        text = text.replace("\n", "\r\n")
    elif mutant == "BOM":
        text = "\ufeff" + text
    elif mutant.startswith("padded"):
        text = write("|" if "|" in mutant else "", widths=WIDTHS)
    elif mutant == "reordered":
        text = write(columns=COLUMNS[::-1])
    elif mutant == "closed":
        text = text.replace("\n", "|\n")
    elif mutant == "twice":
        text += "\n" + text
    assert Books(text, folder=tmp_path).hours() == HOURS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (write("", widths=(20,) * len(COLUMNS)), "line 2: TRES_ALLOC fills its column, so it may be cut off .*; save"),
        (write("|", widths=(20,) * len(COLUMNS)), "line 2: TRES_ALLOC fills its column"),
        ("  JOBID PARTITION   NAME   USER ST   TIME  NODES NODELIST(REASON)\n", "names no GPUs; save `squeue --json`"),
        ("               JOBID    STATE       TIME  NODES NODELIST(REASON) TRES_PER_NODE\n 1 R\n", "aligned to the right"),
        (write(columns=COLUMNS[:3] + COLUMNS[4:]), "without START_TIME"),
        ("JOBID|ST|START_TIME|TRES_PER_NODE\n1|R|N/A|gpu:1\n", "without NODES"),
        (write().replace("n3|bob", "n3|bo|b"), "line 3: 12 columns where the heading has 11"),
        (write().replace(f"{DAY}11:30:00", "noon"), "line 3: started 'noon' is no time"),
        (write().replace("n[1-2]", "n[1-"), "line 2: 'n.1-' has brackets"),
    ],
)  # fmt: skip
def test_what_may_be_wrong_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """One line says what the table is, where it is wrong, and the command to use."""
    with pytest.raises(SourceError, match=message) as error:
        Books(text, folder=tmp_path)
    assert "\n" not in str(error.value)


def test_a_table_that_breaks_off(tmp_path: Path) -> None:
    """The last line counts only where it has its end: a number in it may be cut."""
    whole = write(rows=ROWS[:2])
    assert Books(whole[:-3], folder=tmp_path).hours() == {"102_1": 24.0}


def test_reasons_and_gpus_of_each_node(tmp_path: Path) -> None:
    """Without TRES_ALLOC the GPUs a node count, times nodes; a reason in brackets is no node."""
    text = "JOBID|ST|START_TIME|TIME|NODES|TRES_PER_NODE|NODELIST(REASON)|SUBMIT_TIME|NAME\n"
    text += f"7|R|{DAY}09:00:00|1:00:00|2|gres/gpu:a100:2|n[1-2]|{DAY}08:00:00|a|b\n"
    text += f"8|PD|N/A|0:00|1|gres/gpu:a100:8|(Resources)|{DAY}08:00:00|c\n"
    books = Books(text, folder=tmp_path)
    assert books.hours() == {"7": 4.0}
    assert [row["reason"] for row in books.events if row["job_id"] == "8"] == ["Resources"]
