"""Books that hold a bill and no GPUs: commands that bills can answer do, the others say in one line what is missing."""

import json
from pathlib import Path

import pytest
from tests.books.charging.gpu_bills import line, write_bill
from tests.commands import Run

from loadfactor.books.books import Books
from loadfactor.settings.config import settings

OF_GPUS = ("show cost", "show", "untagged", "bill compare", "bill compare --month 2026-10")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two machines with GPUs, one of them of a type that nobody knows, and storage that has a team."""
    lines = [
        line("i-1", 0, 24, "192"),
        line("i-2", 0, 24, "70", kind="p99.48xlarge"),
        line("disk", 0, 24, "8", kind="", Tags='{"team": "vision"}', ServiceName="Storage"),
    ]
    folder = tmp_path_factory.mktemp("bill")
    Books(folder / "s").add("focus", [write_bill(folder / "bill.csv", lines)])
    return folder / "s"


def test_the_report_says_who_paid(run: Run, store: Path) -> None:
    """Its statements are those of `chargeback`; it says that nothing is known of GPUs, and what to import."""
    code, out, _ = run("report", "--store", store, "--format", "json")
    said = json.loads(out)
    assert code == 0
    assert said["headline"].startswith("The bill is 270.00 USD of BilledCost and 270.00 USD of EffectiveCost. No GPUs")
    assert (said["readings"], [s["name"] for s in said["sections"]]) == ([], ["chargeback", "next"])
    _, out, _ = run("chargeback", "--store", store, "--format", "json")
    assert said["sections"][0]["chargeback"] == json.loads(out)
    for options in (("--from", "2026-10-01", "--to", "2026-11-01"), ("--from", "2026-10-01"), ("--by", "project")):
        code, out, _ = run("report", "--store", store, *options)
        assert code == 0
        assert "270.00 USD" in out


def test_doctor_says_which_gpus_are_billed(run: Run, store: Path) -> None:
    """GPUs that nothing else is known of, types that the catalog lacks, and the cost without a team; nothing is wrong."""
    code, out, _ = run("doctor", "--store", store, "--format", "json")
    said = json.loads(out)
    findings = {f["what"].split(":")[0]: f for f in said["findings"]}
    assert code == 0
    assert [f["grade"] for f in said["findings"]] == ["missing"] * 3
    assert list(findings) == [
        "GPUs of 1 machine are billed, and nothing else is known of them",
        "GPUs of the bill not known",
        "not all cost of the bill has a team",
    ]
    first, unknown, unowned = findings.values()
    assert (first["gpu_hours"], first["cost"]) == (192, 192)
    assert "p99.48xlarge" in unknown["what"]
    assert unowned["coverage"] == pytest.approx(8 / 270, abs=1e-6)
    assert run("doctor", "--store", store)[1].startswith("The books know of no GPU-hours yet")


@pytest.mark.parametrize("question", OF_GPUS)
def test_questions_of_gpus_are_refused_in_one_line(run: Run, store: Path, question: str) -> None:
    """It says what the books hold, which command answers of a bill, and what to import."""
    code, out, said = run(*question.split(), "--store", store)
    assert (code, out) == (2, "")
    assert "hold charges and no GPUs yet" in said
    assert f"chargeback --store {store}` says who pays the bill" in said
    assert said.count("\n") == 1


def test_what_bills_answer_is_answered(run: Run, store: Path) -> None:
    """Imports, commitments and statements need no GPUs; no command is named that would be refused."""
    for command in ("imports", "bill commitments", "chargeback --month 2026-10", "chargeback"):
        code, out, said = run(*command.split(), "--store", store)
        assert (code, said) == (0, ""), command
        assert "loadfactor untagged" not in out
    code, _, said = run("budget", "--store", store)
    assert code == 2
    assert "no budget in loadfactor.toml; write one" in said


def test_budgets_follow_the_bill(run: Run, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget of everybody is spent by the whole bill, that of a team by its lines; the report repeats them."""
    monkeypatch.chdir(tmp_path)
    Path("loadfactor.toml").write_text('[[budget]]\namount = 300\n[[budget]]\nteam = "vision"\namount = 7\n')
    settings.cache_clear()
    try:
        code, out, _ = run("budget", "--store", store, "--month", "2026-10", "--format", "json")
        said = json.loads(out)
        assert code == 1
        assert [float(status["spent"]) for status in said["statuses"]] == [270, 8]
        assert said["source"] == "bill"
        code, out, _ = run("report", "--store", store, "--format", "json")
        sections = {section["name"]: section for section in json.loads(out)["sections"]}
        assert list(sections) == ["chargeback", "budget", "next"]
        assert sections["budget"]["says"].startswith("1 of 2 budgets is overspent")
    finally:
        settings.cache_clear()
