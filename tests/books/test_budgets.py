"""Budgets and commitments followed by the ledger and by bills: the same as adding up every reading by hand."""

import csv
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from tests.books.conftest import Write
from tests.long import rest_long

from loadfactor.base.errors import InputError
from loadfactor.books.books import Books
from loadfactor.books.charging import fleet_chargeback
from loadfactor.money.commitments import CommitmentUse
from loadfactor.money.project_cost import HeldCost, ProjectSpending, forecast_project
from loadfactor.money.spending import DailySpending, DaySpend, find_period, follow_budget
from loadfactor.settings.config import settings
from loadfactor.settings.money import ProjectPlan
from loadfactor.sources.base import ReadOptions

BUDGETS = """
[[budget]]
amount = 3000
[[budget]]
team = "vision"
amount = "900.50"
least_anomaly = 1
[[budget]]
project = "search"
amount = 500
period = "quarter"
"""


def simulate(folder: Path, seed: int) -> Books:
    """Two GPUs for 40 days at $2, held by random jobs of two teams and projects, or by nobody."""
    rnd = random.Random(seed)
    start = datetime(2026, 9, 20, tzinfo=UTC)
    end = start + timedelta(days=40, hours=5)
    jobs = ["job_id,device_id,team,project,from_utc,to_utc"]
    for gpu in ("a", "b"):
        at, number = start, 0
        while at < end:
            until = min(at + timedelta(minutes=rnd.randint(30, 4000)), end)
            team, project = rnd.choice(["vision", "nlp", ""]), rnd.choice(["search", ""])
            if rnd.random() < 0.8:
                jobs.append(f"{gpu}{number},{gpu},{team},{project},{at.isoformat()},{until.isoformat()}")
            at, number = until, number + 1
    folder.mkdir()
    (folder / "allocations.csv").write_text("\n".join(jobs))
    span = f"{start.isoformat()},{end.isoformat()}"
    (folder / "devices.csv").write_text(f"device_id,from_utc,to_utc\na,{span}\nb,{span}\n")
    (folder / "prices.csv").write_text("basis,price_per_gpu_hour\ncontracted,2\n")
    books = Books(folder / "store")
    books.add("tables", [folder])
    return books


NO_CENT = Decimal("0.0001")
"""What readings lose as floating-point numbers, of days added up and multiplied by those to come."""


@pytest.mark.long
@pytest.mark.parametrize("seed", rest_long(range(2)))
def test_budgets_stand_on_the_readings_of_every_day(seed: int, tmp_path: Path, write: Write) -> None:
    """Spent, forecast, thresholds and unusual days are those of the cost that `show` says of each day."""
    write(BUDGETS)
    books = simulate(tmp_path / "b", seed)
    review = books.budgets()
    assert (review.source, review.basis, review.currency) == ("ledger", "contracted", "USD")
    assert review.complete_through == date(2026, 10, 29)
    for status in review.statuses:
        budget = status.budget
        owner = {n: v for n, v in (("team", budget.team), ("project", budget.project)) if v is not None}
        readings = books.show("cost", "day", where=owner)
        days = [
            DaySpend(date.fromisoformat(str(r.by["day"])), Decimal(str(round(r.value, 9))))
            for r in readings
            if isinstance(r.value, float)
        ]
        # What statements of a month round, each by less than a cent, is of its last day.
        for month in sorted({day.day.replace(day=1) for day in days}):
            statements = books.chargeback(f"{month:%Y-%m}", by=tuple(owner) or "team").statements
            own = [s.amounts["EffectiveCost"] for s in statements if not owner or owner.items() <= s.by.items()]
            of_month = [day for day in days if day.day.replace(day=1) == month]
            rounding = sum(own) - sum(day.variable for day in of_month)
            assert abs(rounding) < Decimal("0.01") * len(own) + NO_CENT, budget.label
            days.append(DaySpend(of_month[-1].day, rounding))
        period = find_period(date(2026, 10, 29), budget.period)
        slow = follow_budget(budget, DailySpending(days, date(2026, 10, 29), date(2026, 9, 20)), period)
        assert status.spent == pytest.approx(slow.spent, abs=NO_CENT), budget.label
        assert status.forecast is not None
        assert slow.forecast is not None
        assert status.forecast.total == pytest.approx(slow.forecast.total, abs=NO_CENT)
        assert [t.reached_on for t in status.thresholds] == [t.reached_on for t in slow.thresholds]
        assert [a.day for a in status.anomalies] == [a.day for a in slow.anomalies]


