"""`loadfactor waterfall` at the terminal: steps that add up, groups, JSON, and mistakes."""

import json
from math import fsum
from pathlib import Path
from shutil import copytree

import pytest
from tests.commands import Run

from loadfactor.settings.config import settings

TOML = '[[network]]\nmodel = "llama-3.1-8b"\nsequence_length = 4096\ndatatype = "bf16"\n'


@pytest.fixture
def store(october: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The books of examples/october, asked with a network for all jobs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loadfactor.toml").write_text(TOML)
    settings.cache_clear()
    return october


def test_the_steps_add_up_to_what_was_paid(run: Run, store: Path) -> None:
    """In JSON each group has every level, loss and unknown in the fixed order; they sum to paid in hours and money."""
    code, out, _ = run("waterfall", "--by", "team", "--store", store, "--format", "json")
    said = json.loads(out)
    assert code == 0
    for group in (said["all"], *said["rows"]):
        names = [step["name"] for step in group["steps"] if step["kind"] == "level"]
        assert names == ["paid", "held", "observed", "not_idle", "active", "math", "kept", "useful"]
        for unit in ("gpu_hours", "cost"):
            ends = [step[unit] for step in group["steps"] if step["kind"] != "level" or step["name"] == "useful"]
            assert fsum(ends) == pytest.approx(group[unit]["paid"], rel=1e-9)
    paid, useful = (fsum(g["gpu_hours"][name] for g in said["rows"]) for name in ("paid", "useful"))
    assert (paid, useful) == pytest.approx((576, said["all"]["gpu_hours"]["useful"]), rel=1e-9)
    assert 0 < useful < said["all"]["gpu_hours"]["useful"] + said["all"]["gpu_hours"]["unknown"] < paid


def test_a_person_reads_what_is_known_and_what_is_not(run: Run, store: Path) -> None:
    """The sentence on top gives useful as a range where something is unknown; a split that work cannot be told by is refused."""
    code, out, _ = run("waterfall", "--store", store)
    text = " ".join(out.split())
    assert code == 0
    assert "known to have been useful" in text
    assert "it is between" in text
    assert "held by nobody" in text
    code, _, err = run("waterfall", "--by", "device", "--store", store)
    assert (code, len(err.strip().splitlines())) == (2, 1)
    assert "device" in err


def test_causes_stand_under_what_they_are_parts_of(run: Run, store: Path, tmp_path: Path) -> None:
    """Lost work by its cause under its step, sections in a table of their own, and both with what is unknown in JSON."""
    store = Path(copytree(store, tmp_path / "store"))
    said = json.loads(run("waterfall", "--store", store, "--format", "json")[1])
    assert said["all"]["causes"] == []
    job = "481776"
    more = tmp_path / "more"
    more.mkdir()
    begin, end = "2026-10-05T10:00:00Z", "2026-10-05T10:30:00Z"
    (more / "progress.csv").write_text(
        f"job_id,from_utc,to_utc,unit,amount,kept,cause\n{job},{begin},{end},train_token,1e6,false,restart\n"
    )
    (more / "job_sections.csv").write_text(f"job_id,from_utc,to_utc,kind\n{job},{begin},{end},checkpoint\n")
    assert run("import", "tables", more, "--store", store)[0] == 0
    _, out, _ = run("waterfall", "--store", store)
    lines = [" ".join(line.split()) for line in out.splitlines()]
    lost = next(number for number, line in enumerate(lines) if line.startswith("− work that was lost"))
    assert lines[lost + 1].startswith("restart since the last checkpoint")
    assert any(line.startswith("checkpoint stalls") for line in lines)
    causes = json.loads(run("waterfall", "--store", store, "--format", "json")[1])["all"]["causes"]
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
def test_a_wrong_network_is_said_in_one_line(run: Run, store: Path, tmp_path: Path, toml: str, named: str) -> None:
    """What is wrong in a table [[network]] is named, with what is meant."""
    (tmp_path / "loadfactor.toml").write_text(toml)
    settings.cache_clear()
    code, _, err = run("waterfall", "--store", store)
    assert (code, len(err.strip().splitlines())) == (2, 1)
    assert named in err
