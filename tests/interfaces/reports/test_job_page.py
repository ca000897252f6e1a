"""`report --job`: cost, work, leaks and jobs like it, worked out by hand; and why a job or a fleet was not fuller."""

import json
from math import fsum
from pathlib import Path
from typing import Any

import pytest
from tests.books.test_waterfall import START, Row, configured, lost, made, make_books, section, tokens_at
from tests.commands import FROM, TO, Run, measure_width, worked_example
from tests.ledger.fleets import HOUR, add, batch

from loadfactor.base.errors import InputError
from loadfactor.books.books import Books
from loadfactor.books.job_account import AlikeValue
from loadfactor.books.snapshot import Snapshot
from loadfactor.interfaces.document import Document
from loadfactor.interfaces.formats import money
from loadfactor.interfaces.render.json import render_json
from loadfactor.interfaces.render.terminal import render_text
from loadfactor.interfaces.reports.facts import ComparisonFacts, LeaksFacts, TraceFacts, WhyFacts
from loadfactor.interfaces.reports.inquiry import Inquiry, WhyQuestion
from loadfactor.interfaces.reports.page import build_document
from loadfactor.metrics.query.calendar import instant

__all__ = ["configured"]


def build(books: Books, job: str, **window: Any) -> Document:
    with books.snapshot() as snapshot:
        return build_document(Inquiry(snapshot, job=job, **window))


def cells(page: Document, title: str) -> dict[str, list[Any]]:
    """The first table of a section: its rows by what stands first."""
    found = next(part for part in page.sections if part.title == title)
    return {str(row[0]): list(row[1:]) for row in found.tables[0].rows}


@pytest.fixture
def page(tmp_path: Path) -> Document:
    """A GPU for ten hours at $2: one idle, nine at 80 %; of five hours at the peak one was lost to a restart."""
    progress = [made("train", tokens_at(0.4)), lost(0.1, "restart", 0)]
    return build(make_books(tmp_path, progress, [section("checkpoint", 120, 150)]), "train")


def test_the_invoice_adds_up(page: Document) -> None:
    """$14.40 effective, $3.60 underused, $2.00 idle and nothing unobserved are the $20.00 that it cost."""
    rows = cells(page, "What it cost")
    costs = {name: row[1] for name, row in rows.items()}
    wanted = {"Effective": 14.4, "Underused": 3.6, "Idle": 2.0, "Unobserved": 0.0, "Total": 20.0}
    assert costs == pytest.approx(wanted, rel=1e-9)
    assert [row[0] for row in rows.values()] == pytest.approx([7.2, 1.8, 1.0, 0.0, 10.0], rel=1e-9)
    assert page.headline.startswith("Job train cost $20.00 for 10 GPU-hours.")


@pytest.mark.long
@pytest.mark.parametrize("counted", [True, False])
def test_the_cost_of_what_is_shared_is_divided_by_who_used_it(tmp_path: Path, counted: bool) -> None:
    """Of $20, $2 are idle; of 2,080 tokens by weight that engines counted gateways logged 1,040 and 520; where none did, 1,560."""
    engines = {"prompt_token": 2000.0, "cached_prompt_token": 800.0, "output_token": 200.0}
    books = make_books(tmp_path, [made("serve", amount, unit) for unit, amount in engines.items() if counted])
    at = {"job_id": "serve", "from_utc": START, "to_utc": START, "model": "m"}
    logged = [
        {
            "request_id": "1",
            "team": "a",
            "api_key": "k",
            "prompt_tokens": 1000,
            "cached_prompt_tokens": 400,
            "output_tokens": 100,
        },
        {"request_id": "2", "team": "b", "feature": "f", "prompt_tokens": 120, "output_tokens": 100},
        {"request_id": "3", "team": "b", "feature": "f", "from_utc": START - 1, "to_utc": START, "output_tokens": 9},
        {"request_id": "4", "team": "c", "job_id": "train", "output_tokens": 9},
    ]
    add(books, [batch("served_requests", [at | row for row in logged])], "gateways", tmp_path)
    rows = cells(build(books, "serve"), "Who used it")
    unlogged = {"in no log of a gateway": 4.5} if counted else {}
    assert {name: row[-1] for name, row in rows.items()} == pytest.approx(
        {"a": 9 if counted else 12, "b": 4.5 if counted else 6, **unlogged, "idle": 2}
    )
    assert rows["a"][:6] == ["k", None, "m", 1, 1000, 100]
    assert "Who used it" not in [part.title for part in build(books, "broken").sections]