@pytest.mark.long
def test_tag_coverage_is_of_the_cost_that_can_have_an_owner(tmp_path: Path, write: Write) -> None:
    """Of $24 in the month $8 have a team, $4 have none, and the rest nobody held, which cannot have one."""
    write('[[budget]]\nteam = "vision"\namount = 10\n')
    folder = tmp_path / "b"
    folder.mkdir()
    day = "2026-10-05T{}:00:00Z"
    (folder / "allocations.csv").write_text(
        "job_id,device_id,team,from_utc,to_utc\n"
        f"1,a,vision,{day.format('00')},{day.format('04')}\n2,a,,{day.format('04')},{day.format('06')}\n"
    )
    (folder / "devices.csv").write_text(f"device_id,from_utc,to_utc\na,{day.format('00')},2026-10-06T00:00:00Z\n")
    (folder / "prices.csv").write_text("basis,price_per_gpu_hour\ncontracted,2\n")
    books = Books(folder / "store")
    books.add("tables", [folder])
    review = books.budgets()
    (status,) = review.statuses
    assert (status.spent, status.left, review.tag_names) == (8, 2, ("team",))
    assert review.tag_coverage_share == books.chargeback("2026-10").tag_coverage_share == round(Decimal(8) / 12, 6)
    assert status.burn_rate == Decimal(8) * 31 / (10 * 5)
    september = books.budgets(month="2026-09").statuses[0]
    assert (september.spent, september.period.last) == (0, date(2026, 9, 30))


@pytest.mark.long
def test_without_a_budget_one_line_says_what_to_write(tmp_path: Path, write: Write) -> None:
    """It names the table, a setting of it and the file."""
    write("")
    with pytest.raises(InputError, match=r"no budget in loadfactor\.toml; write one: \[\[budget\]\] with amount"):
        simulate(tmp_path / "b", 0).budgets()


PLAN = '[[project]]\nname = "tune"\nruns = 4\ngpu_hours_per_run = 8\nretry_percent = 25\nevaluation_gpu_hours = 6\n'
PLAN += 'price_per_gpu_hour = 3\nstorage_cost = 50\nstaff_cost = "1000.50"\n'


def books_of(folder: Path) -> Books:
    """One GPU at $2: two runs that completed (6 and 10 hours), one that failed (4), one of evaluation (2), one of others."""
    rows = [
        ("r1", "e1", "", 0, 6, "completed"),
        ("r2", "e2", "", 6, 10, "failed"),
        ("r3", "e2", "", 10, 20, "completed"),
        ("ev", "e1", "evaluation", 20, 22, "completed"),
    ]
    folder.mkdir()
    lines = ["job_id,device_id,project,experiment_id,purpose,from_utc,to_utc,end_state"]
    lines += [
        f"{job},a,tune,{experiment},{purpose},2026-10-05T{start:02d}:00:00Z,2026-10-05T{end:02d}:00:00Z,{state}"
        for job, experiment, purpose, start, end, state in rows
    ]
    lines.append("o,a,other,e9,,2026-10-05T22:00:00Z,2026-10-05T23:00:00Z,completed")
    (folder / "allocations.csv").write_text("\n".join(lines))
    (folder / "devices.csv").write_text("device_id,from_utc,to_utc\na,2026-10-05T00:00:00Z,2026-10-06T00:00:00Z\n")
    (folder / "prices.csv").write_text("basis,price_per_gpu_hour\ncontracted,2\n")
    books = Books(folder / "store")
    books.add("tables", [folder])
    return books


