"""Answers of one snapshot fit together while the books are written; compiled SQL that is kept changes none."""

import ast
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.metadata import version
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from tests.ledger.test_books_balance import near

import loadfactor
from loadfactor.base.errors import InputError
from loadfactor.books import booking, compiled_sql, rebuild, window_ledger
from loadfactor.books.books import Books
from loadfactor.books.compiled_sql import list_writers, recall
from loadfactor.books.kept_sums import LEDGER_FILES
from loadfactor.metrics.query.calendar import Window, milliseconds

PACKAGE = Path(loadfactor.__file__).parent
DEVICES = "device_id,accelerator,from_utc,to_utc\n{device},h100-sxm,2026-10-24T00:00:00Z,2026-10-24T04:00:00Z\n"


def add_device(books: Books, folder: Path, device: str) -> None:
    """Import four hours of one GPU."""
    path = folder / device
    path.mkdir()
    (path / "devices.csv").write_text(DEVICES.format(device=device))
    books.add("tables", [path])


def paid(asked: object) -> list[object]:
    return [r.value for r in asked.show(["paid_gpu_hours"])]  # type: ignore[attr-defined]


@pytest.mark.long
def test_a_snapshot_stays_as_it_was_taken(tmp_path: Path) -> None:
    """What is imported meanwhile is in the next snapshot, and the files of this one stay until it ends."""
    books = Books(tmp_path / "books")
    add_device(books, tmp_path, "g0")
    with books.snapshot() as before:
        assert paid(before) == [4.0]
        add_device(books, tmp_path, "g1")
        books.compact()
        assert paid(before) == [4.0]
        assert before.check().is_sound
        assert paid(books) == [8.0]


@pytest.mark.long
def test_many_threads_ask_one_object(tmp_path: Path) -> None:
    """A hundred questions of eight threads, beside imports, each answered from one state of the books."""
    books = Books(tmp_path / "books")
    add_device(books, tmp_path, "g0")
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(lambda: paid(books) + paid(books)) for _ in range(50)]
        for number in range(1, 4):
            add_device(books, tmp_path, f"g{number}")
        values = [answer.result() for answer in answers]
    assert all(first in (4.0, 8.0, 12.0, 16.0) and first <= second for first, second in values)  # type: ignore[operator]


def test_the_same_question_of_one_snapshot_and_of_the_books_is_one(simulated_books: Books) -> None:
    """Everything by team, asked twice of a snapshot and once of the books, has the same digits in the same order."""
    with simulated_books.snapshot() as snapshot:
        first = [r.as_json() for r in snapshot.show(by="team")]
        assert [r.as_json() for r in snapshot.show(by="team")] == first
    assert [r.as_json() for r in simulated_books.show(by="team")] == first


@pytest.mark.long
def test_a_filter_says_what_a_split_says(simulated_books: Books) -> None:
    """What a question with a filter finds is the part of the unfiltered answer that is split by it; in cut hours, too."""
    start, end = simulated_books.span
    noon = start + timedelta(hours=12, minutes=10)
    asked = ["utilization", "allocated_gpu_hours", "cost"]
    with simulated_books.snapshot() as snapshot:
        for name in ("team", "device", "user"):
            of_all = snapshot.show(asked, ["day", name], noon, end)
            for value in sorted({r.by[name] for r in of_all if r.by[name] is not None})[:3]:
                part = snapshot.show(asked, ["day"], noon, end, where={name: value})
                expected = [(r.metric, r.by["day"], r.value) for r in of_all if r.by[name] == value]
                assert [r[:2] for r in expected] == [(r.metric, r.by["day"]) for r in part]
                assert all(near(r.value, true) for r, (*_, true) in zip(part, expected, strict=True))


@pytest.mark.long
def test_books_are_checked_meanwhile(simulated_books: Books) -> None:
    """A check in a thread of its own finds what a check finds, beside questions, and where hours are not booked yet."""
    whole = simulated_books.check()
    with simulated_books.snapshot() as snapshot, snapshot.checking():
        assert paid(snapshot) == paid(simulated_books)
        assert snapshot.check() == whole
    with Books(simulated_books.store.folder, idle_below=0.2).snapshot() as snapshot, snapshot.checking():
        assert snapshot.check().is_sound


