"""Budgets followed by the ledger: the same as adding up every reading by day, by hand; and what is refused."""

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from tests.books.conftest import Write
from tests.long import rest_long

from loadfactor.base.errors import InputError
from loadfactor.books.books import Books
from loadfactor.money.project_cost import HeldCost, ProjectSpending, forecast_project
from loadfactor.money.spending import DailySpending, DaySpend, find_period, follow_budget
from loadfactor.settings.config import settings
from loadfactor.settings.money import ProjectPlan

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
        period = find_period(date(2026, 10, 29), budget.period)
        slow = follow_budget(budget, DailySpending(days, date(2026, 10, 29), date(2026, 9, 20)), period)
        assert status.spent == pytest.approx(slow.spent, abs=Decimal("1e-6")), budget.label
        assert status.forecast is not None
        assert slow.forecast is not None
        assert status.forecast.total == pytest.approx(slow.forecast.total, abs=Decimal("1e-6"))
        assert [t.reached_on for t in status.thresholds] == [t.reached_on for t in slow.thresholds]
        assert [a.day for a in status.anomalies] == [a.day for a in slow.anomalies]


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
    assert review.tag_coverage_share == Decimal(8) / 12
    assert status.burn_rate == Decimal(8) * 31 / (10 * 5)
    september = books.budgets(month="2026-09").statuses[0]
    assert (september.spent, september.period.last) == (0, date(2026, 9, 30))


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
