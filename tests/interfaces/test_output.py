"""Output of commands: whole files, progress bars, templates of tables, and readings on a page or as JSON."""

import csv
import io
import json
import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console
from tests.commands import measure_width
from tests.interfaces.render.test_document import ANSWER
from tests.sources.reading import read
from typer.testing import CliRunner

from loadfactor.base.errors import InputError, LoadfactorError
from loadfactor.base.spelling import HIDDEN
from loadfactor.interfaces.cli import app
from loadfactor.interfaces.pages.lists import build_tables_page as build_page
from loadfactor.interfaces.pages.readings import build_document
from loadfactor.interfaces.progress import ProgressBar, show_progress
from loadfactor.interfaces.render.json import render_csv, render_json
from loadfactor.interfaces.render.present import SUFFIXES, replacing, write_document
from loadfactor.interfaces.render.terminal import MOST_FITTED, render_text
from loadfactor.interfaces.requests import TablesRequest
from loadfactor.metrics import METRICS, metric
from loadfactor.metrics.query.reading import Groups, MetricColumn, Readings
from loadfactor.sources.own_tables import SOURCE
from loadfactor.tables.schema import GIVEN


@contextmanager
def small_files(most_bytes: int) -> Iterator[None]:
    """No file of this process may grow over so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "tiny"
    folder.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8k", "none", folder], check=False, capture_output=True
    ).returncode:
        pytest.skip("no tmpfs may be mounted here")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize(
    ("name", "value", "coverage", "said"),
    [
        ("cost_per_token", None, None, "no job says its train tokens"),
        ("cost_per_token", None, 0.0, "no price of the GPUs is known"),
        ("mfu", None, None, "network, datatype and accelerator"),
        ("cost_per_token", 1e-6, 1.0, ""),
    ],
)
def test_unknown_work_is_explained(name: str, value: float | None, coverage: float | None, said: str) -> None:
    """A page of metrics of work of which nothing is known says why."""
    at = datetime(2026, 5, 1, tzinfo=UTC)
    column = MetricColumn([value], [coverage], [None])
    page = build_document(Readings([metric(name)], (), Groups([()], [at], [at]), [column]))
    assert said in (page.subtitle or "")
    assert ("is unknown" in (page.subtitle or "")) == bool(said)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_may_not_grow_leaves_the_old_one(suffix: str, tmp_path: Path) -> None:
    """Where writing fails in the middle, the file of before is as it was, nothing lies beside it, and one line says so."""
    write_document(ANSWER, tmp_path / f"once{suffix}")  # what drawing caches is written now
    path = tmp_path / f"answer{suffix}"
    path.write_text("the old one")
    with small_files(40), pytest.raises(LoadfactorError, match=r"File too large.*as it was") as said:
        write_document(ANSWER, path)
    assert not isinstance(said.value, InputError)
    assert path.read_text() == "the old one"
    assert {file.name for file in tmp_path.iterdir()} == {f"once{suffix}", f"answer{suffix}"}


def test_a_full_disk_leaves_the_old_file(tiny_disk: Path) -> None:
    """The same on a disk that is full."""
    path = tiny_disk / "answer.html"
    path.write_text("the old one")
    with pytest.raises(LoadfactorError, match="No space left on device"):
        write_document(ANSWER, path)
    assert path.read_text() == "the old one"
    assert [file.name for file in tiny_disk.iterdir()] == ["answer.html"]


def test_templates_are_whole_or_not_there(tmp_path: Path) -> None:
    """Templates on a full disk: none of them is half there."""
    folder = tmp_path / "new"
    with small_files(300), pytest.raises(LoadfactorError, match=r"--write .*File too large"):
        build_page(TablesRequest(write=folder))
    whole = build_page(TablesRequest(write=tmp_path / "whole")).data
    lengths = {path.name: path.stat().st_size for path in whole}
    assert all(path.stat().st_size == lengths[path.name] for path in folder.iterdir())


def test_a_link_stays_and_its_target_is_written(tmp_path: Path) -> None:
    """An output that is a symbolic link to a file, there or not yet, is written where it points, with the rights of before."""
    (tmp_path / "there").mkdir()
    target, link, dangling = tmp_path / "there" / "real.md", tmp_path / "link.md", tmp_path / "later.md"
    target.write_text("the old one")
    target.chmod(0o640)
    link.symlink_to(target)
    dangling.symlink_to("there/new.md")
    write_document(ANSWER, link)
    write_document(ANSWER, dangling)
    assert link.is_symlink()
    assert dangling.is_symlink()
    assert target.read_text() == (tmp_path / "there" / "new.md").read_text() != "the old one"
    assert target.stat().st_mode & 0o777 == 0o640
    assert len(list(tmp_path.rglob("*"))) == 5


def test_a_tilde_in_an_output_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--output ~/x.md is written in the home folder, and the path that is told is that one."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert write_document(ANSWER, Path("~/x.md")) == tmp_path / "x.md"
    assert (tmp_path / "x.md").is_file()


def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    """What is no plain file is written to, not replaced."""
    pipe = tmp_path / "pipe.md"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with replacing(pipe) as beside:
        beside.write_text("said")
    assert os.read(reading, 100) == b"said"
    os.close(reading)
    assert pipe.is_fifo()


def shown(bar: ProgressBar, width: int = 80) -> str:
    """What the bar shows now."""
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(bar._progress.get_renderable())
    return out.getvalue().rstrip("\n")


def make_bar(now: list[float]) -> ProgressBar:
    """A bar on a terminal of 80 columns whose clock is `now`."""
    console = Console(file=io.StringIO(), force_terminal=True, width=80, _environ={"TERM": "xterm"})
    return ProgressBar(console, lambda: now[0])


def test_the_time_left_is_that_of_the_stage() -> None:
    """Share, pace, elapsed and left are shown; another stage starts afresh."""
    now = [0.0]
    bar = make_bar(now)
    for second in range(5):
        now[0] = float(second)
        bar("writing samples", second / 20)
    assert "writing samples" in shown(bar)
    assert "20 %, 5 %/s, 4 s, 16 s left" in shown(bar)
    bar("booking", 0.0)
    assert "left" not in shown(bar)
    now[0] = 30.0
    assert shown(bar).endswith(" 26 s")


def test_a_stage_that_begins_while_the_bar_is_drawn_is_shown() -> None:
    """Between two stages the share is 0 and the total still known; the time alone is shown."""
    now = [0.0]
    bar = make_bar(now)
    bar("booking", 0.5)
    bar._progress.reset(bar._task)
    now[0] = 3.0
    assert shown(bar).endswith(" 3 s")


def test_a_long_or_hostile_name_stays_in_the_line() -> None:
    """A name with escapes and markup is text, and one line of 80 columns holds it all."""
    now = [0.0]
    bar = make_bar(now)
    for second in range(3):
        now[0] = second * 4000.0
        bar("reading [red]\x1b]0;x\x07\u202e" + "a" * 200, second / 7)
    line = shown(bar)
    assert len(line) <= 80
    assert not HIDDEN.search(line)
    assert r"reading [red]\x1b]" in line
    assert line.endswith(" left")


def test_nothing_is_shown_where_nobody_looks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pipe gets nothing, whatever the environment says of colours."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert list(show_progress([1, 2, 3], "counting")) == [1, 2, 3]
    assert capsys.readouterr() == ("", "")


runner = CliRunner()


@pytest.mark.parametrize("width", [80, 100])
def test_the_schema_fits_the_terminal_and_names_every_column(width: int) -> None:
    """Every table and column is there, and no line is too long."""
    done = runner.invoke(app, ["tables"], env={"COLUMNS": str(width)})
    assert done.exit_code == 0
    assert measure_width(done.output) <= width
    for table in GIVEN:
        assert f"{table.name}: one row says" in done.output
        assert all(c.name in done.output for c in table.columns)


def test_json_is_the_schema() -> None:
    """Plain JSON with every column, its kind, and whether it may be empty."""
    got = json.loads(runner.invoke(app, ["tables", "--format", "json"]).output)
    assert [t["name"] for t in got] == [t.name for t in GIVEN]
    basis = next(c for t in got if t["name"] == "prices" for c in t["columns"] if c["name"] == "basis")
    assert basis["required"]
    assert "contracted" in basis["one_of"]


def test_templates_have_the_header_and_import_as_nothing(tmp_path: Path) -> None:
    """A CSV for each table and a README; unfilled they add no rows."""
    folder = tmp_path / "new"
    assert runner.invoke(app, ["tables", "--write", str(folder)]).exit_code == 0
    for table in GIVEN:
        with (folder / f"{table.name}.csv").open() as file:
            assert next(csv.reader(file)) == [c.name for c in table.columns]
    assert all(f"## {t.name}" in (folder / "README.md").read_text() for t in GIVEN)
    assert read(SOURCE, folder).tables == {}


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    """One file that is there already stops all of them."""
    (tmp_path / "prices.csv").write_text("mine")
    done = runner.invoke(app, ["tables", "--write", str(tmp_path)])
    assert isinstance(done.exception, InputError)
    assert "holds prices.csv already" in str(done.exception)
    assert [p.name for p in tmp_path.iterdir()] == ["prices.csv"]


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


def test_what_was_requested_and_is_unknown_of_all_stays() -> None:
    """Carbon without a table [energy] has dashes and a reason; coverage is that of what is known."""
    groups = Groups([("a",), ("b",)], [START] * 2, [END] * 2)
    columns = [
        MetricColumn([1.0] * 2, [1.0] * 2, [None] * 2, "contracted"),
        MetricColumn([None] * 2, [0.0] * 2, [None] * 2),
    ]
    page = "\n".join(printed(Readings((metric("cost"), metric("carbon_kg")), ("team",), groups, columns), 100))
    assert "is unknown: loadfactor.toml has no table [energy]." in " ".join(page.split())
    assert page.splitlines()[-1].split() == ["b", "$1.00", "–"]
    assert "coverage" not in page


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
    assert measure_width("\n".join(lines)) <= width
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