@pytest.mark.long
def test_uses_bear_idle_time_that_nobody_knows(tmp_path: Path) -> None:
    """Without samples all $20 are theirs, and the page says so."""
    books = make_books(tmp_path, [], samples=False)
    use = {"request_id": "1", "job_id": "serve", "from_utc": START, "to_utc": START, "team": "a", "prompt_tokens": 9}
    add(books, [batch("served_requests", [use])], "gateways", tmp_path)
    page = build(books, "serve")
    assert {name: row[-1] for name, row in cells(page, "Who used it").items()} == {"a": 20, "idle": None}
    assert "When it was idle is not known" in next(part.lead for part in page.sections if part.title == "Who used it")


def test_what_it_made_and_what_a_unit_cost(page: Document) -> None:
    """Tokens of five hours at the peak, those of one of them lost: MFU is 50 %, and each kept one bears the whole cost."""
    (tokens,) = cells(page, "What it made").values()
    assert tokens[:3] == pytest.approx([tokens_at(0.5), tokens_at(0.4), tokens_at(0.1)], rel=1e-9)
    assert tokens[3] == f"${20 / tokens_at(0.4) * 1e6:.3g} per million"
    assert next(tile.value for tile in page.tiles if tile.title == "MFU") == "50.0 %"


def test_the_leaks_and_what_was_useful_are_what_it_cost(page: Document) -> None:
    """Of $20 $4.40 were active without the network's FLOPs, $3.60 not active, $2 idle and $2 lost to a restart: $8 were useful."""
    facts = next(fact for fact in page.data.sections if isinstance(fact, LeaksFacts))
    found = {(leak.name, leak.cause): leak.cost for leak in facts.leaks}
    wanted = {("not_math", None): 4.4, ("underused", None): 3.6, ("idle", None): 2.0, ("lost_work", "restart"): 2.0}
    assert found == pytest.approx(wanted, rel=1e-9)
    assert next(iter(found)) == ("not_math", None)
    assert fsum(leak.share_of_cost or 0 for leak in facts.leaks) == pytest.approx(0.6, rel=1e-9)
    stalls = next(part for part in page.sections if part.title == "From paid to useful").tables[1]
    first = next(iter(stalls.rows))
    assert (first[0], first[1], first[3]) == ("checkpoint stalls", pytest.approx(0.5), pytest.approx(1.0))


def test_the_page_fits_and_programs_read_it(page: Document) -> None:
    """No line is wider than the terminal; the JSON has the keys of the report, and what the job used of its GPUs."""
    assert measure_width(render_text(page, 80)) <= 80
    body = json.loads(render_json(page))
    assert {"headline", "from", "to", "readings", "sections"} == set(body)
    assert [part["name"] for part in body["sections"]] == ["invoice", "made", "leaks", "alike", "useful", "job", "next"]
    assert body["sections"][5]["job"] == "train"
    assert {reading["by"]["job"] for reading in body["readings"]} == {"train"}


@pytest.mark.long
def test_a_job_of_which_little_is_known(tmp_path: Path) -> None:
    """It serves, and says nothing of its work: its MFU is unknown, and its active time is no loss."""
    page = build(make_books(tmp_path, [made("train", 1e9)]), "serve")
    facts = next(fact for fact in page.data.sections if isinstance(fact, LeaksFacts))
    assert {leak.name: leak.is_unknown for leak in facts.leaks} == {
        "underused": False,
        "idle": False,
        "uncounted": True,
    }
    assert next(tile.value for tile in page.tiles if tile.title == "MFU") == "–"
    assert "Its work is not known" in render_text(page, 200)


def make_fleet(folder: Path) -> Books:
    """Jobs of four hours at $2 with their GPUs, activity, team, experiment and purpose, and the steps that they made."""
    jobs = {
        "one": (1, 0.5, "a", "ft-1", "training", 100),
        "p1": (1, 0.6, "a", None, "training", 50),
        "p2": (2, 0.7, "a", None, "training", 100),
        "p3": (1, 0.8, "b", "ft-1", None, 200),
        "large": (4, 0.9, "a", None, "training", 1),
        "notebook": (1, 0.9, "a", None, "notebook", 1),
        "stranger": (1, 0.9, "b", "ft-2", "training", 1),
    }
    end = START + 4 * HOUR
    tables: dict[str, list[Row]] = {"devices": [], "allocations": [], "samples": [], "progress": []}
    for job, (gpus, active, team, experiment, purpose, steps) in jobs.items():
        for k in range(gpus):
            device = {"device_id": f"{job}-{k}", "from_utc": START, "to_utc": end}
            tables["devices"].append(device | {"accelerator": "H100"})
            who = {"job_id": job, "team": team, "experiment_id": experiment, "purpose": purpose}
            tables["allocations"].append(device | who)
            tables["samples"] += [
                {"device_id": f"{job}-{k}", "from_utc": START + h * HOUR, "to_utc": START + (h + 1) * HOUR}
                | {"sm_active_share": active}
                for h in range(4)
            ]
        tables["progress"].append(made(job, steps, "step") | {"to_utc": end})
    late = {"device_id": "late-0", "from_utc": START + 3 * HOUR, "to_utc": end}
    tables["devices"].append(late)
    tables["allocations"].append(late | {"job_id": "late"})
    tables["prices"] = [{"basis": "contracted", "price_per_gpu_hour": 2.0}]
    books = Books(folder / "store")
    add(books, [batch(name, rows) for name, rows in tables.items()], "fleet", folder)
    return books


