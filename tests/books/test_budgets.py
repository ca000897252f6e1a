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
from loadfactor.money.budgets import follow_budget
from loadfactor.money.spending import DailySpending, DaySpend, find_period

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
