"""The digest of a period: what it says of the fleet, a team and a user, beside what `show` and `waterfall` say."""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.commands import Run

import loadfactor
from loadfactor.base.units import MS_PER_DAY, MS_PER_HOUR
from loadfactor.books.books import Books
from loadfactor.insight.alerts.alert import Alert, Transition
from loadfactor.insight.alerts.delivery.outbox import Judged, Outbox
from loadfactor.interfaces.digests.digest import Audience, build_digest
from loadfactor.interfaces.digests.period import find_last, find_period
from loadfactor.metrics.query.calendar import milliseconds
from loadfactor.settings.config import settings

WEEKS = {
    "devices": "device_id,node,from_utc,to_utc\n"
    + "".join(f"g{n},n{n},2026-10-05T00:00Z,2026-10-19T00:00Z\n" for n in range(3)),
    "prices": "basis,price_per_gpu_hour\ncontracted,2\n",
    "allocations": "job_id,device_id,user,team,from_utc,to_utc\n"
    "1,g0,ann,vision,2026-10-05T00:00Z,2026-10-10T04:00Z\n"
    "2,g0,ann,vision,2026-10-12T00:00Z,2026-10-14T02:00Z\n3,g1,ann,vision,2026-10-12T00:00Z,2026-10-12T10:00Z\n"
    "4,g2,bob,speech,2026-10-12T00:00Z,2026-10-16T04:00Z\n",
    "samples": "device_id,from_utc,to_utc,sm_active_share\n"
    "g0,2026-10-05T00:00Z,2026-10-10T04:00Z,1\ng0,2026-10-12T00:00Z,2026-10-14T02:00Z,0.5\n"
    "g1,2026-10-12T00:00Z,2026-10-12T10:00Z,0\ng2,2026-10-12T00:00Z,2026-10-16T04:00Z,0\n",
}
"""Three GPUs at $2 for two weeks. In the second one ann holds 50 GPU-hours half active and 10 idle, bob 100 idle: 344 are free."""
SECOND = find_period("week", datetime(2026, 10, 12, tzinfo=UTC), UTC)