def test_beside_jobs_like_it(tmp_path: Path) -> None:
    """Three are like it: 60, 70 and 80 % utilized, a step for 16, 16 and 4 cents. MFU is known of none of them."""
    page = build(make_fleet(tmp_path), "one")
    facts = next(fact for fact in page.data.sections if isinstance(fact, ComparisonFacts))
    assert facts.alike == 3
    compared = {of.metric: of for of in facts.compared}
    assert set(compared) == {"utilization", "mfu", "cost_per_step"}
    assert compared["mfu"] == AlikeValue("mfu", "share", None, None, 0)
    used, step = compared["utilization"], compared["cost_per_step"]
    assert (used.value, used.median, used.jobs) == (pytest.approx(0.5), pytest.approx(0.7), 3)
    assert (step.value, step.median, step.jobs) == (pytest.approx(0.08), pytest.approx(0.16), 3)


def test_two_jobs_like_it_are_too_few(tmp_path: Path) -> None:
    """The one with two GPUs has p1, the one and the large one beside it; the one of another team has p3 alone, and no median."""
    books = make_fleet(tmp_path)
    (few,) = (fact for fact in build(books, "stranger").data.sections if isinstance(fact, ComparisonFacts))
    assert (few.alike, few.compared[0].median, few.compared[0].jobs) == (1, None, 1)
    (more,) = (fact for fact in build(books, "p2").data.sections if isinstance(fact, ComparisonFacts))
    assert (more.alike, more.compared[0].median) == (3, pytest.approx(0.6))


