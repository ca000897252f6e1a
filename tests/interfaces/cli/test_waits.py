"""`loadfactor waits` at the terminal: groups, a job in the queue, JSON, and mistakes."""

import json
from pathlib import Path

import pytest
from tests.commands import Run

from loadfactor.books.books import Books

HOUR = "2026-05-01T{:02d}:00:00Z"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Books of twenty jobs of 8 GPUs that waited 1 to 20 hours, one that was cancelled after two, and one that waits since 22."""
    tables = tmp_path_factory.mktemp("tables")
    events = [f"j{n},{HOUR.format(0)},submitted,8,large,Priority" for n in range(1, 21)]
    events += [f"j{n},{HOUR.format(n)},started,8,large," for n in range(1, 21)]
    events += [f"no,{HOUR.format(0)},submitted,1,small,", f"no,{HOUR.format(2)},cancelled,1,small,"]
    events += [f"me,{HOUR.format(13)},submitted,8,large,Resources"]
    (tables / "queue_events.csv").write_text("job_id,at_utc,event,gpus,queue,reason\n" + "\n".join(events) + "\n")
    device = f"g,n1,{HOUR.format(0)},{HOUR.format(23)}"
    (tables / "devices.csv").write_text(f"device_id,node,from_utc,to_utc\n{device}\n")
    books = Books(tmp_path_factory.mktemp("waits") / "store")
    books.add("tables", [tables])
    return books.store.folder


def test_waits_are_shown_by_queue(run: Run, store: Path) -> None:
    """In JSON each group has its counts and quantiles with their ends; what is not reached is null."""
    code, out, _ = run("waits", "--by", "queue", "--store", store, "--json")
    said = json.loads(out)
    assert code == 0
    large, small = said["rows"]
    assert (large["by"], large["waits"], large["started"], large["waiting"]) == ({"queue": "large"}, 21, 20, 1)
    assert (small["cancelled"], small["wait_s_p50"]) == (1, {"value": None, "low": None, "high": None})
    assert large["wait_s_p50"]["low"] < large["wait_s_p50"]["value"] == 11 * 3600 < large["wait_s_p50"]["high"]
    assert said["all"]["waits"] == 22
    assert [r["reason"] for r in said["reasons"]] == ["Priority", "Resources", None]
    assert (said["confidence"], said["window"]["from"]) == (0.95, HOUR.format(0))


def test_a_job_in_the_queue_is_told_what_others_waited(run: Run, store: Path) -> None:
    """It has waited ten hours: of ten that waited longer, half were started within five more; the page says it is an estimate."""
    code, out, _ = run("waits", "--job", "me", "--store", store)
    shown = " ".join(out.split())
    assert code == 0
    assert "Job me has waited 10 h for 8 GPUs (Resources). Of 10 waits like it (size 8, queue large" in shown
    assert "half ended in a start within another 5 h" in shown
    assert "An estimate." in shown
    said = json.loads(run("waits", "--job", "me", "--store", store, "--format", "json")[1])
    assert (said["n"], said["started"], said["waited_s"]) == (10, 10, 36000)
    assert said["rest_s_p50"]["value"] == 5 * 3600


def test_where_nothing_is_known_that_is_said(run: Run, store: Path) -> None:
    """No job had waited as long as this one, and none was queued in a window of an hour."""
    _, out, _ = run("waits", "--job", "me", "--from", "2026-05-01T12:00Z", "--store", store)
    assert "nothing can be estimated" in " ".join(out.split())
    _, out, _ = run("waits", "--from", "2026-05-01T20:00Z", "--store", store)
    assert out.startswith("No job is known to have been queued in that time.")


def test_mistakes_are_one_line(run: Run, store: Path) -> None:
    """Of jobs, dimensions and filters."""
    for words, said in (
        (("--job", "j3"), "job 'j3' does not wait: it started at 2026-05-01T03:00:00Z"),
        (("--job", "me", "--where", "queue=large"), "--job compares with jobs like it and takes no --where"),
        (("--by", "quue"), "did you mean 'queue'?"),
        (("--where", "queue=lage"), "did you mean 'large'?"),
    ):
        code, out, err = run("waits", *words, "--store", store)
        assert (code, out) == (2, "")
        assert err.count("\n") == 1
        assert said in err
