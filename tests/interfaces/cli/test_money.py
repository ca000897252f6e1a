"""`budget`, `project`, `owned` and `bill` at the terminal: what they say, their exit codes, and the report's own table."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.commands import Run, worked_example

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