def test_a_project_is_planned_followed_and_forecast(tmp_path: Path, write: Write) -> None:
    """Two runs are done at 10 GPU-hours each with what failed; two more cost that at $2; the rest is as planned."""
    write(PLAN)
    review = books_of(tmp_path / "b").projects()
    (project,) = review.projects
    said = project.spending
    assert (said.runs_done, said.training.gpu_hours, said.lost_gpu_hours, said.evaluation.gpu_hours) == (2, 20, 4, 2)
    assert project.planned_cost == 4 * 8 * Decimal("1.25") * 3 + 6 * 3 + 50 + Decimal("1000.50")
    assert (project.spent_cost, project.runs_left, project.gpu_hours_per_run) == (44, 2, 10)
    assert project.expected_cost == 40 * 2 + 6 * 2 + 50 + Decimal("1000.50")
    assert [part.name for part in project.parts] == ["training", "evaluation", "storage", "staff"]


@pytest.mark.long
def test_a_project_may_be_found_by_its_experiments(tmp_path: Path, write: Write) -> None:
    """Those that are named count, in place of the project's name."""
    write(PLAN.replace('"tune"', '"other name"') + 'experiments = ["e2"]\n')
    (project,) = books_of(tmp_path / "b").projects().projects
    assert (project.spending.training.gpu_hours, project.spending.runs_done) == (14, 1)


def test_owned_hours_are_split_into_what_they_consist_of(tmp_path: Path, write: Write) -> None:
    """The expected cost of GPU-hours, from capital to staff, in the proportions of a year of the server."""
    write(PLAN + '[[owned]]\naccelerator = "h100-sxm"\nserver_price = 300_000\n')
    (project,) = books_of(tmp_path / "b").projects(basis="owned").projects
    gpus = sum((part.expected_cost for part in project.parts[:2]), Decimal(0))
    assert float(sum(project.capital.values())) == pytest.approx(float(gpus))
    assert float(project.capital["capital"] / gpus) == pytest.approx(81_712.99 / 126_343.27, rel=1e-6)


def test_without_a_finished_run_the_plan_holds() -> None:
    """Hours held already are a part of those planned; when they are more, the rest is nothing."""
    plan = ProjectPlan.model_validate({"name": "p", "runs": 2, "gpu_hours_per_run": 10, "price_per_gpu_hour": 1})
    for held, at_end in ((0, 20), (5, 20), (30, 30)):
        cost = forecast_project(plan, ProjectSpending(training=HeldCost(Decimal(held))))
        assert (cost.parts[0].expected_gpu_hours, cost.expected_cost, cost.method) == (at_end, at_end, "as planned")


def test_hours_without_a_price_do_not_make_the_others_cheaper() -> None:
    """Of ten hours half have a price of 4: the other half, and those to come, cost that, too."""
    plan = ProjectPlan.model_validate({"name": "p", "runs": 2, "gpu_hours_per_run": 9, "price_per_gpu_hour": 1})
    cost = forecast_project(plan, ProjectSpending(1, HeldCost(Decimal(10), Decimal(5), Decimal(20))))
    assert (cost.price_per_gpu_hour, cost.spent_cost, cost.expected_cost) == (4, 20, 80)


def test_without_a_project_one_line_says_what_to_write(tmp_path: Path, write: Write) -> None:
    """It names the table and its settings; so do mistakes in it."""
    write("")
    with pytest.raises(InputError, match=r"no project in loadfactor\.toml; write one: \[\[project\]\], name"):
        books_of(tmp_path / "b").projects()
    write(PLAN + PLAN)
    with pytest.raises(InputError, match="two projects are called 'tune'"):
        settings()


