"""Forecasts of weeks: ranges that hold as often as they say on histories of others, pools that run out, and a team that comes."""

import itertools
import json
from datetime import datetime
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.commands import Run
from tests.real_data import find_shared

import loadfactor
from loadfactor.base.errors import InputError
from loadfactor.books.books import Books
from loadfactor.interfaces.formats import number
from loadfactor.planner.sizing.weekly_forecast import HeldBack, find_weeks_left, forecast_weeks, hold_back
from loadfactor.sources.demand import JobTrace, StateTrace
from loadfactor.sources.demand_files import read_demand

TRACES = (
    "alibaba_v2023_openb_pod_list_default", "muri_sim_trace1", "muri_sim_trace2", "muri_testbed_64xV100_submitted_trace",
    *(f"helios_earth_{name}_cluster_sequence_vc" for name in ("vc3sl", "vc6YE", "vcJLV", "vcgkz", "vchbv", "vcpDC")),
)  # fmt: skip
"""Public traces of clusters, each submission once."""
MANY = 50
"""Of so many weeks held back, the share of a single trace says something."""
WEEKS, GPUS = 6, 12
DAY_S = 86_400


def list_days(path: Path) -> list[float]:
    """GPU-hours held in each day of a trace."""
    trace = read_demand(path)
    if isinstance(trace, StateTrace):
        held = trace.running_large_gpus + trace.running_small_gpus
        of_day = round(DAY_S / trace.step_s)
        days = len(held) // of_day
        return [float(x) for x in held[: days * of_day].reshape(days, of_day).mean(axis=1) * 24]
    assert isinstance(trace, JobTrace)
    begin, end = trace.submit_s, trace.submit_s + trace.duration_s
    first = begin.min()
    edges = first + DAY_S * np.arange(int((begin.max() - first) // DAY_S) + 2)
    inside = [np.clip(np.minimum(end, b) - np.maximum(begin, a), 0, None) for a, b in itertools.pairwise(edges)]
    return [float((of * trace.gpus).sum()) / 3600 for of in inside]


def test_ranges_hold_four_weeks_of_five_on_public_traces() -> None:
    """Of all weeks held back on the public traces, next ones and those after, 75 to 85 % lie in the range made before them."""
    folder = find_shared("data/jobs")
    days = {name: list_days(folder / f"{name}.csv.gz") for name in TRACES}
    for ahead in (1, 2, 3):
        tried = {name: hold_back(of, ahead) for name, of in days.items()}
        whole = HeldBack(sum(of.weeks for of in tried.values()), sum(of.held for of in tried.values()))
        print(f"{ahead} weeks ahead: {whole.held} of {whole.weeks} weeks held, {whole.held_share:.3f}")
        for name, of in tried.items():
            print(f"  {name}: {of.held} of {of.weeks}")
            assert of.weeks < MANY or 0.75 <= (of.held_share or 0) <= 0.87, (ahead, name, of)
        assert whole.weeks > 100
        assert 0.75 <= (whole.held_share or 0) <= 0.85, (ahead, tried)


def test_a_forecast_sees_nothing_of_the_week_it_is_held_to() -> None:
    """A week that jumps lies outside its range, whatever comes after it; the next range is wider for it."""
    calm = [10.0, 11.0, 10.0, 9.0, 10.0, 2.0, 3.0] * 5
    (before,), (after,) = (forecast_weeks(of, 1) for of in (calm, [*calm, *(30.0 for _ in range(7))]))
    assert not before.low <= 210 <= before.high
    assert after.high / after.value > before.high / before.value
    assert before.value == pytest.approx(55)
    assert find_weeks_left(80, 0.02, 100) == pytest.approx(11.268, abs=1e-3)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The books of six weeks of twelve GPUs at $2, of which two teams hold one more each week; a day of them is a job a GPU."""
    folder = tmp_path_factory.mktemp("history")
    (folder / "tables").mkdir()
    days = [np.datetime64("2026-09-28") + day for day in range(7 * WEEKS)]
    devices = "".join(f"g{gpu},n{gpu // 8},main,{days[0]}T00:00Z,{days[-1] + 1}T00:00Z\n" for gpu in range(GPUS))
    jobs = [
        f"{day}-{gpu},{'a' if gpu % 3 else 'b'},g{gpu},{day}T00:00Z,{day}T{20 + (at * 7 + gpu) % 3}:00Z,{day - 1}T23:00Z\n"
        for at, day in enumerate(days)
        for gpu in range(5 + at // 7)
    ]
    (folder / "tables" / "devices.csv").write_text("device_id,node,pool,from_utc,to_utc\n" + devices)
    (folder / "tables" / "allocations.csv").write_text(
        "job_id,team,device_id,from_utc,to_utc,submitted_utc\n" + "".join(jobs)
    )
    (folder / "tables" / "prices.csv").write_text("basis,price_per_gpu_hour\ncontracted,2\n")
    Books(folder / "books").add("tables", [folder / "tables"])
    return folder / "books"


def ask(run: Run, store: Path, *words: object) -> Any:
    """What `forecast --json` says."""
    code, out, err = run("forecast", *words, "--store", store, "--json")
    assert code == 0, err
    return json.loads(out)


@pytest.mark.long
def test_weeks_stand_with_their_ranges_by_team_and_pool(run: Run, history: Path) -> None:
    """Weeks follow the history one after another; the last week and the cost are those of `show`; groups add up to the fleet."""
    found = ask(run, history, "--by", "team,pool", "--weeks", 3)
    assert [set(week) for week in found["weeks"]] == [{"from", "to", "low", "value", "high"}] * 3
    assert found["weeks"][0]["from"] == "2026-11-09T00:00:00Z"
    assert [week["from"] for week in found["weeks"][1:]] == [week["to"] for week in found["weeks"][:-1]]
    for week in found["weeks"]:
        assert week["low"] <= week["value"] <= week["high"]
    books = loadfactor.open(history)
    last = datetime.fromisoformat("2026-11-02T00:00+00:00")
    fleet = {of["metric"]: of for of in found["series"] if not of["by"]}
    for name in ("allocated_gpu_hours", "cost"):
        assert fleet[name]["weeks"][0]["value"] == pytest.approx(books.show(name, start=last)[0].value, rel=1e-9)
    hours = [of for of in found["series"] if of["metric"] == "allocated_gpu_hours"]
    for name in ("team", "pool"):
        values = [of["weeks"][0]["value"] for of in hours if name in of["by"] and of["by"][name] != "unknown holder"]
        assert sum(values) == pytest.approx(found["weeks"][0]["value"], rel=1e-9)
    assert fleet["queue_wait_s_mean"]["weeks"][0]["value"] == pytest.approx(3600)
    # 10 of 12 GPUs for 21 hours of 24, a tenth more each week: three to four weeks
    page = loadfactor.forecast(store=history, by=("team", "pool"), weeks=3)
    first = found["weeks"][0]
    written = [number(first[name]) for name in ("low", "value", "high")]
    assert page.headline.startswith(f"{written[1]} GPU-hours next week, {written[0]} to {written[2]} in")
    row = next(row for section in page.document.sections for table in section.tables for row in table.rows)
    assert list(row[2:]) == written
    (pool,) = found["pools"]
    assert (pool["pool"], pool["gpus"]) == ("main", pytest.approx(12))
    assert "2026-11-20" < pool["runs_out"] < "2026-12-15"


@pytest.mark.long
def test_more_gpus_are_full_later(run: Run, history: Path) -> None:
    """Eight more than 12 last ln(20 ÷ 12) ÷ ln(1 + growth) weeks longer, at 8 × 730 h × $2 a month; 10,000 pay for 6."""
    found = ask(run, history, "--marginal")
    (pool,) = found["pools"]
    gpus, paid = found["marginal"]
    assert gpus["gained"] == pytest.approx(log(20 / 12) / log(1 + pool["growth_share"]), rel=1e-6)
    assert gpus["cost"] == pytest.approx(8 * 730 * 2)
    assert paid["added_gpus"] == 6
    assert paid["gained"] < gpus["gained"]
    assert "weeks until full" in repr(loadfactor.forecast(store=history, marginal=True))
    assert ask(run, history)["marginal"] == []


def test_a_new_team_waits_and_makes_others_wait(run: Run, history: Path) -> None:
    """A team that fills what is free makes waits longer and the cluster fuller; one that nobody's job fits is refused."""
    team = ask(run, history, "--new-team", 8)["new_team"]
    assert team["mean_wait_s_with"] > team["mean_wait_s"] >= 0
    assert team["utilization_share_with"] > team["utilization_share"]
    page = loadfactor.forecast(store=history, new_team=8)
    assert "A new team" in repr(page)
    assert page.headline.startswith("1,")


def test_too_little_history_is_one_line(run: Run, october: Path) -> None:
    """Three days are no history: the line says how much is needed."""
    code, _, err = run("forecast", "--store", october)
    assert (code, len(err.strip().splitlines())) == (2, 1)
    assert "history: a forecast needs 21" in err
    with pytest.raises(InputError, match="by team or pool"):
        loadfactor.forecast(store=october, by=("node",))
