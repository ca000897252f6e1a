"""The report says what the books say, in every format, and each sentence says what its table says."""

import json
import re
from dataclasses import replace
from datetime import UTC
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from rich.cells import cell_len
from tests.commands import COMMAND_LINE
from tests.simulator.truth import Truth
from typer.testing import CliRunner

from loadfactor.base.errors import InputError
from loadfactor.books.books import Books
from loadfactor.interfaces.cli import app
from loadfactor.interfaces.document import Document, Section
from loadfactor.interfaces.formats import money, number, percent
from loadfactor.interfaces.render.html import render_html
from loadfactor.interfaces.render.json import render_json
from loadfactor.interfaces.render.markdown import render_markdown
from loadfactor.interfaces.render.terminal import render_text
from loadfactor.interfaces.reports.facts import SectionFacts, UsefulFacts
from loadfactor.interfaces.reports.inquiry import NOBODY, Inquiry
from loadfactor.interfaces.reports.page import build_document
from loadfactor.interfaces.reports.sections import build_waterfall as build_waterfall
from loadfactor.metrics.fullness import DROPS


def named(report: Document, name: str) -> SectionFacts:
    """The section that programs know by this name."""
    found: SectionFacts = next(fact for fact in report.data.sections if fact.name == name)
    return found


VOID = {"meta", "br", "link", "img", "rect", "path", "use"}


@pytest.fixture(scope="module")
def report(simulated_books: Books) -> Document:
    with simulated_books.snapshot() as snapshot:
        return build_document(Inquiry(snapshot))


@pytest.fixture(scope="module")
def store(simulated_books: Books) -> list[str]:
    return ["--store", str(simulated_books.store.folder)]


def test_the_waterfall_tells_the_truth(report: Document, simulated_truth: Truth) -> None:
    """Each step of the table is what is known of the simulated fleet, and the picture ends at effective."""
    total = simulated_truth.total()
    section = named(report, "waterfall").section
    rows: dict[object, tuple[Any, ...]] = {str(row[0]).strip("=?− "): tuple(row[1:4]) for row in section.tables[0].rows}
    for name in ("paid", "unallocated", "down", "unobserved", "idle", "effective"):
        assert rows[name][0] == pytest.approx(getattr(total, f"{name}_gpu_hours"), rel=1e-9)
    for name in ("paid", "unallocated", "down", "unobserved", "idle"):
        assert rows[name][2] == pytest.approx(getattr(total, f"{name}_cost"), rel=1e-9)
    dollars, hours = section.charts
    assert sum(y or 0 for y in dollars.series[0].y) == pytest.approx(rows["effective"][2], rel=1e-9)
    assert sum(y or 0 for y in hours.series[0].y) == pytest.approx(rows["effective"][0], rel=1e-9)


def test_every_team_and_what_nobody_held_is_in_the_table(report: Document, simulated_truth: Truth) -> None:
    """The dollars of the groups are those of the fleet, and the row without a holder is called nobody."""
    section = named(report, "groups").section
    cost = {row[0]: row[1] for row in section.tables[0].rows}
    expected = {key or NOBODY: totals.paid_cost for key, totals in simulated_truth.by("team").items()}
    assert cost == pytest.approx(expected)
    assert list(cost) == sorted(cost, key=lambda name: -expected[str(name)]), "the highest cost first"


def test_the_sentence_on_top_is_made_of_readings(report: Document, simulated_truth: Truth) -> None:
    """Load factor, dollars paid and dollars that bought work, as the readings say them."""
    value = {r.metric: r.value for r in report.data.readings}
    total = simulated_truth.total()
    assert value["load_factor"] == pytest.approx(total.effective_gpu_hours / total.paid_gpu_hours)
    assert isinstance(value["load_factor"], float)
    assert percent(value["load_factor"]) in report.headline
    assert money(total.paid_cost) in report.headline