Cells = dict[str, str]
BILLED_BUDGETS = """
[[budget]]
amount = 10_000
[[budget]]
team = "vision"
amount = 5_000
[[budget]]
team = "vision"
amount = 5_000
column = "BilledCost"
"""
TODAY = date(2026, 6, 20)


def bill(folder: Path, rows: list[Cells]) -> Books:
    """Books with these charges of June 2026 as a FOCUS file."""
    always = {
        "ProviderName": "cloud",
        "BillingAccountId": "1",
        "BillingCurrency": "USD",
        "BillingPeriodStart": "2026-06-01T00:00:00Z",
        "BillingPeriodEnd": "2026-07-01T00:00:00Z",
        "ChargeCategory": "Usage",
        "ChargeFrequency": "Usage-Based",
        "ServiceName": "instances",
    }
    full = [always | row for row in rows]
    names = sorted({name for row in full for name in row})
    folder.mkdir()
    with (folder / "bill.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(full)
    books = Books(folder / "store")
    books.add("focus", [folder / "bill.csv"])
    return books


def charge(start: datetime, days: float, cost: str, **cells: str) -> Cells:
    """A charge that begins at a time and lasts so many days; all of its costs are the same unless cells say otherwise."""
    period = {
        "ChargePeriodStart": f"{start:%Y-%m-%dT%H:%M:%SZ}",
        "ChargePeriodEnd": f"{start + timedelta(days=days):%Y-%m-%dT%H:%M:%SZ}",
    }
    return period | dict.fromkeys(("BilledCost", "EffectiveCost", "ListCost", "ContractedCost"), cost) | cells


def tagged(team: str) -> str:
    return f'{{"team": "{team}"}}' if team else ""


@pytest.mark.long
@pytest.mark.parametrize("seed", rest_long(range(2)))
def test_spent_is_what_statements_charge(seed: int, tmp_path: Path, write: Write) -> None:
    """To the cent, and by hand in Python's decimals: each column by itself, credits with their sign, every charge on its days."""
    write(BILLED_BUDGETS)
    rnd = random.Random(seed)
    rows, expected = [], dict.fromkeys(("everybody", "vision", "billed"), Decimal(0))
    for _ in range(300):
        start = datetime(2026, 6, 1, tzinfo=UTC) + timedelta(hours=rnd.randrange(0, 18 * 24))
        team = rnd.choice(["vision", "nlp", ""])
        effective = Decimal(rnd.randint(-(10**9), 10**11)) / 10**9
        billed = Decimal(rnd.randint(0, 10**11)) / 10**9
        length = rnd.choice([1 / 24, 1, 3])
        rows.append(
            charge(start, length, str(effective), BilledCost=str(billed), Tags=tagged(team), ResourceId=str(len(rows)))
        )
        if start + timedelta(days=length) <= datetime(2026, 7, 1, tzinfo=UTC):
            expected["everybody"] += effective
            expected["vision"] += effective if team == "vision" else 0
            expected["billed"] += billed if team == "vision" else 0
    books = bill(tmp_path / "b", rows)
    review = books.budgets(today=TODAY)
    assert (review.source, review.basis, review.complete_through) == ("bill", None, date(2026, 6, 18))
    found = books.chargeback("2026-06")
    (vision,) = (statement.amounts for statement in found.statements if statement.by["team"] == "vision")
    charged = [found.totals["EffectiveCost"].charged, vision["EffectiveCost"], vision["BilledCost"]]
    assert [status.spent for status in review.statuses] == charged
    assert charged == pytest.approx(list(expected.values()), abs=Decimal("0.01"))
    assert review.tag_coverage_share == found.tag_coverage_share


@pytest.mark.long
def test_a_snapshot_charges_a_month_once(tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Statements, budgets and bridges of one snapshot divide the bill no oftener than budgets and one bridge alone."""
    write('[[budget]]\namount = 100\n[[budget]]\nteam = "vision"\namount = 100\n')
    june = datetime(2026, 6, 1, tzinfo=UTC)
    rows = [charge(june + timedelta(n), 1, "10", Tags=tagged(team)) for n in range(9) for team in ("vision", "nlp")]
    divided, divide = [], fleet_chargeback._charge_bill
    monkeypatch.setattr(fleet_chargeback, "_charge_bill", lambda *given: divided.append(given[1]) or divide(*given))
    with bill(tmp_path / "b", rows).snapshot() as snapshot:
        snapshot.budgets("2026-06"), snapshot.bridge(None, "2026-06")
        once = len(divided)
        amounts = [snapshot.bridge(team, "2026-06").steps[-1].amount for team in ("vision", None)]
        (vision, _) = sorted(snapshot.chargeback("2026-06").statements, key=lambda of: of.by["team"] != "vision")
        assert (vision.amounts["EffectiveCost"], amounts) == (90, [90, 180])
    assert len(divided) == once == 2


@pytest.mark.long
def test_fixed_cost_is_not_carried_on_and_a_daily_one_goes_on(tmp_path: Path, write: Write) -> None:
    """A fee of $3,000 on day 1 and $250 a day of use come to $10,500 in June; a commitment amortized at $10 a day to $300 more."""
    write("[[budget]]\namount = 12_000\n")
    june = datetime(2026, 6, 1, tzinfo=UTC)
    use = [charge(june + timedelta(n), 1, "250", ResourceId=str(n)) for n in range(12)]
    fee = charge(june, 30, "3000", ChargeCategory="Purchase", ChargeFrequency="Recurring")
    (status,) = bill(tmp_path / "b", [*use, fee]).budgets(today=date(2026, 6, 14)).statuses
    assert status.forecast is not None
    assert (status.fixed_spent, status.spent, status.forecast.total) == (3000, 6000, 10_500)
    assert status.burn_rate == Decimal(6000) * 30 / (12_000 * 12)
    amortized = [
        charge(
            june + timedelta(n), 1, "10", CommitmentDiscountId="c", CommitmentDiscountStatus="Used", ResourceId=f"c{n}"
        )
        for n in range(12)
    ]
    (status,) = bill(tmp_path / "c", [*use, fee, *amortized]).budgets(today=date(2026, 6, 14)).statuses
    assert status.forecast is not None
    assert status.forecast.total == 10_800


def test_a_charge_of_several_days_lies_on_each_of_them(tmp_path: Path, write: Write) -> None:
    """$10 for three days pass $5 on the second; the days sum to $10 exactly."""
    write("[[budget]]\namount = 10\nthresholds_percent = [50, 100]\n")
    rows = [charge(datetime(2026, 6, 1, tzinfo=UTC), 3, "10")]
    (status,) = bill(tmp_path / "b", rows).budgets(today=date(2026, 6, 10)).statuses
    assert status.spent == 10
    assert [threshold.reached_on for threshold in status.thresholds] == [date(2026, 6, 2), date(2026, 6, 3)]


def test_a_commitment_is_measured_by_the_bill(tmp_path: Path, write: Write) -> None:
    """100 committed at 1.80, 80 used at 3.00 on demand: saved a quarter, $36 unused; coverage by use beside it; spot apart."""
    write("")
    june = datetime(2026, 6, 1, tzinfo=UTC)
    committed = {
        "CommitmentDiscountId": "arn/ri-1",
        "CommitmentDiscountType": "Reserved",
        "PricingCategory": "Committed",
    }
    rows = [
        charge(june, 30, "0", ChargeCategory="Purchase", BilledCost="180", ChargeFrequency="Recurring", **committed),
        charge(june, 1, "144", BilledCost="0", ContractedCost="240", CommitmentDiscountStatus="Used", **committed),
        charge(june, 1, "36", BilledCost="0", ContractedCost="60", CommitmentDiscountStatus="Unused", **committed),
        charge(june, 1, "60", ResourceId="beside"),
        charge(june, 1, "500", ServiceName="storage"),
        charge(june, 1, "12", ContractedCost="30", PricingCategory="Dynamic"),
    ]
    found = bill(tmp_path / "b", rows).commitments()
    (one,) = found.commitments
    assert one.use == CommitmentUse(Decimal(144), Decimal(36), Decimal(0), Decimal(240))
    assert (one.use.effective_savings_share, one.use.utilization_share) == (Decimal("0.25"), Decimal("0.8"))
    assert (one.label, one.purchased_cost, one.difference_cost) == ("ri-1", 180, 0)
    assert (found.uncovered.uncovered_cost, found.together.coverage_share) == (60, Decimal("0.8"))
    assert found.spot.effective_savings_share == Decimal("0.6")


SPEC = {  # file: purchased, used, unused, on demand of covered use, of use beside it; typed from FOCUS's examples
    "one_hundred_percent_utilization_with_commitment_discount_flexibility_with_1_resource": "0.5 0.5 0 3 2.25",
    "one_hundred_percent_utilization_with_commitment_discount_flexibility_with_2_resources": "2 2 0 4 0",
    "one_hundred_percent_utilization_without_commitment_discount_flexibility": "1.5 1.5 0 3 0",
    "zero_percent_utilization_without_commitment_discount_flexibility": "1.5 0 1.5 0 2",
}


@pytest.mark.long
@pytest.mark.parametrize("name", SPEC)
def test_the_examples_of_focus_keep_its_invariants(name: str, tmp_path: Path, write: Write, shared: Path) -> None:
    """What was purchased is what usage costs amortized, and that is what was used and what was not."""
    write("")
    path = shared / "data" / "billing" / "focus_spec_examples" / f"commitment_discount_flexibility__{name}.csv"
    books = Books(tmp_path / "store")
    books.add("focus", [path], ReadOptions(currency="USD"))
    found = books.commitments()
    (one,) = found.commitments
    said = [one.purchased_cost, one.use.used_cost, one.use.unused_cost, one.use.covered_on_demand_cost]
    assert [*said, found.uncovered.uncovered_on_demand_cost] == [Decimal(x) for x in SPEC[name].split()]
    assert one.difference_cost == 0


@pytest.mark.long
def test_of_two_exports_of_a_period_each_cost_is_read_once(tmp_path: Path, write: Write) -> None:
    """What is invoiced is that of the actual one, amortized cost that of the other, and of a period that has one only all of it.

    Charges in another currency count at the dated rate; without one they are refused.
    """
    write('[[budget]]\namount = 1\n[[budget]]\namount = 1\ncolumn = "BilledCost"\n')
    rows = [
        "ProviderName,BillingAccountId,BillingPeriodStart,ChargePeriodStart,BillingCurrency,x_Dataset,BilledCost,EffectiveCost"
    ]
    rows += [
        f"Azure,{account},2026-06-01T00:00:00Z,2026-06-02T00:00:00Z,{currency},{dataset},{billed},{effective}"
        for account, currency, dataset, billed, effective in (
            ("a", "USD", "actual", 7, 1),
            ("a", "USD", "amortized", 90, 5),
            ("b", "USD", "amortized", 400, 600),
            ("b", "EUR", "", 8000, 9000),
        )
    ]
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "charges.csv").write_text("\n".join(rows))
    books = Books(tmp_path / "store")
    books.add("tables", [tmp_path / "b"])
    with pytest.raises(InputError, match="no rate of EUR in USD is known"):
        books.budgets(today=TODAY)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "exchange_rates.csv").write_text("currency,rate\nEUR,1.25\n")
    books.add("tables", [tmp_path / "c"])
    review = books.budgets(today=TODAY)
    assert [status.spent for status in review.statuses] == [605 + 11_250, 407 + 10_000]
    assert (review.currency, len(review.remarks)) == ("USD", 1)
