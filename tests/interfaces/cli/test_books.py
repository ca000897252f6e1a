"""The books at the terminal: the worked example, refusals, answers that fit the screen, upkeep, and names that are hostile."""

import csv
import gzip
import hashlib
import io
import json
import os
import re
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from shutil import copytree

import pytest
from tests.commands import FROM, TO, Run, measure_width, worked_example
from tests.conftest import EXAMPLES

from loadfactor.base.spelling import HIDDEN, spell_out
from loadfactor.books.books import Books
from loadfactor.interfaces.cli import main


def values(out: str) -> dict[str, float | None]:
    return {r["metric"]: r["value"] for r in json.loads(out)}


def fingerprint(folder: Path) -> str:
    """A hash of every file of a store and its content; of nothing where there is no store."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")) if folder.exists() else []:
        if path.is_file() and path.name != "lock":
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


@pytest.mark.long
def test_the_worked_example_of_the_text_comes_out(run: Run, tmp_path: Path) -> None:
    """10 GPU-hours, 6 effective, $80.00, $13.33 per effective GPU-hour, $0.0004 per sample, all measured."""
    code, out, _ = run(
        "import", "tables", worked_example(tmp_path / "in"), "--store", tmp_path / "s", "--format", "json"
    )
    assert code == 0
    assert json.loads(out)["rows"]["samples"] == 8
    names = ["paid_gpu_hours", "effective_gpu_hours", "cost", "cost_per_effective_gpu_hour", "cost_per_sample"]
    code, out, _ = run("show", *names, "--store", tmp_path / "s", "--format", "json")
    assert code == 0
    found = values(out)
    assert found["paid_gpu_hours"] == pytest.approx(10, rel=1e-12)
    assert found["effective_gpu_hours"] == pytest.approx(6, rel=1e-12)
    assert found["cost"] == pytest.approx(80, rel=1e-12)
    assert found["cost_per_effective_gpu_hour"] == pytest.approx(80 / 6, rel=1e-12)
    assert found["cost_per_sample"] == pytest.approx(0.0004, rel=1e-12)
    for reading in json.loads(out):
        assert set(reading) == {
            "metric",
            "unit",
            "value",
            "by",
            "currency",
            "from",
            "to",
            "coverage",
            "activity_basis",
            "cost_basis",
        }
        assert (reading["from"], reading["to"], reading["coverage"]) == (FROM, TO, 1.0)


def test_the_same_import_twice_adds_nothing(run: Run, tmp_path: Path) -> None:
    """The second import of the same files says so and leaves every byte as it was."""
    words = ("import", "tables", worked_example(tmp_path / "in"), "--store", tmp_path / "s")
    run(*words)
    before = fingerprint(tmp_path / "s")
    code, out, _ = run(*words)
    assert code == 0
    assert "Already in the books" in out
    assert fingerprint(tmp_path / "s") == before


BAD = {
    "a column nobody knows": {"samples": "device_id,to_utc,sm_activ_share\ngpu0,2026-03-01T01:15:00Z,0.6\n"},
    "utilization of 173 %": {"samples": f"device_id,from_utc,to_utc,sm_active_share\ngpu0,{FROM},{TO},1.73\n"},
    "not a number": {"samples": f"device_id,from_utc,to_utc,sm_active_share\ngpu0,{FROM},{TO},NaN\n"},
    "infinity": {"samples": f"device_id,from_utc,to_utc,sm_active_share\ngpu0,{FROM},{TO},inf\n"},
    "a reversed interval": {"allocations": f"job_id,device_id,from_utc,to_utc\nrun-1,gpu0,{TO},{FROM}\n"},
    "a device listed twice": {"devices": f"device_id,from_utc,to_utc\ngpu0,{FROM},{TO}\ngpu0,{FROM},{TO}\n"},
    "mixed time zones": {
        "samples": f"device_id,to_utc,sm_active_share\ngpu0,{FROM},0.6\ngpu0,2026-03-01T00:30:00,0.6\n"
    },
    "a time without a zone": {"samples": "device_id,to_utc,sm_active_share\ngpu0,2026-03-01T00:30:00,0.6\n"},
    "binary garbage": {"samples": "\x00\x01\x02PK\x03\x04\n\x7f\x00"},
    "an empty file": {"samples": ""},
    "a negative price": {"prices": "basis,price_per_gpu_hour\ncontracted,-8\n"},
    "an unknown cost basis": {"prices": "basis,price_per_gpu_hour\nguessed,8\n"},
    "a GPU no list knows": {"samples": f"device_id,from_utc,to_utc,sm_active_share\nstranger,{FROM},{TO},0.6\n"},
}


@pytest.mark.long
@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_one_line_and_the_books_stay(case: str, run: Run, worked: Path, tmp_path: Path) -> None:
    """Exit code 2, one line that says what to do, and not a byte of the books changed."""
    before = fingerprint(worked)
    code, out, err = run("import", "tables", worked_example(tmp_path / "bad", **BAD[case]), "--store", worked)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith("loadfactor: ")
    assert fingerprint(worked) == before


def test_a_truncated_gzip_is_refused(run: Run, tmp_path: Path) -> None:
    """Half a compressed file is no file: nothing of it is kept."""
    folder = worked_example(tmp_path / "in")
    text = (folder / "samples.csv").read_bytes() * 500
    (folder / "samples.csv").unlink()
    (folder / "samples.csv.gz").write_bytes(gzip.compress(text)[:-20])
    code, _, err = run("import", "tables", folder, "--store", tmp_path / "s")
    assert code == 2
    assert err.count("\n") == 1
    assert not list((tmp_path / "s").glob("*.parquet"))


@pytest.mark.parametrize(
    ("source", "path", "flag", "value"),
    [
        ("slurm", "x", "--node", "n1"),
        ("kubernetes", "x", "--pool", "a"),
        ("focus", "x", "--at", "2026-03-01T00:00Z"),
        ("prometheus", "http://localhost:1", "--node", "n1"),
        ("dcgm", "x", "--last", "3d"),
        ("nvidia-smi", "x", "--gpus", "8"),
    ],
)
def test_an_option_that_a_source_does_not_use_is_refused(
    source: str, path: str, flag: str, value: str, run: Run
) -> None:
    """Nothing that is given is without effect: the line names the option."""
    code, _, err = run("import", source, path, flag, value)
    assert (code, flag in err, "leave it out" in err) == (2, True, True)


@pytest.mark.parametrize(
    "words",
    [
        ("show", "utilizatoin"),
        ("show", "utilization", "--by", "planet"),
        ("show", "utilization", "--where", "job=run-2"),
        ("show", "utilization", "--where", "job"),
        ("show", "utilization", "--from", "yesterday"),
        ("show", "utilization", "--from", "2026-03-02", "--to", "2026-03-01"),
        ("show", "utilization", "--timezone", "Mars/Olympus"),
        ("show", "cost", "--basis", "guessed"),
        ("show", "utilization", "--format", "xml"),
        ("show", "--nonsense"),
        ("import", "punchcards", "x"),
        ("import", "tables", "nowhere"),
        ("import", "tables", "nowhere", "--price-per-gpu-hour", "-2"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused_in_one_line(words: tuple[str, ...], run: Run, worked: Path) -> None:
    """Whatever is wrong with a question, the answer is exit code 2 and one line on standard error."""
    code, out, err = run(*words, "--store", worked)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1


@pytest.mark.long
def test_a_price_gap_makes_dollars_unknown_for_those_hours_only(run: Run, tmp_path: Path) -> None:
    """An hour without a price is null, not zero; the total says which share of the paid time it speaks of."""
    prices = "from_utc,basis,price_per_gpu_hour\n2026-03-01T01:00:00Z,contracted,8\n"
    run("import", "tables", worked_example(tmp_path / "in", prices=prices), "--store", tmp_path / "s")
    _, out, _ = run(
        "show", "cost", "cost_per_effective_gpu_hour", "--by", "hour", "--store", tmp_path / "s", "--format", "json"
    )
    rows = {(r["by"]["hour"], r["metric"]): r for r in json.loads(out)}
    first, second = "2026-03-01T00:00:00Z", "2026-03-01T01:00:00Z"
    assert rows[first, "cost"]["value"] is None
    assert rows[first, "cost_per_effective_gpu_hour"]["value"] is None
    assert rows[second, "cost"]["value"] == pytest.approx(16)
    _, out, _ = run("show", "cost", "cost_per_effective_gpu_hour", "--store", tmp_path / "s", "--format", "json")
    total, unit = json.loads(out)
    assert (total["value"], total["coverage"]) == (pytest.approx(16), pytest.approx(0.2))
    assert unit["value"] == pytest.approx(8 / 0.6)


def test_without_prices_the_catalog_estimates_and_says_so(run: Run, tmp_path: Path) -> None:
    """A known accelerator without any imported price is priced from the dated catalog, with the basis `estimate`."""
    devices = f"device_id,accelerator,from_utc,to_utc\ngpu0,NVIDIA H100 80GB HBM3,{FROM},{TO}\n"
    folder = worked_example(tmp_path / "in", devices=devices)
    for name in ("prices", "samples", "allocations"):
        (folder / f"{name}.csv").unlink()
    run("import", "tables", folder, "--store", tmp_path / "s")
    _, out, _ = run("show", "cost", "--by", "accelerator", "--store", tmp_path / "s", "--format", "json")
    (reading,) = json.loads(out)
    assert reading["by"] == {"accelerator": "h100-sxm"}
    assert reading["value"] == pytest.approx(1.25 * 2.95)
    assert (reading["cost_basis"], reading["currency"], reading["unit"]) == ("estimate", "USD", "USD")


def test_doctor_says_that_the_books_balance(run: Run, worked: Path) -> None:
    """Both sides of the book agree, in GPU-hours and dollars, and the exit code is 0."""
    code, out, _ = run("doctor", "--store", worked, "--format", "json")
    found = json.loads(out)
    assert code == 0
    assert found["balances"]
    assert found["installed_gpu_hours"] == found["booked_gpu_hours"] == pytest.approx(10)
    assert found["installed_cost"] == pytest.approx(80)
    assert found["residual_cost"] == pytest.approx(0, abs=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("columns", [80, 100])
def test_tables_fit_the_screen(columns: int, run: Run, worked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No line of any command is wider than the terminal."""
    monkeypatch.setenv("COLUMNS", str(columns))
    for words in (("show",), ("show", "utilization", "cost", "idle_cost", "--by", "team,device"), ("doctor",)):
        code, out, _ = run(*words, "--store", worked)
        assert code == 0
        assert measure_width(out) <= columns
    _, out, _ = run("metrics")
    assert measure_width(out) <= columns