def test_a_job_shows_a_histogram_of_each_of_its_gpus(simulated_books: Books, simulated_truth: Truth) -> None:
    """As many histograms as the job held GPUs; together their bins hold every hour in which it was observed."""
    job = max((r.job for r in simulated_truth.sim.runs if r.job.gpus > 1), key=lambda j: j.gpus).job_id
    with simulated_books.snapshot() as snapshot:
        facts = named(build_document(Inquiry(snapshot, job=job)), "job")
    section = facts.section
    held = {d for r in simulated_truth.sim.runs if r.job.job_id == job for d in r.devices}
    assert {h.name for h in section.histograms} == {simulated_truth.sim.fleet.device_id[d] for d in held}
    hours = sum(sum(h.bins) for h in section.histograms)
    assert hours == pytest.approx(simulated_truth.by("job")[job].observed_gpu_hours, rel=1e-9)


def test_waits_and_balance_are_told_honestly(report: Document, simulated_truth: Truth) -> None:
    """Who never started is counted beside the quantiles, and books that balance have no residual."""
    waits, quality = named(report, "waits"), named(report, "trust")
    known = simulated_truth.waits()
    assert f"{known.waiting + known.cancelled} were cancelled or are pending" in waits.says
    assert json.loads(render_json(report))["sections"][-2]["balances"] is True
    assert number(simulated_truth.total().unobserved_gpu_hours) in quality.says
    values = dict(quality.section.tables[0].text_rows())
    assert values["residual (ledger less installed)"] == "none"


AMOUNTS = re.compile(r"(?<![\w.-])\$?\d+(?:,\d{3})*(?:\.\d+)?(?: (?:%|h|min|d|s|ms)(?!\w))?")
COUNTS = re.compile(r"Job \S+|[\d,]+ (?:jobs|GPUs|lowest|highest)|0 on the left, 100 % on the right")


def spoken(section: Section) -> set[str]:
    """The amounts that a lead says, without names and counts."""
    return set(AMOUNTS.findall(COUNTS.sub("", section.lead)))


def written(section: Section) -> set[str]:
    """The amounts in the cells of the tables and in the notes of the histograms."""
    cells = {cell for table in section.tables for row in table.text_rows() for cell in row}
    return cells | {histogram.note.split(",")[0] for histogram in section.histograms}


@pytest.mark.parametrize("name", ["waterfall", "groups", "waits", "job", "trust"])
def test_a_number_in_a_sentence_is_a_cell_of_its_table(report: Document, name: str) -> None:
    """What a lead says stands in the table under it, written alike; shares of the whole fleet are tiles."""
    section = named(report, name).section
    known = written(section) | {tile.value for tile in report.tiles}
    assert spoken(section)
    assert spoken(section) <= known


def test_the_sentence_on_top_says_what_the_table_says(report: Document) -> None:
    """Every amount of the headline is a tile or a cell of the first table; no sentence mixes a share and money."""
    first = written(report.sections[0]) | {tile.value for tile in report.tiles}
    assert set(AMOUNTS.findall(report.headline)) <= first
    for sentence in report.headline.split(". "):
        assert not ("%" in sentence and "$" in sentence), sentence


class _Tags(HTMLParser):
    """Collects what is opened and not closed, and everything fetched from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        self.fetched += [v for k, v in attrs if k in ("src", "href", "xlink:href") and v and not v.startswith("#")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def test_the_page_is_one_whole_file(report: Document) -> None:
    """Well-formed, no script, nothing fetched, a picture in every section that has one, and every section's title."""
    page = render_html(report)
    tags = _Tags()
    tags.feed(page)
    assert tags.open == []
    assert tags.fetched == []
    assert "script" not in tags.seen
    assert "@import" not in page
    assert "url(http" not in page
    histograms = sum(len(s.histograms) for s in report.sections)
    charts = sum(len(s.charts) for s in report.sections)
    assert tags.seen.count("figure") == charts
    assert tags.seen.count("svg") == 2 * charts + histograms  # for a screen and for a phone
    assert tags.seen.count("section") == len(report.sections)
    assert report.headline in page


def test_names_on_the_page_are_text_and_nothing_else(report: Document) -> None:
    """A team that calls itself a script is shown by that name and not run."""
    evil = replace(report, headline="<script>alert(1)</script>")
    assert "<script" not in render_html(evil)
    assert "<script" not in render_markdown(evil)


@pytest.mark.parametrize("width", [80, 100])
def test_the_terminal_report_fits(report: Document, width: int) -> None:
    """No line is wider than the terminal; commands to type stay whole words."""
    text = render_text(report, width)
    assert max(cell_len(line) for line in text.splitlines() if not COMMAND_LINE.match(line)) <= width
    for section in report.sections:
        assert section.title in text