@pytest.mark.long
def test_kept_sums_answer_like_the_ledger(simulated_books: Books) -> None:
    """Questions have the same answers from kept sums and without, filtered too, in windows and zones that cut hours and days."""
    start, end = simulated_books.span
    noon, berlin = start + timedelta(hours=12, minutes=10), ZoneInfo("Europe/Berlin")
    questions = [
        {"by": by, "start": first, "end": end, "timezone": zone, "where": where}
        for by in ((), ("team",), ("day", "pool"), ("job", "state"), ("node", "hour"), ("hour",))
        for first in (noon, start)
        for zone in (UTC, berlin)
        for where in (None, {"team": "vision"})
    ]
    with simulated_books.snapshot() as snapshot:
        before = [snapshot.show(**question) for question in questions]
        derived = snapshot._session.derived
        derived[LEDGER_FILES] = replace(derived[LEDGER_FILES], sums={})
        snapshot._session.overlay._kept.clear()
        after = [snapshot.show(**question) for question in questions]
    for question, first, second in zip(questions, before, after, strict=True):
        assert [(r[:2], r[3:7], r[8:]) for r in second] == [(r[:2], r[3:7], r[8:]) for r in first], question
        assert all(
            near(a.value, b.value) and near(a.coverage, b.coverage) for a, b in zip(first, second, strict=True)
        ), question


@pytest.mark.long
def test_the_groups_with_most_are_those_of_all(simulated_books: Books) -> None:
    """Chosen by the engine: in the same order as out of all groups, where fewer have any, too."""
    for name, by in (("idle_cost", "job"), ("idle_gpu_hours", ("device", "team")), ("down_cost", "job")):
        chosen = simulated_books.show((name, "cost", "utilization"), by, most=7)
        everything = simulated_books.show((name, "cost", "utilization"), by).arrange(name, True, 7)
        assert [(r.metric, r.by) for r in chosen] == [(r.metric, r.by) for r in everything]
        assert [r.value for r in chosen] == pytest.approx([r.value for r in everything], nan_ok=True)


def test_a_folder_without_books_says_how_to_begin(tmp_path: Path) -> None:
    """Opening it is an InputError, unless the books are to be made there; nothing is written by opening."""
    with pytest.raises(InputError, match=r"no books in .*; begin with `loadfactor import"):
        loadfactor.open(tmp_path / "none")
    assert isinstance(loadfactor.open(tmp_path / "none", create=True), loadfactor.Books)
    assert not (tmp_path / "none").exists()


def test_one_name_is_enough(simulated_books: Books) -> None:
    """A metric or dimension alone needs no list, and readings show themselves."""
    (whole,) = simulated_books.show("utilization")
    assert repr(whole).startswith("<utilization = 0.")
    teams = simulated_books.show("utilization", by="team")
    assert len(repr(teams).splitlines()) == len(teams)


def test_a_wide_frame_has_a_row_a_group(simulated_books: Books) -> None:
    """A column a dimension, from, to, and a column a metric; a notebook shows it as a table."""
    readings = simulated_books.show(["utilization", "cost"], by="team")
    wide = readings.to_wide()
    assert list(wide.columns) == ["team", "from", "to", "utilization", "cost"]
    assert len(wide) * 2 == len(readings)
    assert wide.cost.sum() == sum(r.value for r in readings if r.metric == "cost")
    assert "<table" in readings._repr_html_()


def test_books_are_checked(simulated_books: Books) -> None:
    """Both sides of the books and what there is to know of them."""
    checked = simulated_books.check()
    assert checked.is_sound
    assert checked.balance.booked_gpu_hours == pytest.approx(checked.balance.installed_gpu_hours, rel=1e-12)
    assert all(finding.do for finding in checked.findings)


def test_weeks_and_months_are_those_of_the_local_calendar() -> None:
    """Weeks begin on Monday, a month of daylight saving's end has an hour more, and each touches the window."""
    berlin = ZoneInfo("Europe/Berlin")
    start, end = datetime(2026, 10, 1, tzinfo=berlin), datetime(2026, 11, 3, tzinfo=berlin)
    window = Window(milliseconds(start), milliseconds(end), berlin)
    months = window.periods("month")
    assert [(last - first) / 3_600_000 for first, last in months.values()] == [31 * 24 + 1, 48]
    assert list(window.periods("week"))[0::4] == ["2026-W40", "2026-W44"]


