"""Readings as a page: names as they are, units kept, aligned however many, and JSON that is read line by line."""

import csv
import io
import json
from datetime import UTC, datetime

import pytest

from loadfactor.interfaces.pages.readings import build_document
from loadfactor.interfaces.render.json import render_csv, render_json
from loadfactor.interfaces.render.terminal import MOST_FITTED, render_text
from loadfactor.metrics import METRICS, metric
from loadfactor.metrics.query.reading import Groups, MetricColumn, Readings

START, END = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 2, tzinfo=UTC)


def answer(names: list[str | None]) -> Readings:
    """Cost by job: one dollar each, the last one unknown."""
    n = len(names)
    groups = Groups([(name,) for name in names], [START] * n, [END] * n)
    column = MetricColumn([1.0] * (n - 1) + [None], [1.0] * (n - 1) + [0.0], [None] * n, "contracted")
    return Readings((metric("cost"),), ("job",), groups, [column])


def printed(readings: Readings, width: int = 60) -> list[str]:
    return render_text(build_document(readings), width).splitlines()


@pytest.mark.parametrize("jobs", [3, MOST_FITTED + 1])
def test_names_with_brackets_stay_as_they_are(jobs: int) -> None:
    """A job array's name is no markup: nothing of it is lost, and it breaks nothing."""
    names: list[str | None] = ["481776_[1-4]", "train[bold]", "a[/]"] + [f"j{i}" for i in range(jobs - 3)] + [None]
    lines = printed(answer(names))
    for name in names[:3]:
        assert any(line.startswith(f"{name} ") for line in lines)
    assert any(line.split() == ["train[bold]", "$1.00"] for line in lines)


def test_many_groups_stand_in_columns() -> None:
    """Every line of a long table ends where its columns do, and there is one a group."""
    lines = printed(answer([f"job-{i}" for i in range(MOST_FITTED + 1)]))
    table = lines[lines.index(next(line for line in lines if line.startswith("job "))) :]
    assert len(table) == MOST_FITTED + 2
    assert {line.index("$1.00") for line in table[1:MOST_FITTED]} == {table[1].index("$1.00")}
    assert table[-1].split() == [f"job-{MOST_FITTED}", "–", "0.0", "%"]


def test_the_page_says_what_it_is_based_on() -> None:
    """The kind of money and the activity signals stand above the table, once."""
    assert "Based on: contracted prices." in " ".join(printed(answer(["a", "b"]))[:3])


def test_a_histogram_keeps_its_empty_ends() -> None:
    """Bins without anything at either end stay where they are, however the column is aligned."""
    groups = Groups([("a",), ("b",)], [START] * 2, [END] * 2)
    column = MetricColumn([[4.0] + [0.0] * 19, [0.0] * 19 + [4.0]], [1.0] * 2, ["sm_active"] * 2)
    lines = printed(Readings((metric("utilization_histogram"),), ("job",), groups, [column]))
    assert lines[-2].split("|")[1] == "█" + " " * 19
    assert lines[-1].split("|")[1] == " " * 19 + "█"


def test_columns_say_their_units() -> None:
    """Two metrics of one title in different units can be told apart by their headings."""
    names = ("idle_gpu_hours", "idle_cost")
    columns = [MetricColumn([2.0], [1.0], [None]), MetricColumn([6.0], [0.5], [None], "contracted")]
    lines = printed(Readings([metric(n) for n in names], ("team",), Groups([("a",)], [START], [END]), columns))
    assert "Idle (GPU-hours)" in " ".join(lines)
    assert "Idle (USD)" in " ".join(lines)
    assert lines[-1].split() == ["a", "2", "$6.00", "50.0", "%"]


def test_small_unit_costs_are_those_of_a_million() -> None:
    """A cost of a token or a request that nobody can read is shown for a million of them, and says so; JSON keeps one."""
    names = ("cost_per_token", "cost_per_request", "cost_per_epoch")
    columns = [MetricColumn([value], [1.0], [None]) for value in (8.29e-8, 0.000276, 0.15)]
    for by, key in ((("team",), ("a",)), ((), ())):
        readings = Readings([metric(n) for n in names], by, Groups([key], [START], [END]), columns)
        text = " ".join(" ".join(printed(readings, 100)).split())
        assert all(amount in text for amount in ("$0.0829", "$276.00", "$0.15"))
        assert "per million tokens" in text
        assert "per million requests" in text
        assert json.loads(render_json(build_document(readings)))[0]["value"] == 8.29e-8


@pytest.mark.parametrize("width", [80, 100])
def test_a_wide_table_is_divided_where_it_does_not_fit(width: int) -> None:
    """Every metric by job: no line is wider than the terminal, no value is cut, and each part repeats the names."""
    names = [m for m in METRICS if m.name != "utilization_histogram"]
    columns = [MetricColumn([1234567.0 + i], [0.5], [None]) for i in range(len(names))]
    readings = Readings(names, ("job",), Groups([("a-job-with-a-long-name",)], [START], [END]), columns)
    lines = printed(readings, width)
    assert max(map(len, lines)) <= width
    table = next(table for table in build_document(readings).sections[0].tables)
    text = "\n".join(lines)
    assert all(cell in text for cell in table.text_rows()[0])
    assert text.count("a-job-with-a-long-name") > 1


def test_json_is_a_reading_a_line() -> None:
    """The list parses as a whole, and each line but the brackets is one reading."""
    text = render_json(build_document(answer(["a", "b"])))
    whole = json.loads(text)
    assert [r["value"] for r in whole] == [1.0, None]
    assert [json.loads(line.rstrip(",")) for line in text.splitlines()[1:-1]] == whole
    assert json.loads(render_json(build_document(answer([])))) == []


def test_csv_is_a_reading_a_line() -> None:
    """A column a dimension, values unrounded, unknown is empty; an answer without groups is a heading alone."""
    rows = list(csv.DictReader(io.StringIO(render_csv(build_document(answer(["a", None]))))))
    assert [(row["metric"], row["value"], row["job"]) for row in rows] == [("cost", "1.0", "a"), ("cost", "", "")]
    assert rows[0]["from"] == "2026-11-01T00:00:00Z"
    assert render_csv(build_document(answer([]))) == "metric,unit,value,from,to,coverage\n"


def test_one_reading_is_the_same_by_number_and_in_turn() -> None:
    """Indexing, slicing from the end and iterating agree."""
    readings = answer(["a", "b", "c"])
    assert list(readings) == readings[:] == [readings[i] for i in range(3)]
    assert readings[-1] == readings[2]
    with pytest.raises(IndexError):
        readings[3]