def test_the_markdown_report_has_square_tables(report: Document) -> None:
    """Every row of a table has as many cells as its head."""
    document = render_markdown(report)
    outside = re.sub(r"```text.*?```", "", document, flags=re.DOTALL)
    for block in re.findall(r"(?:^\|.*\n)+", outside, flags=re.MULTILINE):
        cells = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(cells) == 1, block
    assert document.startswith(f"# {report.headline}")


def test_json_holds_every_reading(report: Document) -> None:
    """Plain JSON under the keys that programs know; what is not known is null."""
    body = json.loads(render_json(report))
    assert [s["name"] for s in body["sections"]] == [fact.name for fact in report.data.sections]
    assert {"headline", "from", "to", "readings", "sections"} == set(body)
    assert all({"name", "title", "says", "readings"} <= set(section) for section in body["sections"])
    assert set(body["sections"][-1]["commands"][0]) == {"command", "why"}
    readings = [r for s in body["sections"] for r in s["readings"]]
    assert all({"metric", "unit", "value", "by", "from", "to", "coverage"} <= set(r) for r in readings)
    assert any(r["value"] is None for r in readings)
    assert body["from"] == "2026-10-24T00:00:00Z"


@pytest.mark.long
def test_the_command_writes_the_format_of_the_suffix(tmp_path: Path, store: list[str]) -> None:
    """`--output x.html` is a page; the terminal only says where it is."""
    result = CliRunner().invoke(app, ["report", *store, "--output", str(tmp_path / "x.html")])
    assert result.exit_code == 0, result.output
    assert result.output.rstrip().endswith("x.html")
    assert (tmp_path / "x.html").read_text().startswith("<!doctype html>")


@pytest.mark.long
def test_the_command_prints_json_and_nothing_else(store: list[str]) -> None:
    """A window and a split reach the readings."""
    arguments = ["--by", "user,purpose", "--from", "2026-10-24T06:00", "--to", "2026-10-25", "--format", "json"]
    result = CliRunner().invoke(app, ["report", *store, *arguments])
    assert result.exit_code == 0, result.output
    body = json.loads(result.stdout)
    assert body["from"] == "2026-10-24T06:00:00Z"
    groups = next(s for s in body["sections"] if s["name"] == "groups")
    assert set(groups["readings"][0]["by"]) == {"user", "purpose"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--format", "pdf"], "no format called 'pdf'"),
        (["--output", "report.docx"], "cannot write .docx"),
        (["--by", "colour"], "colour"),
        (["--job", "no-such-job"], "no-such-job"),
        (["--job", "481016", "--by", "team"], "leave out --by"),
        (["--from", "2026-10-25", "--to", "2026-10-24"], "nothing lies between"),
        (["--from", "2026-10-25", "--last", "7d"], "give one of them"),
        (["--last", "1e30d"], "no length of time"),
        (["--last", "-7d"], "no length of time"),
    ],
)
def test_a_mistake_is_told_in_one_line(store: list[str], arguments: list[str], says: str) -> None:
    """A wrong format, split, job or window raises an InputError that names it."""
    result = CliRunner().invoke(app, ["report", *store, *arguments])
    assert isinstance(result.exception, InputError)
    assert says in str(result.exception)
    assert "\n" not in str(result.exception)


@pytest.mark.long
def test_books_without_samples_and_prices_still_report(tmp_path: Path) -> None:
    """Nobody measured and nobody priced: hours held are told, the rest is unknown and not zero."""
    tables = tmp_path / "tables"
    tables.mkdir()
    (tables / "devices.csv").write_text("device_id,accelerator,from_utc\ng0,made-up,2026-10-24T00:00:00Z\n")
    (tables / "allocations.csv").write_text(
        "job_id,device_id,team,from_utc,to_utc\nj,g0,red,2026-10-24T00:00:00Z,2026-10-24T04:00:00Z\n"
    )
    books = Books(tmp_path / "books")
    books.add("tables", [tables])
    with books.snapshot() as snapshot:
        report = build_document(Inquiry(snapshot))
    assert "no activity was measured" in report.headline
    assert "What it cost is unknown." in report.headline
    assert next(t for t in report.tiles if t.title == "Cost").value == "–"
    for text in (render_text(report, 80), render_markdown(report), render_html(report), render_json(report)):
        assert "nan" not in text.lower().replace("finance", "")
        assert "red" in text


