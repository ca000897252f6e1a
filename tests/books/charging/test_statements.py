"""Statements of teams: they sum to the bill in every kind of file, closed versions stay as they were, corrections are named."""

import csv
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from openpyxl import load_workbook
from pypdf import PdfReader
from tests.commands import Run

import loadfactor
from loadfactor.base.errors import InputError
from loadfactor.base.paths import name_file
from loadfactor.books.books import Books
from loadfactor.settings.config import settings

ALLOCATIONS = "job_id,device_id,team,from_utc,to_utc\n"
HELD = (
    "a,g0,vision,2026-09-05T00:00Z,2026-09-05T04:00Z\n"
    "b,g0,=1+1/../x,2026-10-05T00:00Z,2026-10-05T03:00Z\n"
    "c,g0,vision,2026-10-06T00:00Z,2026-10-06T01:30Z\n"
)
LATE = "d,g0,speech,2026-09-07T00:00Z,2026-09-07T02:00Z\n"
ODD = "=1+1/../x"


@pytest.fixture
def books(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Books]:
    """One GPU at $2 over September and October, its time held by vision and an odd name, the rest shared by held hours."""
    monkeypatch.chdir(tmp_path)
    Path("loadfactor.toml").write_text('[chargeback]\nunallocated = "held hours"\n')
    settings.cache_clear()
    add(
        books := Books(tmp_path / "books"),
        "devices",
        "device_id,node,from_utc,to_utc\ng0,n0,2026-09-01T00:00Z,2026-11-01T00:00Z\n",
    )
    add(books, "prices", "basis,price_per_gpu_hour\ncontracted,2\n")
    add(books, "allocations", ALLOCATIONS + HELD)
    yield books
    monkeypatch.undo()
    settings.cache_clear()


def add(books: Books, table: str, text: str) -> None:
    """Import a table."""
    path = books.store.folder.parent / f"{table}.csv"
    path.write_text(text)
    books.add("tables", [path])


def test_a_line_has_hours_rate_and_amount_and_a_share_its_rule(books: Books) -> None:
    """Vision held 1.5 of 4.5 hours in October: $3 of its own, and a third of the $1,479 that nobody held."""
    found = {of.name: of for of in books.read_statements("2026-10")}
    vision = found["vision"]
    lines = [(line.name, line.is_share, str(line.hours), str(line.amounts["EffectiveCost"])) for line in vision.lines]
    assert lines == [("share of unallocated", True, "None", "493.00"), ("unobserved", False, "1.500000000", "3.00")]
    assert vision.lines[1].rates["EffectiveCost"] == 2
    assert "held hours" in vision.lines[0].method
    assert [str(of["EffectiveCost"]) for of in (vision.direct, vision.shared, vision.amounts)] == [
        "3.00",
        "493.00",
        "496.00",
    ]
    whole = books.chargeback("2026-10").totals["EffectiveCost"].charged
    assert sum(of.amounts["EffectiveCost"] for of in found.values()) == whole == 31 * 24 * 2
    page = loadfactor.statement(team="vision", month="2026-10", store=books.store.folder)
    assert page.data == vision
    with pytest.raises(InputError, match=r"no team .* 'visio'.*vision"):
        loadfactor.statement(team="visio", month="2026-10", store=books.store.folder)


def test_owners_with_like_names_get_a_file_each(books: Books, tmp_path: Path, run: Run) -> None:
    """The teams ml:eu, ml|eu, all and `pool ml` and the page of all are five files beside that of vision and the odd name."""
    teams = ("ml:eu", "ml|eu", "all", "pool ml")
    held = "".join(f"{team},g0,{team},2026-10-1{n}T00:00Z,2026-10-1{n}T01:00Z\n" for n, team in enumerate(teams))
    add(books, "allocations", ALLOCATIONS + held)
    run("statement", "--month", "2026-10", "--output", tmp_path / "out", "--files", "json", "--store", "books")
    assert len(list((tmp_path / "out").iterdir())) == len(teams) + 3
    for team in teams:
        path = tmp_path / "out" / f"2026-10 {name_file(team)}.json"
        assert json.loads(path.read_text())["team"] == team