def test_every_metric_split_by_anything_can_be_read(run: Run, worked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit side by side is told in several tables; no value is cut or wrapped."""
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = run("show", "--by", "team", "--store", worked)
    assert measure_width(out) <= 80
    assert "…" not in out
    assert out.count("\nvision ") > 1
    assert all(text in out for text in ("60.0 %", "$80.00", "$13.33", "$400.00"))


def test_a_name_in_brackets_is_a_name(run: Run, tmp_path: Path) -> None:
    """Nothing in the data is read as an instruction to the terminal."""
    folder = worked_example(tmp_path / "in")
    held = folder / "allocations.csv"
    held.write_text(held.read_text().replace("vision", "[red]"))
    run("import", "tables", folder, "--store", tmp_path / "s")
    assert "[red]" in run("show", "cost", "--by", "team", "--store", tmp_path / "s")[1]


@pytest.mark.long
def test_a_log_alone_can_be_given_a_holder(run: Run, tmp_path: Path) -> None:
    """Without allocations a GPU's holder is unknown, and the import says so; --job books the logged time as one job's."""
    log = tmp_path / "gpu.csv"
    rows = "".join(f"2026/03/01 10:00:{s:02d}.000, GPU-1, 80 %\n" for s in range(0, 60, 10))
    log.write_text("timestamp, uuid, utilization.gpu [%]\n" + rows)
    words = ("import", "nvidia-smi", log, "--timezone", "UTC", "--node", "n1")
    _, out, _ = run(*words, "--store", tmp_path / "nobody")
    assert "--job" in out
    run(*words, "--store", tmp_path / "job", "--job", "bench")
    for store, held in (("nobody", 0.0), ("job", 60 / 3600)):
        _, out, _ = run("show", "utilization", "allocated_gpu_hours", "--store", tmp_path / store, "--format", "json")
        assert values(out) == {"utilization": pytest.approx(0.8), "allocated_gpu_hours": pytest.approx(held)}


@pytest.mark.long
def test_logs_that_overlap_ask_once(run: Run, tmp_path: Path) -> None:
    """A job that two overlapping logs name on one GPU held it once; another job for the same time is refused."""
    for first, holder, code in ((0, "bench", 0), (20, "bench", 0), (30, "other", 2)):
        log = tmp_path / f"{first}.csv"
        rows = "".join(f"2026/03/01 10:00:{s:02d}.000, GPU-1, 80 %\n" for s in range(first, min(first + 40, 60), 10))
        log.write_text("timestamp, uuid, utilization.gpu [%]\n" + rows)
        words = ("import", "nvidia-smi", log, "--timezone", "UTC", "--store", tmp_path / "s", "--job", holder)
        refused, _, error = run(*words)
        assert refused == code
        assert ("GPU-1 was imported as held by 'bench'" in error) == (code == 2)
    _, out, _ = run("doctor", "--store", tmp_path / "s", "--format", "json")
    assert "more than was installed" not in out
    _, out, _ = run("show", "allocated_gpu_hours", "--store", tmp_path / "s", "--format", "json")
    assert values(out) == {"allocated_gpu_hours": pytest.approx(60 / 3600)}


@pytest.mark.long
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_logs_that_follow_each_other_are_of_two_jobs(run: Run, tmp_path: Path, order: tuple[int, int]) -> None:
    """A log that begins five seconds after another one ended, with a step of ten, is no second holder, whichever comes first."""
    for number in order:
        log = tmp_path / f"{number}.csv"
        rows = "".join(
            f"2026/03/01 10:0{number}:{s:02d}.000, GPU-1, 80 %\n" for s in range(0, 60 - 5 * (1 - number), 10)
        )
        log.write_text("timestamp, uuid, utilization.gpu [%]\n" + rows.replace(":50.000", ":55.000"))
        words = ("import", "nvidia-smi", log, "--timezone", "UTC", "--store", tmp_path / "s")
        assert run(*words, "--job", f"job-{number}")[0] == 0
    _, out, _ = run("show", "paid_gpu_hours", "allocated_gpu_hours", "--store", tmp_path / "s", "--format", "json")
    assert values(out) == dict.fromkeys(("paid_gpu_hours", "allocated_gpu_hours"), pytest.approx(125 / 3600))


def test_books_of_an_instant_say_so(run: Run, tmp_path: Path) -> None:
    """A GPU and a sample without a start or a step: no interval is known, and that is what is said."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "devices.csv").write_text("device_id\ng1\n")
    (tmp_path / "in" / "samples.csv").write_text("device_id,to_utc,busy_share\ng1,2026-01-01T00:00:00Z,0.5\n")
    run("import", "tables", tmp_path / "in", "--store", tmp_path / "s")
    _, _, error = run("report", "--store", tmp_path / "s")
    assert "hold devices, samples and no time yet" in error
    assert "no GPUs yet" not in error


def test_a_failed_first_import_leaves_nothing(run: Run, tmp_path: Path) -> None:
    """Later commands say that there are no books, not that they are empty; prices alone are books."""
    store, wrong, prices = tmp_path / "s", tmp_path / "wrong.csv", tmp_path / "prices.csv"
    wrong.write_text("basis,price_per_gpu_hour\ncontracted,-1\n")
    prices.write_text("basis,price_per_gpu_hour\ncontracted,1\n")
    assert run("import", "prices", wrong, "--store", store)[0] == 2
    assert not store.exists()
    assert "no books in" in run("show", "cost", "--store", store)[2]
    assert run("import", "prices", prices, "--store", store)[0] == 0


@pytest.mark.long
def test_a_shorter_copy_of_a_log_takes_nothing_away(run: Run, tmp_path: Path) -> None:
    """The beginning of a log, imported after the whole of it, neither ends its GPUs and holder earlier nor forgets their node."""
    for name, seconds, more in (("whole", 60, ("--node", "n1")), ("head", 30, ())):
        log = tmp_path / f"{name}.csv"
        rows = "".join(f"2026/03/01 10:00:{s:02d}.000, GPU-1, 80 %\n" for s in range(0, seconds, 10))
        log.write_text("timestamp, uuid, utilization.gpu [%]\n" + rows)
        run("import", "nvidia-smi", log, "--timezone", "UTC", "--store", tmp_path / "s", "--job", "bench", *more)
        _, out, _ = run(
            *("show", "paid_gpu_hours", "allocated_gpu_hours", "--where", "node=n1"),
            *("--store", tmp_path / "s", "--format", "json"),
        )
        assert values(out) == dict.fromkeys(("paid_gpu_hours", "allocated_gpu_hours"), pytest.approx(60 / 3600))


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with books of two imports, the worked example and a price list, and the files of both."""
    folder = tmp_path_factory.mktemp("kept")
    (folder / "prices.csv").write_text("basis,price_per_gpu_hour,from_utc\nlist,3,\n")
    books = Books(folder / "store")
    books.add("tables", [worked_example(folder / "tables")])
    books.add("prices", [folder / "prices.csv"])
    return folder


@pytest.fixture
def store(kept: Path, tmp_path: Path) -> Path:
    """A copy of these books, beside their files."""
    return Path(copytree(kept, tmp_path / "copy")) / "store"


def listing(store: Path) -> list[tuple[str, int, int]]:
    """Every file of a folder with its size and when it was changed."""
    return sorted((str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in store.rglob("*"))


@pytest.mark.long
def test_imports_are_listed_and_one_is_forgotten(run: Run, store: Path) -> None:
    """`imports` numbers what was read; `forget` takes one out as if it had never been; an unknown number is a mistake."""
    _, before, _ = run("show", "cost", "--basis", "list", "--store", store, "--json")
    code, out, _ = run("imports", "--store", store, "--json")
    assert code == 0
    listed = json.loads(out)["imports"]
    assert [(i["number"], i["source"]) for i in listed] == [(1, "tables"), (2, "prices")]
    assert run("forget", "2", "--store", store)[0] == 0
    _, after, _ = run("show", "cost", "--basis", "list", "--store", store, "--json")
    assert json.loads(before)[0]["value"] == 30.0
    assert json.loads(after)[0]["value"] is None
    code, _, err = run("forget", "2", "--store", store)
    assert code == 2
    assert "no import 2" in err
    assert run("import", "prices", store.parent / "prices.csv", "--store", store)[0] == 0
    assert run("show", "cost", "--basis", "list", "--store", store, "--json")[1] == before


@pytest.mark.long
def test_questions_leave_no_trace(run: Run, store: Path) -> None:
    """Asking, checking and listing change nothing on the disk, and work where nothing can be written."""
    before = listing(store)
    for words in (("show", "cost"), ("report",), ("doctor",), ("imports",)):
        assert run(*words, "--store", store)[0] == 0
    assert listing(store) == before


def test_compaction_changes_no_answer(run: Run, store: Path) -> None:
    """`compact` merges files; every number stays."""
    asked = ("show", "cost", "utilization", "allocated_gpu_hours", "--by", "team,day", "--store", store, "--json")
    before = run(*asked)[1]
    assert run("compact", "--store", store)[0] == 0
    assert run(*asked)[1] == before


@pytest.mark.long
def test_damage_is_said_by_every_question_and_repaired(run: Run, store: Path) -> None:
    """A damaged file ends every question with a line and exit code 1; after `repair` what is lost is said with every answer."""
    for path in store.glob("samples-*.parquet"):
        path.write_bytes(path.read_bytes()[:-1])
    for path in store.glob("ledger-*.parquet"):
        path.unlink()
    for words in (("show", "cost"), ("report",), ("doctor",), ("show", "cost", "--json")):
        code, _, err = run(*words, "--store", store)
        assert code == 1
        assert len(err.strip().splitlines()) == 1
        assert "run `loadfactor repair" in err
    code, out, _ = run("repair", "--store", store)
    assert code == 1
    assert "samples" in out
    code, _, err = run("show", "cost", "--store", store)
    assert code == 0
    assert "lack what was in a damaged file" in err
    assert run("doctor", "--store", store)[0] == 1
    assert run("import", "tables", store.parent / "tables", "--store", store)[0] == 0
    code, _, err = run("show", "utilization", "--store", store)
    assert (code, err) == (0, "")
    assert run("doctor", "--store", store)[0] == 0


@pytest.mark.long
def test_a_ledger_booked_otherwise_is_said_until_it_is_written(
    run: Run, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Books that another version booked answer alike, say that each question books them anew, and no longer once compacted."""
    _, before, said = run("show", "cost", "--store", store, "--json")
    assert "books it anew" not in said
    monkeypatch.setattr("loadfactor.books.rebuild.DEFINITION", "of another version")
    _, after, said = run("show", "cost", "--store", store, "--json")
    assert after == before
    assert said.count("books it anew") == 1
    assert f"loadfactor compact --store {store}" in said
    assert run("compact", "--store", store)[0] == 0
    assert "books it anew" not in run("show", "cost", "--store", store)[2]


FIRST, LAST = "2026-05-01T00:00:00Z", "2026-05-01T10:00:00Z"
TEAM, JOB = "\x1b[31mred\x1b]0;x\x07", "=cmd|'/C calc'!A1"
NODE, POOL = "n\u202e0\x9b2J", "<script>alert(1)</script>"
Print = Callable[..., str]
LINK = "![x](http://a.b/c.png)"


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
def print_all(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Print:
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


@pytest.mark.long
def test_names_are_text_in_every_command_and_format(tables: Path, tmp_path: Path, print_all: Print) -> None:
    """Import, show, report and doctor show the names spelled out; JSON has them as they are; nothing in them acts."""
    store = tmp_path / "b\x1b[5mooks"
    print_all("import", "tables", tables, "--store", store)
    for output_format in ("terminal", "md", "html", "csv", "json"):
        every = "team,project,job,node,pool,device"
        print_all("show", "cost", "paid_gpu_hours", "--by", every, "--store", store, "--format", output_format)
        print_all("report", "--store", store, "--format", output_format)
        print_all("doctor", "--store", store, "--format", output_format, code=None)
    teams = json.loads(print_all("show", "cost", "--by", "team", "--store", store, "--json"))
    assert TEAM in [reading["by"]["team"] for reading in teams]
    assert spell_out(TEAM) in print_all("show", "cost", "--by", "team", "--store", store)
    jobs = csv.DictReader(io.StringIO(print_all("show", "cost", "--by", "job", "--store", store, "--format", "csv")))
    assert f"'{JOB}" in [row["job"] for row in jobs]
    assert LINK not in print_all("show", "cost", "--by", "project", "--store", store, "--format", "md")
    page = _Tags()
    page.feed(print_all("report", "--by", "pool", "--store", store, "--format", "html"))
    assert not {"script", "img", "a"} & page.tags
    said = print_all("report", "--job", f"\x1b[31m{JOB}", "--store", store, code=2)
    assert re.search(r"--store \S*b\\x1b\[5mooks", said) or "did you mean" in said
    print_all("show", "cost", "--where", f"team={TEAM}\u202e", "--store", store, code=2)


@pytest.mark.long
def test_file_whose_name_is_no_text_is_imported_and_listed(tmp_path: Path, print_all: Print) -> None:
    """A log called gpu-, byte ff, ESC and a line end, one with byte fe: two imports, listed in every format, found again."""
    store, log = tmp_path / "books", (EXAMPLES / "gpu.csv").read_bytes()
    paths = [
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/gpu-" + mark + b".csv")) for mark in (b"\xff\x1b[31m\n", b"\xfe")
    ]
    for path in paths:
        path.write_bytes(log)
        print_all("import", "nvidia-smi", path, "--timezone", "UTC", "--store", store)
        assert "Already" in print_all("import", "nvidia-smi", path, "--timezone", "UTC", "--store", store)
        missing = print_all("import", "nvidia-smi", f"{path}x", "--timezone", "UTC", "--store", store, code=2)
        assert missing.count("\n") == 1
    for output_format in ("terminal", "md", "html", "csv"):
        listed = print_all("imports", "--store", store, "--format", output_format)
        assert re.search(r"\\xff\\+x1b", re.sub(r"\s", "", listed)), output_format
    assert "xff" in print_all("imports", "--store", store, "--json")


def test_bytes_that_are_no_text_in_an_option_are_one_line(tmp_path: Path, print_all: Print) -> None:
    """`--job`, `--node` and `--store` with byte ff are refused, and no store is made."""
    words = ("import", "nvidia-smi", EXAMPLES / "gpu.csv", "--timezone", "UTC")
    store = tmp_path / "new"
    for options in (
        ("--store", store, "--job", "a\udcffb"),
        ("--store", store, "--node", "n\udcff"),
        ("--store", f"{store}\udcff"),
    ):
        assert print_all(*words, *options, code=2).count("\n") == 1
        assert not list(tmp_path.iterdir()), options


@pytest.mark.long
def test_a_hint_names_the_store(tables: Path, tmp_path: Path, print_all: Print) -> None:
    """What to type after a job that nobody knows works as it stands."""
    print_all("import", "tables", tables, "--store", tmp_path / "books")
    assert f"--by job --store {tmp_path / 'books'}`" in print_all(
        "report", "--job", "nope", "--store", tmp_path / "books", code=2
    )


@pytest.mark.long
def test_without_idle_says_what_it_leaves_as_it_is(tables: Path, tmp_path: Path, print_all: Print) -> None:
    """With metrics that are no unit costs it says so, and is refused where none is one."""
    print_all("import", "tables", tables, "--store", tmp_path / "books")
    said = print_all("show", "cost", "cost_per_token", "--without-idle", "--store", tmp_path / "books")
    assert "loadfactor: --without-idle changes unit costs alone; as without it: cost\n" in said
    assert "unit costs alone" in print_all("show", "cost", "--without-idle", "--store", tmp_path / "books", code=2)
