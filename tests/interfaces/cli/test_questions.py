"""Questions as people type them: lists, lengths of time, months, orders, files; and what cannot be asked."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.commands import Run, make_run

from loadfactor.interfaces.requests import DIMENSIONS as NAMED
from loadfactor.interfaces.requests import BooksRequest
from loadfactor.tables.schema import DIMENSIONS


@pytest.fixture
def run(october: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command on the books of three days of eight GPUs: exit code, standard output, standard error."""
    return make_run(capsys, monkeypatch, "--store", october)


def readings(answer: tuple[int, str, str]) -> list[dict[str, object]]:
    code, out, err = answer
    assert (code, err) == (0, "")
    found: list[dict[str, object]] = json.loads(out)
    return found


def test_lists_are_written_with_commas_or_repeated(run: Run) -> None:
    """`--by a,b`, `--by a --by b` and metrics with commas ask the same; nothing is dropped."""
    once = readings(run("show", "cost,idle_cost", "--by", "team,day", "--json"))
    again = readings(run("show", "cost", "idle_cost", "--by", "team", "--by", "day", "--format", "json"))
    assert once == again
    assert set(once[0]["by"]) == {"team", "day"}  # type: ignore[call-overload]
    both = readings(run("show", "cost", "--where", "team=vision,purpose=training", "--json"))
    assert both == readings(run("show", "cost", "--where", "team=vision", "--where", "purpose=training", "--json"))


def test_a_comma_in_a_filter_belongs_to_its_value() -> None:
    """A piece without a sign is the rest of the value before it."""
    assert BooksRequest(where="job=a,b,team=c").filters == {"job": "a,b", "team": "c"}  # type: ignore[arg-type]


def test_windows_are_written_as_people_say_them(run: Run) -> None:
    """A month is its first instant; a length of time ends where the books or the window end."""
    (month,) = readings(run("show", "cost", "--from", "2026-10", "--to", "2026-11", "--json"))
    assert (month["from"], month["to"]) == ("2026-10-01T00:00:00Z", "2026-11-01T00:00:00Z")
    (last,) = readings(run("show", "cost", "--last", "12h", "--json"))
    assert (last["from"], last["to"]) == ("2026-10-07T18:00:00Z", "2026-10-08T06:00:00Z")
    (before,) = readings(run("show", "cost", "--last", "1d", "--to", "2026-10-07", "--json"))
    assert (before["from"], before["to"]) == ("2026-10-06T00:00:00Z", "2026-10-07T00:00:00Z")


def test_groups_are_sorted_and_limited(run: Run) -> None:
    """By a metric or a dimension, either way, as many as asked for."""
    costs = [
        r["value"] for r in readings(run("show", "cost", "--by", "team", "--sort", "-cost", "--limit", 3, "--json"))
    ]
    assert len(costs) == 3
    assert costs == sorted(costs, reverse=True)  # type: ignore[type-var]
    reverse = [
        r["value"] for r in readings(run("show", "cost", "--by", "team", "--sort", "cost", "--reverse", "--json"))
    ]
    assert reverse[:3] == costs
    days = [r["by"]["day"] for r in readings(run("show", "cost", "--by", "day", "--sort", "-day", "--json"))]  # type: ignore[index]
    assert days == sorted(days, reverse=True)


@pytest.mark.parametrize("suffix", [".csv", ".json", ".md", ".html", ".txt"])
def test_an_answer_is_written_by_its_suffix(suffix: str, run: Run, tmp_path: Path) -> None:
    """`show -o FILE` writes the table or the data; the terminal says where."""
    path = tmp_path / f"answer{suffix}"
    code, out, _ = run("show", "cost", "--by", "team", "-o", path)
    assert code == 0
    assert str(path) in out.replace("\n", "")
    text = path.read_text()
    assert "vision" in text
    if suffix == ".csv":
        assert {row["team"] for row in csv.DictReader(text.splitlines())} >= {"vision", "speech"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", "utilizaton"), "no metric called 'utilizaton'; did you mean 'utilization'?"),
        (("show", "cost", "--by", "tema"), "no dimension called 'tema'; did you mean 'team'?"),
        (("show", "cost", "--where", "team=visoin"), "no team called 'visoin'; did you mean 'vision'?"),
        (("show", "cost", "--where", "taem=vision"), "no dimension called 'taem'; did you mean 'team'?"),
        (("show", "cost", "--basis", "contracts"), "no cost basis called 'contracts'; did you mean 'contracted'?"),
        (("show", "cost", "--format", "jsno"), "no format called 'jsno'; did you mean 'json'?"),
        (("show", "cost", "--by", "team", "--sort", "costs"), "did you mean 'cost'?"),
        (("show", "cost", "--sort", "cost"), "say which with --by"),
        (("show", "cost", "--limit", "0", "--by", "team"), "--limit must be at least 1, got 0"),
        (("show", "cost", "--last", "7 parsecs"), "'7 parsecs' is no length of time; write 90min, 12h, 7d or 4w"),
        (
            ("show", "cost", "--last", "1d", "--from", "2026-10-06"),
            "both say where the window begins; give one of them",
        ),
        (("show", "cost", "--from", "2026-13"), "'2026-13' is no time"),
        (("show", "cost", "--from", "2025-01", "--to", "2025-02"), "they cover 2026-10-05"),
        (("report", "--from", "2027-01"), "they cover 2026-10-05"),
        (("import", "nvidia_smi", "x.csv"), "no source called 'nvidia_smi'; did you mean"),
        (("doctor", "--format", "xml"), "no format called 'xml'"),
    ],
)
def test_a_mistake_gets_the_nearest_on_one_line(words: tuple[str, ...], said: str, run: Run) -> None:
    """Whatever is mistyped is exit code 2 and one line that helps."""
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert said in err


def test_doctor_exits_with_1_where_the_books_do_not_balance(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer "no" is exit code 1, in any format."""
    from loadfactor.books.check import Balance

    assert run("doctor")[0] == 0
    monkeypatch.setattr(Balance, "holds", property(lambda _: False))
    assert run("doctor")[0] == run("doctor", "--json")[0] == 1


def test_the_help_names_every_dimension() -> None:
    """What `--by --help` lists is what a question can be split by."""
    assert NAMED.split(", ") == list(DIMENSIONS)


def test_a_question_imports_nothing_that_it_does_not_ask(run: Run, october: Path) -> None:
    """Booked hours are answered without what writes, compiles, draws charts or reads live batches."""
    assert run("show", "utilization", "--by", "team")[0] == 0  # its SQL is compiled now
    needless = (
        *("ibis", "pandas", "pyarrow", "numba", "matplotlib", "plotext", "sqlglot", "loadfactor.books.writing"),
        *(f"loadfactor.store.{name}" for name in ("writer", "live", "live_rows", "importing", "compaction", "repair")),
        *("loadfactor.books.check", "loadfactor.interfaces.charts.terminal", "loadfactor.sources"),
    )
    program = (
        "import sys; from loadfactor.interfaces.cli import main\n"
        "try: main()\n"
        f"finally: print(sorted(set({needless!r}) & set(sys.modules)), file=sys.stderr)"
    )
    words = [sys.executable, "-c", program, "show", "utilization", "--by", "team", "--store", str(october)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "[]\n")
