"""Rules where rows enter: imports and live rows, history tagged anew, and what stays of what the source said."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from tests.torture.bench import Answers, ask
from tests.torture.fleet import WORK, at

from loadfactor.base.errors import InputError
from loadfactor.books.books import Books
from loadfactor.store.live import LiveBatch, LiveLog

TAGS = {
    "1": {"account": "nlp", "comment": "exp-1", "job_name": "train"},
    "2": {"account": "nlp", "job_name": "jupyter"},
    "3": {"account": "vision", "job_name": "train"},
}
RULES = """
[[tag]]
match = { comment = "exp-*" }
experiment = "{comment}"
[[tag]]
match = { job_name = "jupyter*" }
purpose = "notebook"
[[tag]]
match = { account = "nlp" }
team = "language"
"""
OTHER_RULES = """
[[tag]]
match = { account = "vision" }
experiment = "{job_name}-{account}"
[tagging]
mapping = "mapping.csv"
"""
MAPPING = "user,from,to,experiment\nann,2026-05-01T02:00:00Z,2026-05-02,notes\nann,2026-05-02,,later\n"


def quote_cell(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def write_jobs(folder: Path) -> Path:
    """Three jobs and a wait, as their scheduler told of them."""
    folder.mkdir()
    jobs = [("1", "g0", "nlp", "bob", 1, 9), ("2", "g1", "nlp", "ann", 3, 20), ("3", "g2", "vision", "eve", 2, 30)]
    lines = [
        f"{job},{gpu},{team},{user},{at(start)},{at(end)},{quote_cell(json.dumps(TAGS[job]))}"
        for job, gpu, team, user, start, end in jobs
    ]
    (folder / "allocations.csv").write_text("\n".join(["job_id,device_id,team,user,from_utc,to_utc,tags", *lines]))
    waits = [f"2,{at(2)},submitted,1,nlp,ann,{quote_cell(json.dumps(TAGS['2']))}"]
    (folder / "queue_events.csv").write_text("\n".join(["job_id,at_utc,event,gpus,team,user,tags", *waits]))
    (folder / "devices.csv").write_text(f"device_id,from_utc,to_utc\ng0,{at(0)},\ng1,{at(0)},\ng2,{at(0)},\n")
    (folder / "samples.csv").write_text("\n".join(WORK["samples"]))
    return folder


def hours(books: Books) -> dict[tuple[str | None, ...], float]:
    readings = books.show("allocated_gpu_hours", by=["team", "experiment", "purpose"])
    values = readings.column("allocated_gpu_hours")
    return {key: value for key, value in zip(readings.keys, values, strict=True) if isinstance(value, float) and value}


def content(books: Books) -> Answers:
    return ask(books.store.folder)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mapping.csv").write_text(MAPPING)
    return tmp_path


def import_jobs(store: Path, jobs: Path, rules: str) -> Books:
    Path("loadfactor.toml").write_text(rules)
    books = Books(store)
    books.add("tables", [jobs])
    return books


TAGGED_HOURS = {("language", "exp-1", None): 8, ("language", None, "notebook"): 17, ("vision", None, None): 28}
OTHER_HOURS = {("nlp", None, None): 8, ("nlp", "notes", None): 17, ("vision", "train-vision", None): 28}


def test_rows_are_tagged_as_they_are_imported(here: Path) -> None:
    """Every allocation and queue event carries what the rules give it, and what its source said is kept."""
    books = import_jobs(here / "store", write_jobs(here / "jobs"), RULES)
    assert hours(books) == TAGGED_HOURS
    (wait,) = books.table("queue_events").to_pyarrow().to_pylist()
    assert (wait["team"], wait["purpose"]) == ("language", "notebook")
    assert json.loads(wait["original_holder"]) == {"team": "nlp", "purpose": ""}


@pytest.mark.long
def test_retagging_is_importing_anew(here: Path) -> None:
    """Under other rules and a mapping, history becomes what importing it under them makes; doing it again changes nothing."""
    jobs = write_jobs(here / "jobs")
    books = import_jobs(here / "store", jobs, RULES)
    anew = import_jobs(here / "anew", jobs, OTHER_RULES)
    assert hours(anew) == OTHER_HOURS
    found = books.retag()
    assert content(books) == content(anew)
    assert found.rows == {"allocations": 3, "queue_events": 1}
    changed = {(c.team, c.experiment): (c.gpu_hours_before, c.gpu_hours) for c in found.hours}
    assert changed[("nlp", "notes")] == (0, 17)
    assert changed[("vision", None)] == (28, 0)
    generation = books.store.manifest.generation
    again = books.retag()
    assert (again.rows, again.hours) == ({}, ())
    assert books.store.manifest.generation == generation
    (line,) = (here / "store" / "audit.log").read_text().splitlines()
    assert json.loads(line)["action"] == "retag"


@pytest.mark.long
def test_a_dry_run_says_the_same_and_changes_nothing(here: Path) -> None:
    """Files, answers and audit log stay."""
    books = import_jobs(here / "store", write_jobs(here / "jobs"), RULES)
    Path("loadfactor.toml").write_text(OTHER_RULES)
    before = sorted((p.name, p.stat().st_mtime_ns) for p in books.store.folder.iterdir() if p.name != "lock")
    tried = books.retag(is_dry_run=True)
    assert sorted((p.name, p.stat().st_mtime_ns) for p in books.store.folder.iterdir() if p.name != "lock") == before
    assert tried.hours == books.retag().hours


@pytest.mark.long
def test_only_changed_hours_are_booked_anew(here: Path) -> None:
    """A mapping that speaks of one job leaves the ledger of other days as it is."""
    books = import_jobs(here / "store", write_jobs(here / "jobs"), "")
    kept = {f.name for f in books.store.manifest.of("ledger") if f.hours is None}
    (here / "one.csv").write_text("job_id,experiment\n1,x\n")
    books.retag(here / "one.csv")
    after = {f.name: f.hours for f in books.store.manifest.of("ledger")}
    assert len(kept & set(after)) == 2
    assert ("nlp", "x", None) in hours(books)


@pytest.mark.long
def test_forgetting_after_retagging(here: Path) -> None:
    """What is left is what would be there had the forgotten import never been."""
    jobs = write_jobs(here / "jobs")
    books = import_jobs(here / "store", jobs, RULES)
    later = here / "later"
    later.mkdir()
    text = json.dumps({"comment": "exp-9", "account": "vision"})
    (later / "allocations.csv").write_text(
        f"job_id,device_id,team,from_utc,to_utc,tags\n3,g2,vision,{at(2)},{at(31)},{quote_cell(text)}\n"
    )
    books.add("tables", [later])
    assert ("vision", "exp-9", None) in hours(books)
    Path("loadfactor.toml").write_text(OTHER_RULES)
    books.retag()
    Path("loadfactor.toml").write_text("")  # whoever forgets may have no rules
    books.forget(2)
    alone = content(import_jobs(here / "alone", jobs, OTHER_RULES))
    left = content(books)
    assert left is not None
    assert alone is not None
    assert {**left, "imports": []} == {**alone, "imports": []}


@pytest.mark.long
def test_live_rows_are_tagged_before_and_after_they_are_files(here: Path) -> None:
    """Readers see the tags at once; a flush keeps them; rules that change meanwhile count from then on."""
    Path("loadfactor.toml").write_text(RULES)
    books = Books(here / "store")
    start = 1_777_600_800_000
    row = {"job_id": "1", "device_id": "g0", "team": "nlp", "from_utc": start, "to_utc": start + 3_600_000}
    with LiveLog.open(here / "store") as log:
        rows = pa.Table.from_pylist([row | {"tags": json.dumps(TAGS["1"])}])
        devices = pa.Table.from_pylist([{"device_id": "g0", "from_utc": start, "to_utc": start + 3_600_000}])
        log.acknowledge([LiveBatch("slurm", "devices", devices, "x"), LiveBatch("slurm", "allocations", rows, "x")])
        seen = hours(books)
        books.flush()
    assert seen == {("language", "exp-1", None): 1}
    assert hours(books) == seen
    Path("loadfactor.toml").write_text('[[tag]]\nteam = "everybody"\n')
    books.retag()
    assert hours(books) == {("everybody", None, None): 1}


def test_rules_half_written_do_not_stop_who_collects(here: Path) -> None:
    """The last good ones count; who starts with wrong ones is told so."""
    books = import_jobs(here / "store", write_jobs(here / "jobs"), RULES)
    Path("loadfactor.toml").write_text('[[tag]]\nmatch = { comment = "exp')
    books.flush()
    with pytest.raises(InputError, match=r"loadfactor\.toml: "):
        Books(here / "other").add("tables", [here / "jobs"])
    Path("loadfactor.toml").write_text('[tagging]\nmapping = "gone.csv"\n')
    with pytest.raises(InputError, match=r"the mapping gone\.csv cannot be read"):
        books.retag()


def test_a_run_of_a_tracker_is_the_experiment_of_a_listed_job(here: Path) -> None:
    """Slurm says who held how many GPUs, the agent's labels which run it was: a rule makes it the experiment of the one job."""
    Path("loadfactor.toml").write_text('[[tag]]\nmatch = { wandb.project = "*" }\nexperiment = "{wandb.project}"\n')
    folder = here / "rows"
    folder.mkdir()
    (folder / "allocations.csv").write_text(
        "job_id,node,device_id,team,known_from,tags,from_utc,to_utc\n"
        f"7,n1,,nlp,,,{at(1)},{at(5)}\n"
        f"7,,g0,,labels,{quote_cell(json.dumps({'wandb.project': 'llm'}))},{at(1)},{at(5)}\n"
    )
    (folder / "devices.csv").write_text(f"device_id,node,from_utc\ng0,n1,{at(0)}\ng1,n1,{at(0)}\n")
    books = Books(here / "store")
    books.add("tables", [folder])
    held = {
        (r.by["job"], r.by["experiment"], r.by["team"]): r.value
        for r in books.show("allocated_gpu_hours", by=["job", "experiment", "team"])
    }
    assert {key: hours for key, hours in held.items() if hours} == {("7", "llm", "nlp"): 4.0}
