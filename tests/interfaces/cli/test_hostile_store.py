"""A store whose names are escapes, formulas, links and HTML, through the real commands in every format."""

import csv
import io
import json
import re
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from loadfactor.base.spelling import HIDDEN, spell_out
from loadfactor.interfaces.cli import main

FIRST, LAST = "2026-05-01T00:00:00Z", "2026-05-01T10:00:00Z"
TEAM, JOB = "\x1b[31mred\x1b]0;x\x07", "=cmd|'/C calc'!A1"
NODE, POOL = "n\u202e0\x9b2J", "<script>alert(1)</script>"
LINK = "![x](http://a.b/c.png)"
Run = Callable[..., str]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables in a folder whose name is hostile, too."""
    folder = tmp_path_factory.mktemp("data") / "a\x1b[2Jb"
    folder.mkdir()
    write(folder, "devices", ("device_id", "node", "pool", "from_utc", "to_utc"), ("g\u200b0", NODE, POOL, FIRST, LAST))
    columns = ("job_id", "node", "gpus", "team", "project", "from_utc", "to_utc")
    write(folder, "allocations", columns, (JOB, NODE, 1, TEAM, LINK, FIRST, LAST))
    write(folder, "progress", ("job_id", "from_utc", "to_utc", "unit", "amount"), (JOB, FIRST, LAST, "to\x1bken", 5))
    write(folder, "prices", ("basis", "price_per_gpu_hour"), ("contracted", 1))
    return folder


def write(folder: Path, name: str, columns: tuple[str, ...], *rows: tuple[object, ...]) -> None:
    with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([columns, *rows])


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command: what it printed, which holds no hidden character but the ends of lines."""

    def _run(*words: object, code: int | None = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["loadfactor", *map(str, words)])
        with pytest.raises(SystemExit) as left:
            main()
        said = "".join(capsys.readouterr())
        assert code is None or (left.value.code or 0) == code
        assert not HIDDEN.search(said.replace("\n", ""))
        return said

    return _run


class _Tags(HTMLParser):
    """Collects the tags of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        self.tags.add(tag)


def test_names_are_text_in_every_command_and_format(tables: Path, tmp_path: Path, run: Run) -> None:
    """Import, show, report and doctor show the names spelled out; JSON has them as they are; nothing in them acts."""
    store = tmp_path / "b\x1b[5mooks"
    run("import", "tables", tables, "--store", store)
    for output_format in ("terminal", "md", "html", "csv", "json"):
        every = "team,project,job,node,pool,device"
        run("show", "cost", "paid_gpu_hours", "--by", every, "--store", store, "--format", output_format)
        run("report", "--store", store, "--format", output_format)
        run("doctor", "--store", store, "--format", output_format, code=None)
    teams = json.loads(run("show", "cost", "--by", "team", "--store", store, "--json"))
    assert TEAM in [reading["by"]["team"] for reading in teams]
    assert spell_out(TEAM) in run("show", "cost", "--by", "team", "--store", store)
    jobs = csv.DictReader(io.StringIO(run("show", "cost", "--by", "job", "--store", store, "--format", "csv")))
    assert f"'{JOB}" in [row["job"] for row in jobs]
    assert LINK not in run("show", "cost", "--by", "project", "--store", store, "--format", "md")
    page = _Tags()
    page.feed(run("report", "--by", "pool", "--store", store, "--format", "html"))
    assert not {"script", "img", "a"} & page.tags
    said = run("report", "--job", f"\x1b[31m{JOB}", "--store", store, code=2)
    assert re.search(r"--store \S*b\\x1b\[5mooks", said) or "did you mean" in said
    run("show", "cost", "--where", f"team={TEAM}\u202e", "--store", store, code=2)


def test_a_hint_names_the_store(tables: Path, tmp_path: Path, run: Run) -> None:
    """What to type after a job that nobody knows works as it stands."""
    run("import", "tables", tables, "--store", tmp_path / "books")
    assert f"--by job --store {tmp_path / 'books'}`" in run(
        "report", "--job", "nope", "--store", tmp_path / "books", code=2
    )


def test_without_idle_says_what_it_leaves_as_it_is(tables: Path, tmp_path: Path, run: Run) -> None:
    """With metrics that are no unit costs it says so, and is refused where none is one."""
    run("import", "tables", tables, "--store", tmp_path / "books")
    said = run("show", "cost", "cost_per_token", "--without-idle", "--store", tmp_path / "books")
    assert "loadfactor: --without-idle changes unit costs alone; as without it: cost\n" in said
    assert "unit costs alone" in run("show", "cost", "--without-idle", "--store", tmp_path / "books", code=2)