@pytest.mark.long
def test_time_without_a_known_holder_is_named_with_its_remedy(tmp_path: Path) -> None:
    """GPUs at work that nobody is said to hold: their hours are effective, counted apart, and the headline says what to do."""
    tables = tmp_path / "tables"
    tables.mkdir()
    (tables / "devices.csv").write_text("device_id,accelerator,from_utc\ng0,made-up,2026-10-24T00:00:00Z\n")
    hours = "".join(f"g0,2026-10-24T0{h}:00:00Z,2026-10-24T0{h + 1}:00:00Z,0.95\n" for h in range(4))
    (tables / "samples.csv").write_text("device_id,from_utc,to_utc,sm_active_share\n" + hours)
    books = Books(tmp_path / "books")
    books.add("tables", [tables])
    with books.snapshot() as snapshot:
        report = build_document(Inquiry(snapshot))
    assert report.headline.startswith("The fleet was 95.0 % full: 3.8 of 4 paid GPU-hours were effective.")
    assert "4 GPU-hours have no known holder: import allocations or use --job." in report.headline
    assert "4 GPU-hours of what was held have no known holder" in report.sections[0].lead
    tiles = {tile.title: tile.value for tile in report.tiles}
    assert tiles["Allocation"] == "–"
    groups = named(report, "groups").section.tables[0]
    assert [row[0] for row in groups.rows] == ["unknown holder"]
    assert any("unattributed_gpu_hours" in item.command for item in report.sections[-1].suggestions)


def test_a_part_of_the_fleet_reports_alone(simulated_books: Books, simulated_truth: Truth) -> None:
    """`--where team=…` leaves the others out of every number."""
    team = max(simulated_truth.by("team").items(), key=lambda kv: kv[1].allocated_gpu_hours if kv[0] else 0)[0]
    with simulated_books.snapshot() as snapshot:
        section = build_waterfall(Inquiry(snapshot, where={"team": str(team)})).section
    rows = {row[0]: row[1] for row in section.tables[0].rows}
    assert rows["= paid"] == rows["= held"] == pytest.approx(simulated_truth.by("team")[team].allocated_gpu_hours)
    assert "  − unallocated" not in rows


@pytest.mark.long
def test_a_report_of_a_part_says_so_and_what_to_try_speaks_of_the_same(simulated_books: Books) -> None:
    """The sentence on top names the filter, every time is told in the zone asked for, and commands ask the same question."""
    start, end = simulated_books.span
    zone = ZoneInfo("Asia/Kolkata")
    with simulated_books.snapshot() as snapshot:
        report = build_document(Inquiry(snapshot, (), start, end, zone, where={"team": "vision"}))
    assert "team=vision" in report.headline
    text = render_text(report, 100)
    assert f"{start.astimezone(zone):%Y-%m-%d %H:%M} IST" in text
    assert " UTC" not in text
    asked = [item.command for s in report.sections for item in s.suggestions if "doctor" not in item.command]
    assert asked
    for command in asked:
        assert f"--from {start.astimezone(UTC).isoformat()}" in command
        assert "--timezone Asia/Kolkata" in command
        assert any(part in command for part in ("--where team=vision", "--team vision", "--by team"))


def test_the_way_from_paid_to_useful_is_the_waterfalls(simulated_books: Books, report: Document) -> None:
    """The section holds what `waterfall` says of the same window; losses, unknown and useful add up to what was paid."""
    told = named(report, "useful")
    assert isinstance(told, UsefulFacts)
    hours, asked = told.waterfall.all.gpu_hours, simulated_books.waterfall().all.gpu_hours
    for name in (*(drop.name for drop in DROPS), "useful"):
        assert getattr(hours, name) == pytest.approx(getattr(asked, name), rel=1e-9, abs=1e-9)
    body = next(s for s in json.loads(render_json(report))["sections"] if s["name"] == "useful")
    steps = body["waterfall"]["all"]["steps"]
    ends = [step["gpu_hours"] or 0 for step in steps if step["kind"] != "level" or step["name"] == "useful"]
    assert sum(ends) == pytest.approx(steps[0]["gpu_hours"], rel=1e-9)