@pytest.fixture(scope="module")
def weeks(tmp_path_factory: pytest.TempPathFactory) -> Books:
    """The books of those two weeks. Only read them."""
    folder = tmp_path_factory.mktemp("weeks")
    for name, text in WEEKS.items():
        (folder / f"{name}.csv").write_text(text)
    books = Books(folder / "books")
    books.add("tables", [folder / f"{name}.csv" for name in WEEKS])
    return books


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Settings in which bob opted out, with a budget and targets of both teams."""
    monkeypatch.chdir(tmp_path)
    teams = "".join(
        f'[[target]]\nmetric = "utilization"\nteam = "{team}"\nat_least = 0.6\ndue = 2027-06-01\n'
        f'[[budget]]\nteam = "{team}"\namount = 1000\n'
        for team in ("vision", "speech")
    )
    (tmp_path / "loadfactor.toml").write_text(f'[notices]\nopt_out = ["b*"]\n{teams}')
    settings.cache_clear()
    yield
    monkeypatch.undo()
    settings.cache_clear()


def test_wastes_have_holders_amounts_and_actions(weeks: Books) -> None:
    """Largest first: $688 free, $200 idle with bob, $50 underused and $20 idle with ann, each with its job; more, and of whom."""
    with weeks.snapshot() as snapshot:
        found = build_digest(snapshot, SECOND, Audience())
    wastes = [(of.user, of.team, of.job, of.loss, of.gpu_hours, of.cost) for of in found.data.wastes]
    assert wastes == [
        (None, None, None, "unallocated", pytest.approx(344), pytest.approx(688)),
        ("bob", "speech", "4", "idle", pytest.approx(100), pytest.approx(200)),
        ("ann", "vision", "2", "underused", pytest.approx(25), pytest.approx(50)),
        ("ann", "vision", "3", "idle", pytest.approx(10), pytest.approx(20)),
    ]
    assert all(of.action for of in found.data.wastes)
    assert "2026-W42: the fleet was 4.96 % full and cost $1,008, $220.00 of it idle." in found.headline


def test_numbers_stand_beside_the_week_before(weeks: Books) -> None:
    """Utilization fell from 100 % to 25 of 160 observed GPU-hours, and why stands there; the first week has none before it."""
    with weeks.snapshot() as snapshot:
        found = build_digest(snapshot, SECOND, Audience())
        first = build_digest(snapshot, SECOND.before, Audience())
    tiles = {tile.title: tile.text for tile in found.tiles}
    assert tiles["Utilization"].endswith("−84 points against the week before")
    assert tiles["Cost"] == "███████; ±0.0 % against the week before"
    assert [change.metric for change in found.data.changes] == ["cost", "utilization"]
    assert not first.data.changes
    assert not any("before" in tile.note for tile in first.tiles)


def test_a_user_reads_of_their_jobs(weeks: Books) -> None:
    """Ann's two jobs of that week: what they held, used and left idle, and one thing to change; nothing of bob's."""
    with weeks.snapshot() as snapshot:
        found = build_digest(snapshot, SECOND, Audience(user="ann"), "https://gpus.example/")
    jobs = [(of.job, of.gpu_hours, of.utilization, of.idle_cost, of.cost) for of in found.data.jobs]
    assert jobs == [("2", *map(pytest.approx, (50, 0.5, 0, 100))), ("3", *map(pytest.approx, (10, 0, 20, 20)))]
    assert [of.action.partition(":")[0] for of in found.data.jobs] == ["underused", "idle"]
    assert found.data.links["job 2"] == "https://gpus.example/jobs/2?from=2026-10-12&to=2026-10-19"
    assert "bob" not in str(found)


@pytest.mark.long
@pytest.mark.usefixtures("configured")
def test_who_opted_out_is_not_named_and_a_team_reads_its_own(weeks: Books) -> None:
    """Bob is counted among those who opted out; vision sees its own budget, target and wastes alone."""
    with weeks.snapshot() as snapshot:
        fleet = build_digest(snapshot, SECOND, Audience())
        team = build_digest(snapshot, SECOND, Audience(team="vision"))
    assert "bob" not in str(fleet.sections)
    assert fleet.data.opted_out == 1
    assert [status.budget.team for status in team.data.budgets] == ["vision"]
    assert [dict(of.where) for of in team.data.targets] == [{"team": "vision"}]
    assert {of.user for of in team.data.wastes} == {"ann"}


@pytest.mark.long
def test_alerts_of_the_period_are_counted(tmp_path: Path) -> None:
    """What fired in that week, by rule; one that ended before it, or is of another team, is not of it."""
    for name, text in WEEKS.items():
        (tmp_path / f"{name}.csv").write_text(text)
    books = Books(tmp_path / "books")
    books.add("tables", [tmp_path / f"{name}.csv" for name in WEEKS])
    start = milliseconds(SECOND.start)
    alerts = [
        Alert("idle", {"job": job}, "warning", "idle", "firing", start + after, start + after, holder={"team": team})
        for job, team, after in (("2", "vision", MS_PER_HOUR), ("3", "vision", 0), ("4", "speech", -MS_PER_DAY))
    ]
    ended = replace(alerts[2], state="resolved", end_ms=start - MS_PER_HOUR)
    transitions = [Transition(of, of.start_ms) for of in (*alerts, ended)]
    with closing(Outbox(books.store.folder)) as outbox:
        outbox.keep(Judged(start, {}, alerts[:2]), transitions, (), start)
    with books.snapshot() as snapshot:
        fleet, team = (build_digest(snapshot, SECOND, Audience(team=name)) for name in (None, "speech"))
    assert sorted(of.by["job"] for of in fleet.data.alerts) == ["2", "3"]
    assert next(of for of in fleet.sections if of.title == "Alerts").lead == "2 alerts, 2 of them still firing."
    assert team.data.alerts == ()


def test_the_last_whole_period_is_taken() -> None:
    """On a Wednesday the week before; of books at rest the last that they know; the one that goes on where there is no other."""
    start, end = datetime(2026, 10, 5, tzinfo=UTC), datetime(2026, 10, 14, tzinfo=UTC)
    assert find_last("week", (start, end), end, UTC).name == "2026-W41"
    assert find_last("week", (start, end), datetime(2026, 11, 1, tzinfo=UTC), UTC).name == "2026-W42"
    assert find_last("month", (start, end), end, UTC).name == "2026-10"


@pytest.mark.long
def test_the_command_says_what_would_be_sent(october: Path, run: Run) -> None:
    """It prints the page, says that nobody is configured, and takes one period."""
    code, out, _ = run("digest", "--weekly", "--dry-run", "--store", october)
    assert (code, len(out) > 400, "no [[digest]]" in out) == (0, True, True)
    data = json.loads(run("digest", "--user", "anna", "--store", october, "--json")[1])
    assert (data["period"], data["jobs"][0]["job"]) == ("2026-W41", "481776")
    assert loadfactor.digest(user="anna", store=october).data.jobs[0].cost == pytest.approx(data["jobs"][0]["cost"])
    assert run("digest", "--weekly", "--daily", "--store", october)[0] == 2
    assert run("digest", "--team", "visoin", "--store", october)[2].count("vision")


@pytest.mark.long
def test_gpus_that_come_and_go_are_said(tmp_path: Path) -> None:
    """In a week a pool lost a GPU and one has three more; one with as many as before is not named, and of a team none is."""
    rows = [
        ("a", 0, "12", "19"),
        ("a", 1, "12", "15"),
        ("b", 2, "12", "19"),
        *(("c", n, "14", "19") for n in (3, 4, 5)),
    ]
    devices = "".join(f"g{n},n{n},{pool},h100-sxm,2026-10-{a}T00:00Z,2026-10-{b}T00:00Z\n" for pool, n, a, b in rows)
    (tmp_path / "devices.csv").write_text("device_id,node,pool,accelerator,from_utc,to_utc\n" + devices)
    (tmp_path / "allocations.csv").write_text(
        "job_id,device_id,team,from_utc,to_utc\n1,g0,vision,2026-10-12T00:00Z,2026-10-19T00:00Z\n"
    )
    books = Books(tmp_path / "books")
    books.add("tables", [tmp_path / "devices.csv", tmp_path / "allocations.csv"])
    with books.snapshot() as snapshot:
        fleet, team = (build_digest(snapshot, SECOND, of) for of in (Audience(), Audience("vision")))
    found = [(of.pool, of.gpus_first, of.gpus_last) for of in fleet.data.fleet_changes]
    assert found == [("a", pytest.approx(2), pytest.approx(1)), ("c", 0.0, pytest.approx(3))]
    (section,) = [of for of in fleet.sections if of.title == "What changed in the fleet"]
    assert section.lead == "2 GPUs more at the end than when it began."
    assert team.data.fleet_changes == ()
