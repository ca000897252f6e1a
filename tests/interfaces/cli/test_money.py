"""Money at the terminal: budgets, projects, owned GPUs, bills with and without books of GPUs, savings and the waterfall."""

import json
from collections.abc import Iterator
from math import fsum
from pathlib import Path
from shutil import copytree

import pytest
from tests.books.charging.gpu_bills import line, write_bill
from tests.commands import Run, worked_example

from loadfactor.books.books import Books
from loadfactor.settings.config import settings

MONEY = """
[[budget]]
team = "vision"
amount = 100
[[budget]]
amount = 79.99
[[project]]
name = "tune"
runs = 2
gpu_hours_per_run = 10
price_per_gpu_hour = 8
[[owned]]
accelerator = "h100-sxm"
server_price = 300_000
"""


@pytest.fixture
def store(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Books of 10 GPU-hours of vision at $8, and two budgets, a project and owned GPUs in the settings."""
    monkeypatch.chdir(tmp_path)
    settings.cache_clear()
    rows = "".join(f"gpu{i},2026-03-01T00:00:00Z,2026-03-02T00:00:00Z\n" for i in range(8))
    devices = "device_id,from_utc,to_utc\n" + rows
    prices = "basis,from_utc,to_utc,price_per_gpu_hour\ncontracted,,2026-03-01T01:15:00Z,8\n"
    assert (
        run("import", "tables", worked_example(tmp_path / "w", devices=devices, prices=prices), "--store", "s")[0] == 0
    )
    Path("loadfactor.toml").write_text(MONEY)
    settings.cache_clear()
    yield tmp_path / "s"
    monkeypatch.undo()
    settings.cache_clear()


@pytest.mark.long
def test_budgets_stand_in_one_table_that_the_report_repeats(run: Run, store: Path) -> None:
    """One is overspent, so the command leaves with 1; amounts in JSON are decimal strings; the report says the same."""
    code, out, _ = run("budget", "--store", store)
    assert code == 1
    assert "1 of 2 budgets is overspent: everybody has spent $80.00 of $79.99." in out
    code, out, _ = run("budget", "--store", store, "--format", "json")
    said = json.loads(out)
    assert [(s["budget"]["amount"], float(s["spent"])) for s in said["statuses"]] == [("100", 80), ("79.99", 80)]
    assert (said["source"], said["basis"], said["complete_through"]) == ("ledger", "contracted", "2026-03-01")
    code, out, _ = run("report", "--store", store, "--format", "json")
    (section,) = (s for s in json.loads(out)["sections"] if s["name"] == "budget")
    assert section["says"].startswith("1 of 2 budgets is overspent: everybody has spent $80.00 of $79.99.")
    assert section["review"] == said


HEADER = "ProviderName,BillingAccountId,BillingPeriodStart,ChargePeriodStart,BillingCurrency,ChargeCategory,team,"
BILL = """BilledCost,EffectiveCost
cloud,1,2026-03-01T00:00:00Z,2026-03-01T00:00:00Z,USD,Usage,vision,60.105,50
cloud,1,2026-03-01T00:00:00Z,2026-03-01T00:00:00Z,USD,Usage,,9.9,9.9
cloud,1,2026-03-01T00:00:00Z,2026-03-01T00:00:00Z,USD,Tax,,7,7
"""


@pytest.mark.long
def test_the_report_says_who_paid_as_chargeback_does(run: Run, store: Path) -> None:
    """Its table sums to its sentence, pools included, and budgets follow the bill."""
    Path("bill").mkdir()
    Path("bill/charges.csv").write_text(HEADER + BILL)
    assert run("import", "tables", "bill", "--store", store)[0] == 0
    _, out, _ = run("report", "--store", store, "--format", "json")
    sections = {s["name"]: s for s in json.loads(out)["sections"]}
    paid = sections["chargeback"]
    assert "77.00 USD billed" in paid["says"]
    assert "difference 0.00" in paid["says"]
    amounts = [float(s["amounts"]["BilledCost"]) for s in paid["chargeback"]["statements"]]
    assert sum(amounts) == pytest.approx(float(paid["chargeback"]["totals"]["BilledCost"]["charged"]))
    assert {s["pool"] for s in paid["chargeback"]["statements"]} == {None, "shared", "unallocated"}
    assert sections["budget"]["review"]["source"] == "bill"
    assert [float(s["spent"]) for s in sections["budget"]["review"]["statuses"]] == [50, 66.9]
    _, out, _ = run("report", "--store", store)
    assert "Who paid" in out


def test_projects_and_owned_gpus_have_pages(run: Run, store: Path) -> None:
    """The project is planned at $160; the golden server's GPU-hour costs $1.80; bills there are none."""
    code, out, _ = run("project", "--store", store)
    assert (code, out.splitlines()[0]) == (0, "tune is planned at $160.00; the books have nothing of it yet.")
    code, out, _ = run("owned", "--store", store, "--format", "json")
    (use,) = json.loads(out)
    assert use["assumed"]["price_per_gpu_hour"] == pytest.approx(1.8028433997750832)
    assert (use["label"], use["installed_gpu_hours"], use["measured"]) == ("h100-sxm", 0, None)
    code, _, err = run("bill", "commitments", "--store", store)
    assert (code, "no bill in" in err, err.count("\n")) == (2, True, 1)


def test_what_is_not_written_is_asked_for_in_one_line(run: Run, store: Path) -> None:
    """Of budgets, projects and owned GPUs, and of a month that is none."""
    assert run("budget", "--store", store, "--month", "2026-3")[2].endswith("is no month; write --month 2026-10\n")
    Path("loadfactor.toml").write_text("")
    settings.cache_clear()
    for command, table in (("budget", "[[budget]]"), ("project", "[[project]]"), ("owned", "[[owned]]")):
        code, _, err = run(command, "--store", store)
        assert (code, table in err, err.count("\n")) == (2, True, 1), command


OF_GPUS = ("show cost", "show", "untagged", "bill compare", "bill compare --month 2026-10")


@pytest.fixture(scope="module")
def billed_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two machines with GPUs, one of them of a type that nobody knows, and storage that has a team."""
    lines = [
        line("i-1", 0, 24, "192"),
        line("i-2", 0, 24, "70", kind="p99.48xlarge"),
        line("disk", 0, 24, "8", kind="", Tags='{"team": "vision"}', ServiceName="Storage"),
    ]
    folder = tmp_path_factory.mktemp("bill")
    Books(folder / "s").add("focus", [write_bill(folder / "bill.csv", lines)])
    return folder / "s"


@pytest.mark.long
def test_the_report_says_who_paid(run: Run, billed_store: Path) -> None:
    """Its statements are those of `chargeback`; it says that nothing is known of GPUs, and what to import."""
    code, out, _ = run("report", "--store", billed_store, "--format", "json")
    said = json.loads(out)
    assert code == 0
    assert said["headline"].startswith("The bill is 270.00 USD of BilledCost and 270.00 USD of EffectiveCost. No GPUs")
    assert (said["readings"], [s["name"] for s in said["sections"]]) == ([], ["chargeback", "bridge", "next"])
    _, out, _ = run("chargeback", "--store", billed_store, "--format", "json")
    assert said["sections"][0]["chargeback"] == json.loads(out)
    for options in (("--from", "2026-10-01", "--to", "2026-11-01"), ("--from", "2026-10-01"), ("--by", "project")):
        code, out, _ = run("report", "--store", billed_store, *options)
        assert code == 0
        assert "270.00 USD" in out


@pytest.mark.long
def test_doctor_says_which_gpus_are_billed(run: Run, billed_store: Path) -> None:
    """GPUs that nothing else is known of, types that the catalog lacks, and the cost without a team; nothing is wrong."""
    code, out, _ = run("doctor", "--store", billed_store, "--format", "json")
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
    assert run("doctor", "--store", billed_store)[1].startswith("The books know of no GPU-hours yet")


@pytest.mark.long
@pytest.mark.parametrize("question", OF_GPUS)
def test_questions_of_gpus_are_refused_in_one_line(run: Run, billed_store: Path, question: str) -> None:
    """It says what the books hold, which command answers of a bill, and what to import."""
    code, out, said = run(*question.split(), "--store", billed_store)
    assert (code, out) == (2, "")
    assert "hold charges and no GPUs yet" in said
    assert f"chargeback --store {billed_store}` says who pays the bill" in said
    assert said.count("\n") == 1


@pytest.mark.long
def test_what_bills_answer_is_answered(run: Run, billed_store: Path) -> None:
    """Imports, commitments and statements need no GPUs; no command is named that would be refused."""
    for command in ("imports", "bill commitments", "chargeback --month 2026-10", "chargeback"):
        code, out, said = run(*command.split(), "--store", billed_store)
        assert (code, said) == (0, ""), command
        assert "loadfactor untagged" not in out
    code, _, said = run("budget", "--store", billed_store)
    assert code == 2
    assert "no budget in loadfactor.toml; write one" in said


@pytest.mark.long
def test_budgets_follow_the_bill(run: Run, billed_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget of everybody is spent by the whole bill, that of a team by its lines; the report repeats them."""
    monkeypatch.chdir(tmp_path)
    Path("loadfactor.toml").write_text('[[budget]]\namount = 300\n[[budget]]\nteam = "vision"\namount = 7\n')
    settings.cache_clear()
    try:
        code, out, _ = run("budget", "--store", billed_store, "--month", "2026-10", "--format", "json")
        said = json.loads(out)
        assert code == 1
        assert [float(status["spent"]) for status in said["statuses"]] == [270, 8]
        assert said["source"] == "bill"
        code, out, _ = run("report", "--store", billed_store, "--format", "json")
        sections = {section["name"]: section for section in json.loads(out)["sections"]}
        assert list(sections) == ["chargeback", "bridge", "budget", "next"]
        assert sections["budget"]["says"].startswith("1 of 2 budgets is overspent")
    finally:
        settings.cache_clear()


@pytest.mark.long
def test_levers_add_up_and_are_told(run: Run, october: Path) -> None:
    """In JSON `saved_at_most` is the sum of levers and at most what was lost; the page names each."""
    code, out, _ = run("savings", "--by", "team", "--store", october, "--format", "json")
    said = json.loads(out)
    assert code == 0
    assert {"levers", "currency", "lost", "saved_at_most"} <= set(said)
    assert all({"lever", "saved", "gpu_hours", "confidence"} <= set(lever) for lever in said["levers"])
    assert said["levers"]
    assert said["saved_at_most"] == fsum(lever["saved"] for lever in said["levers"])
    assert 0 < said["saved_at_most"] <= said["lost"]
    assert fsum(row["saved"] for row in said["rows"]) == pytest.approx(said["saved_at_most"])
    code, out, _ = run("savings", "--store", october)
    assert code == 0
    assert all(lever["title"] in out for lever in said["levers"])
    code, _, err = run("savings", "--by", "node", "--store", october)
    assert code == 2
    assert "team or user" in err


TOML = '[[network]]\nmodel = "llama-3.1-8b"\nsequence_length = 4096\ndatatype = "bf16"\n'


@pytest.fixture
def october_store(october: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The books of examples/october, asked with a network for all jobs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loadfactor.toml").write_text(TOML)
    settings.cache_clear()
    return october


def test_the_steps_add_up_to_what_was_paid(run: Run, october_store: Path) -> None:
    """In JSON each group has every level, loss and unknown in the fixed order; they sum to paid in hours and money."""
    code, out, _ = run("waterfall", "--by", "team", "--store", october_store, "--format", "json")
    said = json.loads(out)
    assert code == 0
    for group in (said["all"], *said["rows"]):
        names = [step["name"] for step in group["steps"] if step["kind"] == "level"]
        assert names == ["paid", "held", "observed", "not_idle", "active", "math", "kept", "useful"]
        for unit in ("gpu_hours", "cost"):
            ends = [step[unit] or 0 for step in group["steps"] if step["kind"] != "level" or step["name"] == "useful"]
            assert fsum(ends) == pytest.approx(group[unit]["paid"], rel=1e-9)
    paid, useful = (fsum(g["gpu_hours"][name] for g in said["rows"]) for name in ("paid", "useful"))
    assert (paid, useful) == pytest.approx((576, said["all"]["gpu_hours"]["useful"]), rel=1e-9)
    assert 0 < useful < said["all"]["gpu_hours"]["useful"] + said["all"]["gpu_hours"]["unknown"] < paid


def test_a_person_reads_what_is_known_and_what_is_not(run: Run, october_store: Path) -> None:
    """The sentence on top gives useful as a range where something is unknown; a split that work cannot be told by is refused."""
    code, out, _ = run("waterfall", "--store", october_store)
    text = " ".join(out.split())
    assert code == 0
    assert "were useful" in text
    assert "it is between" in text
    assert "− unallocated" in text
    code, _, err = run("waterfall", "--by", "device", "--store", october_store)
    assert (code, len(err.strip().splitlines())) == (2, 1)
    assert "device" in err


@pytest.mark.long
def test_causes_stand_under_what_they_are_parts_of(run: Run, october_store: Path, tmp_path: Path) -> None:
    """Lost work by its cause under its step, sections in a table of their own, and both with what is unknown in JSON."""
    october_store = Path(copytree(october_store, tmp_path / "store"))
    said = json.loads(run("waterfall", "--store", october_store, "--format", "json")[1])
    assert said["all"]["causes"] == []
    job = "481776"
    more = tmp_path / "more"
    more.mkdir()
    begin, end = "2026-10-05T10:00:00Z", "2026-10-05T10:30:00Z"
    (more / "progress.csv").write_text(
        f"job_id,from_utc,to_utc,unit,amount,kept,cause\n{job},{begin},{end},train_token,1e6,false,restart\n"
    )
    (more / "job_sections.csv").write_text(f"job_id,from_utc,to_utc,kind\n{job},{begin},{end},checkpoint\n")
    assert run("import", "tables", more, "--store", october_store)[0] == 0
    _, out, _ = run("waterfall", "--store", october_store)
    lines = [" ".join(line.split()) for line in out.splitlines()]
    lost = next(number for number, line in enumerate(lines) if line.startswith("− lost work"))
    assert lines[lost + 1].startswith("restart since the last checkpoint")
    assert any(line.startswith("checkpoint stalls") for line in lines)
    causes = json.loads(run("waterfall", "--store", october_store, "--format", "json")[1])["all"]["causes"]
    assert [(part["of"], part["cause"]) for part in causes] == [
        ("lost_work", "restart"),
        ("lost_work", None),
        ("without_math", "checkpoint"),
        ("without_math", None),
    ]


@pytest.mark.parametrize(
    ("toml", "named"),
    [
        ('[[network]]\ndatatype = "bf17"\n', "bf16"),
        ('[[network]]\nmodel = "gpt2-xl"\nsequence_length = 0\n', "sequence_length"),
        ('[[network]]\nmatch = { teem = "a" }\nmodel = "gpt2-xl"\n', "team"),
        ("[[network]]\n", "gives"),
    ],
)
def test_a_wrong_network_is_said_in_one_line(
    run: Run, october_store: Path, tmp_path: Path, toml: str, named: str
) -> None:
    """What is wrong in a table [[network]] is named, with what is meant."""
    (tmp_path / "loadfactor.toml").write_text(toml)
    settings.cache_clear()
    code, _, err = run("waterfall", "--store", october_store)
    assert (code, len(err.strip().splitlines())) == (2, 1)
    assert named in err


def test_what_to_commit_to_is_the_cheapest_of_all_numbers(run: Run, october_store: Path) -> None:
    """By hand, hour by hour at both prices: the page has the number of GPUs that costs least, and what others would have cost."""
    code, out, err = run("bill", "commitments", "--commit-price", 1.2, "--store", october_store, "--json")
    assert code == 0, err
    choice = json.loads(out)["choice"]
    books = Books(october_store)
    hours = [float(r.value or 0) for r in books.show("allocated_gpu_hours", "hour")]  # type: ignore[arg-type]
    costs = [sum(1.2 * gpus + 2.35 * max(0.0, held - gpus) for held in hours) for gpus in range(9)]
    best = costs.index(min(costs))
    assert (choice["gpus"], choice["rent_price"]) == (best, pytest.approx(2.35))
    assert choice["saved"] == pytest.approx(costs[0] - costs[best])
    assert choice["covered_share"] == pytest.approx(sum(min(best, held) for held in hours) / sum(hours))
    for option in choice["options"]:
        assert option["cost"] == pytest.approx(costs[option["gpus"]])
        assert option["regret"] == pytest.approx(costs[option["gpus"]] - costs[best], abs=1e-9)
    assert run("bill", "commitments", "--commit-price", 3, "--store", october_store)[1].startswith("Commit to nothing")
    assert "go with --commit-price" in run("bill", "commitments", "--rent-price", 3, "--store", october_store)[2]
