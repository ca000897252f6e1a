"""The rule that calls users wasteful: what it counts, whom it leaves out, and what it says."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.commands import Run

from loadfactor.books.books import Books
from loadfactor.settings.config import settings

USERS = {"ann": (0, 1.0), "bob": (1, 0.1), "cyd": (2, 0.0), "dan": (3, None), "eve": (4, 0.0)}
"""GPUs of users, and their activity; nobody sampled dan's."""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Path]]:
    """Books of a day in which each of five users holds a GPU at $2, with settings."""
    monkeypatch.chdir(tmp_path)
    hours = range(1, 25)
    tables = {
        "devices": "device_id,from_utc,to_utc\n"
        + "".join(f"g{n},2026-10-05T00:00Z,2026-10-06T00:00Z\n" for n in range(5)),
        "prices": "basis,price_per_gpu_hour\ncontracted,2\n",
        "allocations": "job_id,device_id,user,team,from_utc,to_utc\n"
        + "".join(f"j{n},g{n},{user},t,2026-10-05T00:00Z,2026-10-06T00:00Z\n" for user, (n, _) in USERS.items()),
        "samples": "device_id,from_utc,to_utc,sm_active_share\n"
        + "".join(
            f"g{n},2026-10-05T{at - 1:02}:00Z,2026-10-0{5 + at // 24}T{at % 24:02}:00Z,{active}\n"
            for n, active in USERS.values()
            if active is not None
            for at in hours
        ),
    }
    for name, text in tables.items():
        (tmp_path / f"{name}.csv").write_text(text)
    Books(tmp_path / "books").add("tables", [tmp_path / f"{name}.csv" for name in tables])

    def make(text: str) -> Path:
        (tmp_path / "loadfactor.toml").write_text(text)
        settings.cache_clear()
        return tmp_path / "books"

    yield make
    monkeypatch.undo()
    settings.cache_clear()


def test_users_are_named_by_low_utilization_or_idle_hours(store: Callable[[str], Path], run: Run) -> None:
    """Bob's utilization of 10 % over 24 GPU-hours and cyd's 24 idle ones; nobody is judged unseen, and eve opted out."""
    folder = store('[notices]\nopt_out = ["eve"]\n')
    code, out, _ = run("users", "--wasteful", "--store", folder, "--json")
    found = json.loads(out)
    named = [
        (of["user"], of["jobs"], of["gpu_hours"], of["idle_gpu_hours"], of["idle_cost"], of["because"])
        for of in found["users"]
    ]
    low, idle = "utilization {} is below 15 % over 24 GPU-hours", "24 idle GPU-hours are at least 24"
    assert named == [
        ("cyd", 1, 24, 24, 48, [low.format("0 %"), idle]),
        ("bob", 1, 24, 0, 0, [low.format("10 %")]),
    ]
    assert (code, found["opted_out"]) == (0, 1)
    everybody = json.loads(run("users", "--store", folder, "--json")[1])
    assert {of["user"]: of["because"] != [] for of in everybody["users"]} == {
        "ann": False, "bob": True, "cyd": True, "dan": False, "eve": True
    }  # fmt: skip
    page = run("users", "--wasteful", "--store", folder)[1]
    assert "1 user opted out and not named" in page
    assert "2 users are named by the rule: 24 idle GPU-hours, $48.00." in page


def test_thresholds_are_those_of_the_settings(store: Callable[[str], Path], run: Run) -> None:
    """With 5 % and 25 idle GPU-hours nobody but who used nothing is named; from 25 held GPU-hours on, nobody."""
    folder = store("[wasteful]\nutilization_below = 0.05\nidle_gpu_hours = 25\n")
    found = json.loads(run("users", "--wasteful", "--store", folder, "--json")[1])
    assert [of["user"] for of in found["users"]] == ["cyd", "eve"]
    store("[wasteful]\nleast_gpu_hours = 25\nidle_gpu_hours = 25\n")
    assert "The rule names no user." in run("users", "--wasteful", "--store", folder)[1]
    assert json.loads(run("users", "--store", folder, "--where", "user=bob", "--json")[1])["users"][0]["user"] == "bob"