def test_the_page_asks_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two questions of the ledger, however many jobs there are: on a large store each takes long."""
    books, asked = make_fleet(tmp_path), []
    show = Snapshot.show

    def count(self: Snapshot, *given: Any, **options: Any) -> Any:
        asked.append(given)
        return show(self, *given, **options)

    monkeypatch.setattr(Snapshot, "show", count)
    build(books, "one")
    assert len(asked) == 2


def test_a_job_that_held_nothing_then(tmp_path: Path) -> None:
    """It says so in one line; so does one that nobody knows."""
    books = make_fleet(tmp_path)
    with pytest.raises(InputError, match="held no GPUs from"):
        build(books, "late", end=instant(START + 2 * HOUR))
    with pytest.raises(InputError, match="nobody-knows"):
        build(books, "nobody-knows")


def test_an_unknown_holder_is_no_job(tmp_path: Path) -> None:
    """The name that `show --by job` gives to time with an unknown holder has no page; it was a traceback."""
    listed = f"job_id,team,device_id,from_utc,to_utc\nrun-1,vision,gpu0,{FROM},{TO}\n"
    folder = worked_example(tmp_path / "tables", allocations=listed)
    books = Books(tmp_path / "books")
    books.add("tables", [folder])
    with pytest.raises(InputError, match="'unknown holder' held no GPUs"):
        build(books, "unknown holder")


ROOT = Path(__file__).resolve().parents[3]
TRACE = ROOT / "examples" / "trace.json"
JOB = "481811"
"""A notebook of examples/october that does nothing for most of its time."""


def ask(run: Run, *command: object) -> dict[str, object]:
    """What a command says to programs."""
    code, out, err = run(*command, "--format", "json")
    assert code == 0, err
    found: dict[str, object] = json.loads(out)
    return found


@pytest.mark.long
def test_the_report_says_on_request_what_diagnose_and_savings_say(run: Run, october: Path) -> None:
    """`--why` holds both answers whole, and its first sentences are their headlines."""
    report = ask(run, "report", "--why", "--store", october)
    (why,) = [section for section in report["sections"] if section["name"] == "why"]  # type: ignore[attr-defined, union-attr]
    assert why["diagnosis"] == ask(run, "diagnose", "--jobs", "3", "--store", october)
    assert why["savings"] == ask(run, "savings", "--store", october)
    headlines = [
        run(*command, "--store", october, "--brief")[1].partition("\n\n")[0].replace("\n", " ")
        for command in (("diagnose", "--jobs", "3"), ("savings",))
    ]
    assert why["says"] == " ".join(headlines)


@pytest.mark.long
def test_an_ordinary_report_says_who_answers(run: Run, october: Path) -> None:
    """Without `--why` nothing is diagnosed, and the commands that do are among what to try next, in the same window."""
    report = ask(run, "report", "--from", "2026-10-06", "--store", october)
    sections = {section["name"]: section for section in report["sections"]}  # type: ignore[attr-defined, union-attr]
    assert "why" not in sections
    commands = [each["command"] for each in sections["next"]["commands"]]
    for name in ("diagnose", "savings"):
        (command,) = [each for each in commands if each.startswith(f"loadfactor {name} ")]
        assert command.endswith("--from 2026-10-06T00:00:00+00:00")


@pytest.mark.long
def test_a_team_has_its_own_causes_and_its_row_of_the_savings(run: Run, october: Path) -> None:
    """With `--where team=…` the jobs of that team are diagnosed, and of savings its row is told."""
    report = ask(run, "report", "--why", "--where", "team=research", "--store", october)
    (why,) = [section for section in report["sections"] if section["name"] == "why"]  # type: ignore[attr-defined, union-attr]
    assert why["diagnosis"] == ask(run, "diagnose", "--team", "research", "--jobs", "3", "--store", october)
    (row,) = [row for row in why["savings"]["rows"] if row["by"]["team"] == "research"]
    amounts = [money(row[name], "USD") for name in ("lost", "saved")]
    said = "Of {} of team research that brought nothing, {} could have been saved.".format(*amounts)
    assert why["says"].endswith(f"{said} Most by one change: end notebooks that nobody uses.")


def test_the_page_of_a_job_has_its_diagnosis_and_its_traces(october: Path) -> None:
    """Its causes stand on its page; a trace of it is priced at the job's own price of a GPU-hour."""
    books = Books(october)
    with books.snapshot() as snapshot:
        document = build_document(Inquiry(snapshot, job=JOB, why=WhyQuestion(books, (TRACE,))))
    (why,) = [facts for facts in document.data.sections if isinstance(facts, WhyFacts)]
    (job,) = why.diagnosis.jobs
    assert (job.job, job.findings[0].cause, job.findings[0].class_) == (JOB, "idle_notebook", "scheduling")
    assert why.says.startswith("Idle notebook: it took $")
    assert f"of job {JOB}, which lost 24.2 of 26 GPU-hours. How sure: high." in why.says
    (traces,) = [facts for facts in document.data.sections if isinstance(facts, TraceFacts)]
    assert traces.traced.in_books is not None
    (cost,) = traces.traced.in_books.costs
    assert cost.gpu_s == pytest.approx(0.09, rel=1e-3)  # 90 ms of the example wait for data
    assert cost.cost == pytest.approx(0.09 / 3600 * 2.35, rel=1e-3)  # at $2.35 per GPU-hour


@pytest.mark.long
def test_a_trace_with_its_job_is_told_beside_the_books(run: Run, october: Path) -> None:
    """`diagnose TRACE --job J` says what the books say of the job, and whether both name a class in common."""
    found = ask(run, "diagnose", TRACE, "--job", JOB, "--store", october)
    (job,) = ask(run, "diagnose", "--job", JOB, "--store", october)["jobs"]  # type: ignore[misc]
    assert found["in_books"]["diagnosis"] == job  # type: ignore[index]
    code, out, _ = run("diagnose", TRACE, "--job", JOB, "--store", october)
    assert code == 0
    assert "name no cause of the same class" in out.replace("\n", " ")
    assert "idle notebook: $39.61 – $49.51" in out


@pytest.mark.parametrize(
    ("given", "said"), [(("--why", "--where", "pool=main"), "--where team=NAME"), (("--trace", TRACE), "say --job")]
)
def test_mistakes_are_one_line(run: Run, october: Path, given: tuple[object, ...], said: str) -> None:
    """A part of the fleet that has no diagnosis, or a trace of nobody, is a mistake that says what to write."""
    code, _, err = run("report", *given, "--store", october)
    assert code == 2
    assert said in err
