"""How do readings look? Names as they are, aligned however many, and JSON that is read line by line."""

import io
import json
from datetime import UTC, datetime

import pytest
from rich.console import Console

from loadfactor.faces.readings import FITTED, as_csv, as_json, print_table
from loadfactor.metrics import metric
from loadfactor.metrics.query.reading import Column, Groups, Readings

START, END = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 2, tzinfo=UTC)


def answer(names: list[str | None]) -> Readings:
    """Cost by job: one dollar each, the last one unknown."""
    n = len(names)
    groups = Groups([(name,) for name in names], [START] * n, [END] * n)
    column = Column([1.0] * (n - 1) + [None], [1.0] * (n - 1) + [0.0], ["contracted"] * n)
    return Readings((metric("cost"),), ("job",), groups, [column])


def printed(readings: Readings) -> list[str]:
    out = io.StringIO()
    print_table(readings, Console(file=out, width=60, highlight=False, markup=False))
    return out.getvalue().splitlines()


@pytest.mark.parametrize("jobs", [3, FITTED + 1])
def test_names_with_brackets_stay_as_they_are(jobs: int) -> None:
    """A job array's name is no markup: nothing of it is lost, and it breaks nothing."""
    names: list[str | None] = ["481776_[1-4]", "train[bold]", "a[/]"] + [f"j{i}" for i in range(jobs - 3)] + [None]
    lines = printed(answer(names))
    for name in names[:3]:
        assert any(line.startswith(f"{name} ") for line in lines)
    assert any(line.split() == ["train[bold]", "$1.00"] for line in lines)


def test_many_groups_stand_in_columns() -> None:
    """Every line of a long table ends where its columns do, and there is one a group."""
    lines = printed(answer([f"job-{i}" for i in range(FITTED + 1)]))
    assert len(lines) == FITTED + 1 + 2  # a heading, and what the numbers stand on
    assert {line.index("$1.00") for line in lines[1:FITTED]} == {lines[1].index("$1.00")}
    assert lines[FITTED + 1].split() == [f"job-{FITTED}", "–", "0.0", "%"]
    assert lines[-1] == "stands on: contracted"


def test_a_histogram_keeps_its_empty_ends() -> None:
    """Bins without anything at either end stay where they are, however the column is aligned."""
    groups = Groups([("a",), ("b",)], [START] * 2, [END] * 2)
    column = Column([[4.0] + [0.0] * 19, [0.0] * 19 + [4.0]], [1.0] * 2, ["sm_active"] * 2)
    lines = printed(Readings((metric("utilization_histogram"),), ("job",), groups, [column]))
    assert lines[1].split("|")[1] == "█" + " " * 19
    assert lines[2].split("|")[1] == " " * 19 + "█"


def test_json_is_a_reading_a_line() -> None:
    """The list parses as a whole, and each line but the brackets is one reading."""
    text = as_json(answer(["a", "b"]))
    whole = json.loads(text)
    assert [r["value"] for r in whole] == [1.0, None]
    assert [json.loads(line.rstrip(",")) for line in text.splitlines()[1:-1]] == whole
    assert json.loads(as_json(answer([]))) == []


def test_csv_of_nothing_has_a_heading() -> None:
    """An answer without groups is a file with its columns."""
    assert as_csv(answer([])).splitlines() == ["metric,unit,value,from,to,coverage,basis"]


def test_one_reading_is_the_same_by_number_and_in_turn() -> None:
    """Indexing, slicing from the end and iterating agree."""
    readings = answer(["a", "b", "c"])
    assert list(readings) == readings[:] == [readings[i] for i in range(3)]
    assert readings[-1] == readings[2]
    with pytest.raises(IndexError):
        readings[3]