@pytest.mark.usefixtures("books")
def test_every_team_has_its_files_in_a_folder(tmp_path: Path, run: Run) -> None:
    """Names of files leave out what a path may not hold, and the amounts in each kind of file sum to the bill."""
    kinds = "pdf,xlsx,html,csv,json,md"
    code, out, _ = run(
        "statement", "--month", "2026-10", "--output", tmp_path / "out", "--files", kinds, "--store", "books"
    )
    assert code == 0
    assert "Written: 18 files" in out.replace("\n", " ")
    files = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert files == sorted(
        f"2026-10 {name}.{kind}" for name in ("all", "vision", name_file(ODD)) for kind in kinds.split(",")
    )
    sums = dict.fromkeys(("json", "xlsx", "csv", "pdf"), Decimal(0))
    for name in ("vision", name_file(ODD)):
        path = tmp_path / "out" / f"2026-10 {name}"
        data = json.loads(path.with_name(f"{path.name}.json").read_text())
        sums["json"] += Decimal(data["amounts"]["EffectiveCost"])
        rows = list(csv.DictReader(path.with_name(f"{path.name}.csv").open()))
        sums["csv"] += sum(Decimal(row["effective cost, USD"]) for row in rows if row["line"] != "total")
        sheet = load_workbook(path.with_name(f"{path.name}.xlsx"))["Lines"]
        sums["xlsx"] += sum(Decimal(str(row[-1])) for row in sheet.iter_rows(2, values_only=True) if row[0] != "total")
        text = PdfReader(path.with_name(f"{path.name}.pdf")).pages[0].extract_text()
        assert data["team"] in text
        sums["pdf"] += Decimal(text.split("Total\n")[1].split(" USD")[0].replace(",", ""))
        for kind in ("html", "md"):
            assert (
                f"{Decimal(data['amounts']['EffectiveCost']):,f}" in path.with_name(f"{path.name}.{kind}").read_text()
            )
    assert set(sums.values()) == {Decimal(31 * 24 * 2)}
    assert "books" not in (tmp_path / "out" / "2026-10 vision.html").read_text()  # no path of ours is sent
    code, _, err = run(
        "statement", "--month", "2026-10", "--output", tmp_path / "out", "--files", "doc", "--store", "books"
    )
    assert (code, "take html, pdf, xlsx" in err) == (2, True)


@pytest.mark.long
def test_versions_stay_as_they_were_closed_and_corrections_are_named(books: Books, tmp_path: Path, run: Run) -> None:
    """Two late hours of speech change September: October says what was and is, version 1 prints the same bytes for ever."""
    books.close_month("2026-09")
    first = ("statement", "--month", "2026-09", "--version", "1", "--store", "books", "--output")
    assert run(*first, tmp_path / "before.pdf")[0] == 0
    add(books, "allocations", ALLOCATIONS + HELD + LATE)
    (late,) = [of for of in books.read_statements("2026-10") if of.team == "speech"]
    (correction,) = late.corrections
    assert (correction.version, correction.later, late.lines) == ("2026-09.1", None, ())
    assert correction.change == {"EffectiveCost": Decimal("480.00")}  # 2 of 6 held hours of 30 days at $2
    vision = next(of for of in books.read_statements("2026-10") if of.team == "vision")
    assert [str(of.change["EffectiveCost"]) for of in vision.corrections] == ["-480.00"]
    books.close_month("2026-09")
    again = next(of for of in books.read_statements("2026-10") if of.team == "vision")
    assert [(of.version, of.later) for of in again.corrections] == [("2026-09.1", "2026-09.2")]
    assert run(*first, tmp_path / "after.pdf")[0] == 0
    assert (tmp_path / "before.pdf").read_bytes() == (tmp_path / "after.pdf").read_bytes()
    code, out, _ = run(
        "statement", "--month", "2026-09", "--team", "vision", "--versions", "--store", "books", "--json"
    )
    versions = [(of["number"], of["replaces"], of["amounts"]["EffectiveCost"]) for of in json.loads(out)]
    assert (code, versions) == (0, [(1, None, "1440.00"), (2, "2026-09.1", "960.00")])
    compared = ("statement", "--month", "2026-09", "--team", "vision", "--store", "books", "--json", "--against", "1")
    for words in (compared, (*compared, "--version", "2")):
        changed = json.loads(run(*words)[1])
        assert [of["change"]["EffectiveCost"] for of in changed["statements"]] == ["-480.00"]
        assert [reason["kind"] for reason in changed["reasons"]][:1] == ["import"]
    assert "no version 3" in run("statement", "--month", "2026-09", "--version", "3", "--store", "books")[2]
    assert "is not closed" in run("statement", "--month", "2026-10", "--versions", "--store", "books")[2]


def test_a_version_by_more_names_is_one_statement_of_a_team(books: Books) -> None:
    """October, closed by team and user, is still one statement of vision, whose lines name the users and whose hours are theirs."""
    users = "job_id,device_id,team,user,from_utc,to_utc\n" + "".join(
        f"u{n},g0,vision,{user},2026-10-1{n}T00:00Z,2026-10-1{n}T0{n}:00Z\n" for n, user in ((1, "ann"), (2, "bob"))
    )
    add(books, "allocations", users)
    books.close_month("2026-10", ("team", "user"))
    (vision,) = [of for of in books.read_statements("2026-10", version=1) if of.team == "vision"]
    names = {line.name: line.hours for line in vision.lines if not line.is_share}
    assert names == {"unobserved": Decimal("1.5"), "unobserved, ann": 1, "unobserved, bob": 2}
    assert (vision.hours.total, vision.hours.coverage_share) == (Decimal("4.5"), None)
    assert sum(line.amounts["EffectiveCost"] for line in vision.lines) == vision.amounts["EffectiveCost"]
