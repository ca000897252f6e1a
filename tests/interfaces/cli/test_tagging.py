"""`untagged` and `retag` at the terminal: who lacks an experiment, what would help, and rules applied to history."""

import json
from pathlib import Path

import pytest
from tests.books.test_tagging import MAPPING, write_jobs
from tests.commands import Run

from loadfactor.store.disk import take_lock


@pytest.fixture
def store(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Books of three jobs at $2 a GPU-hour: 8 GPU-hours of bob's, 17 of ann's, 28 of eve's; 35 more with an unknown holder."""
    monkeypatch.chdir(tmp_path)
    jobs = write_jobs(tmp_path / "jobs")
    (jobs / "prices.csv").write_text("basis,price_per_gpu_hour\ncontracted,2\n")
    (tmp_path / "mapping.csv").write_text(MAPPING)
    assert run("import", "tables", jobs, "--store", tmp_path / "store")[0] == 0
    return tmp_path / "store"


def test_what_is_untagged_stands_in_order_of_its_cost(run: Run, store: Path) -> None:
    """By user and team, each with what is missing and the rule that would tag it; shares are of hours and of cost."""
    Path("loadfactor.toml").write_text('[[tag]]\nexperiment = "{comment}"\nproject = "p"\n')
    assert run("retag", "--store", store)[0] == 0
    code, out, _ = run("untagged", "--store", store, "--format", "json")
    said = json.loads(out)
    assert code == 0
    assert [(r["by"], r["gpu_hours"], r["cost"], r["jobs"]) for r in said["rows"]] == [
        ({"user": "eve", "team": "vision"}, 28, 56, 1),
        ({"user": "ann", "team": "nlp"}, 17, 34, 1),
    ]
    assert said["rows"][0]["missing"] == ["experiment", "purpose"]
    assert said["rows"][0]["rule"] == ('[[tag]]\nmatch = { user = "eve", team = "vision" }\nexperiment = "NAME"\n')
    assert said["tagged_share"] == pytest.approx(8 / 53)
    assert said["tagged_cost_share"] == pytest.approx(8 / 53)
    assert said["without"]["purpose"] == {"gpu_hours": 53, "cost": 106}
    assert said["unattributed"] == {"gpu_hours": pytest.approx(35), "cost": pytest.approx(70)}
    assert (said["currency"], said["window"]["from"]) == ("USD", "2026-05-01T00:00:00Z")


def test_a_rule_that_is_suggested_tags_what_it_is_for(run: Run, store: Path) -> None:
    """Written into loadfactor.toml and applied, nothing of its group is left."""
    for by in ("user,team", "job_name", "job"):
        Path("loadfactor.toml").write_text("")
        run("retag", "--store", store)
        first = json.loads(run("untagged", "--by", by, "--store", store, "--json")[1])["rows"][0]
        Path("loadfactor.toml").write_text(first["rule"])
        assert run("retag", "--store", store)[0] == 0
        left = json.loads(run("untagged", "--by", by, "--store", store, "--json")[1])["rows"]
        assert first["by"] not in [row["by"] for row in left]


def test_tags_that_untagged_jobs_have_are_pointed_at(run: Run, store: Path) -> None:
    """The page says which tag could be the experiment, and lists unknown holders apart."""
    _, out, _ = run("untagged", "--store", store)
    shown = " ".join(out.split())
    assert "53 of 53 held GPU-hours, $106.00, have no experiment" in shown
    assert "{comment}" in shown
    assert "35 GPU-hours ($70.00) were held by nobody knows whom" in shown


def test_a_mapping_is_tried_and_then_applied(run: Run, store: Path) -> None:
    """A dry run says the same as the real one; the second real one has nothing to do."""
    words = ("retag", "--mapping", "mapping.csv", "--store", store)
    _, tried, _ = run(*words, "--dry-run")
    _, done, _ = run(*words)
    assert " ".join(tried.split()).startswith("Would tag 1 allocation, 1 queue event anew; 17 GPU-hours would have")
    assert "Tagged 1 allocation, 1 queue event anew; 17 GPU-hours have another team or experiment." in " ".join(
        done.split()
    )
    assert run(*words)[1].startswith("Nothing to tag anew")


def test_mistakes_are_one_line(run: Run, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rules, mappings and dimensions; and who else writes is named."""
    (Path("bad.csv")).write_text("user,experiment\n,x\n")
    assert run("retag", "--mapping", "bad.csv", "--store", store)[0] == 2
    code, _, err = run("untagged", "--by", "usr", "--store", store)
    assert (code, err) == (2, "loadfactor: no dimension called 'usr'; did you mean 'user'?\n")
    monkeypatch.setattr("loadfactor.store.store.LONGEST_WAIT_S", 0.1)
    with take_lock(store / "lock", "{holder}"):
        code, _, err = run("retag", "--store", store)
    assert code == 1
    assert "another import is writing to" in err