def test_weeks_are_the_sum_of_their_days(simulated_books: Books) -> None:
    """A split by week or month adds up to the whole, and its readings speak of that part of the window."""
    start, end = simulated_books.span
    (whole,) = simulated_books.show("cost")
    for unit in ("week", "month"):
        parts = simulated_books.show("cost", by=unit)
        assert sum(r.value for r in parts) == pytest.approx(whole.value, rel=1e-12)
        assert (parts[0].start, parts[-1].end) == (start, end)
        assert parts[0].by.keys() == {unit}


@pytest.mark.long
def test_the_same_question_has_the_same_digits(simulated_books: Books) -> None:
    """However often it is asked, with hours that the window cuts, too."""
    start, end = simulated_books.span
    cut = (start + timedelta(minutes=17), end - timedelta(minutes=33))

    def ask() -> list[object]:
        readings = Books(simulated_books.store.folder).show(by=["team", "day"], start=cut[0], end=cut[1], timezone=UTC)
        return [(r.metric, r.by, r.value, r.coverage) for r in readings]

    first = ask()
    assert all(ask() == first for _ in range(5))


@pytest.mark.long
def test_hours_that_windows_cut_are_booked_once(simulated_books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot that is asked of one window, another, and of the first again books twice, and says what others say."""
    start, end = simulated_books.span
    windows = [(start + timedelta(minutes=m), end - timedelta(minutes=m)) for m in (17, 23, 17)]
    booked, book = [], window_ledger.book
    monkeypatch.setattr(window_ledger, "book", lambda *given: (booked.append(given[1]), book(*given)))
    with simulated_books.snapshot() as snapshot:
        found = [[r.value for r in snapshot.show(["cost", "utilization"], (), *of)] for of in windows]
    assert len(booked) == 2
    of_others = Books(simulated_books.store.folder).show(["cost", "utilization"], (), *windows[0])
    assert found[0] == pytest.approx([r.value for r in of_others])
    assert found[2] == pytest.approx(found[0], rel=1e-12)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of a process that has compiled nothing yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(compiled_sql, "_known", {})
    return tmp_path / "loadfactor"


def forget_and_recall(monkeypatch: pytest.MonkeyPatch, sql: str) -> dict[str, str]:
    """What another process is given that would compile `sql`."""
    monkeypatch.setattr(compiled_sql, "_known", {})
    return recall("a question", lambda: {"sums": sql})


def test_a_question_is_compiled_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next process reads what the first one compiled."""
    assert forget_and_recall(monkeypatch, "SELECT 1") == {"sums": "SELECT 1"}
    assert forget_and_recall(monkeypatch, "SELECT 2") == {"sums": "SELECT 1"}
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize("damage", [b"", b"\xff\x00", b"0" * 32 + b'\n{"sums": "SELECT 3"}'])
def test_damage_is_compiled_again(folder: Path, monkeypatch: pytest.MonkeyPatch, damage: bytes) -> None:
    """An entry whose bytes are not those that were written is not believed."""
    forget_and_recall(monkeypatch, "SELECT 1")
    next(folder.iterdir()).write_bytes(damage)
    assert forget_and_recall(monkeypatch, "SELECT 2") == {"sums": "SELECT 2"}


def test_a_cache_that_cannot_be_written_is_done_without(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file stands where the folder should be: answers come all the same."""
    folder.write_text("")
    assert forget_and_recall(monkeypatch, "SELECT 1") == {"sums": "SELECT 1"}


@pytest.mark.long
def test_the_ledger_is_booked_from_kept_sql(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next process books the same ledger without compiling a step; of a step the forms that nobody used yet wait."""
    tables = tmp_path / "tables"
    tables.mkdir()
    (tables / "devices.csv").write_text("device_id,from_utc,to_utc\ng,2026-01-01T00:20:00Z,2026-01-01T02:40:00Z\n")

    def book(name: str) -> list[dict[str, object]]:
        monkeypatch.setattr(compiled_sql, "_known", {})
        books = Books(tmp_path / name)
        books.add("tables", [tables])
        return sorted(books.table("ledger").to_pyarrow().to_pylist(), key=lambda row: int(row["hour_utc"]))

    first = book("first")
    for module in (booking, rebuild):
        monkeypatch.setattr(module, "ledger_steps", None)
    assert book("second") == first
    assert len(first) == 3
    kept: dict[str, str] = {}
    for path in folder.glob("sql-*"):
        kept |= json.loads(path.read_text(encoding="utf-8").partition("\n")[2])
    assert kept["holdings without scoped_claims"]
    assert not kept["holdings"]


DEFINITIONS = (
    "books/expressions.py",
    "ledger/steps.py",
    "books/charging/fleet_chargeback.py",
)
"""Modules with functions that write SQL."""


def list_imports(module: Path) -> set[Path]:
    """Modules of this program that one imports anywhere in its text, and the packages they lie in."""
    names = set()
    for node in ast.walk(ast.parse(module.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    paths = [PACKAGE.parent.joinpath(*name.split(".")) for name in names if name.startswith(f"{PACKAGE.name}.")]
    return {file for path in paths for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()}


def test_every_module_that_sql_depends_on_is_in_its_digest() -> None:
    """What the definitions import, at any depth, decides what their SQL says: tables/schema.py renames a column, say."""
    reached: set[Path] = set()
    pending = {PACKAGE / name for name in DEFINITIONS[:-1]}
    while pending:
        module = pending.pop()
        reached.add(module)
        pending |= list_imports(module) - reached
    assert len(reached) > 20
    assert reached <= {*list_writers(PACKAGE)}


def test_every_module_that_keeps_sql_is_in_its_digest() -> None:
    """A module that hands SQL of its own to `recall` is read, wherever it lies: page.py of the exports, say."""
    callers = {
        path
        for path in PACKAGE.rglob("*.py")
        if re.search(r"\b(recall|keep)\(", path.read_text()) and (compiled_sql.__name__ in path.read_text())
    }
    assert PACKAGE / "interfaces/exports/page.py" in callers
    assert callers <= {*list_writers(PACKAGE)}


@pytest.mark.parametrize("module", [*DEFINITIONS, "interfaces/exports/page.py", "tables/schema.py", "base/units.py"])
def test_sql_of_another_text_is_not_used(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    """A letter of a module changes, not its size nor its time: the next process compiles anew."""
    program = tmp_path / "program"
    for path in list_writers(PACKAGE):
        (program / path.relative_to(PACKAGE)).parent.mkdir(parents=True, exist_ok=True)
        (program / path.relative_to(PACKAGE)).write_bytes(path.read_bytes())
    digest_again = partial(compiled_sql.digest_program.__wrapped__, program)
    monkeypatch.setattr(compiled_sql, "digest_program", digest_again)
    assert forget_and_recall(monkeypatch, "SELECT 1") == {"sums": "SELECT 1"}
    assert forget_and_recall(monkeypatch, "SELECT 2") == {"sums": "SELECT 1"}
    times = (program / module).stat()
    text = (program / module).read_text()
    (program / module).write_text(text.replace("e", "E", 1))
    os.utime(program / module, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert forget_and_recall(monkeypatch, "SELECT 2") == {"sums": "SELECT 2"}
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("name", ["loadfactor", "ibis-framework", "sqlglot", "duckdb"])
def test_sql_of_another_version_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """After an upgrade of the program, or of a library that writes or reads SQL, the next process compiles anew."""
    monkeypatch.setattr(compiled_sql, "digest_program", compiled_sql.digest_program.__wrapped__)
    assert forget_and_recall(monkeypatch, "SELECT 1") == {"sums": "SELECT 1"}
    if name == PACKAGE.name:
        monkeypatch.setattr(loadfactor, "__version__", "99")
    else:
        monkeypatch.setattr(compiled_sql, "version", lambda asked: "99" if asked == name else version(asked))
    assert forget_and_recall(monkeypatch, "SELECT 2") == {"sums": "SELECT 2"}
    assert len(list(folder.iterdir())) == 2
