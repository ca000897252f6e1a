"""Why not fuller, in the report and on the page of a job: what `diagnose` and `savings` say, and nothing where nobody asked."""

import json
from pathlib import Path

import pytest
from tests.commands import Run

from loadfactor.books.books import Books
from loadfactor.interfaces.formats import money
from loadfactor.interfaces.reports.facts import TraceFacts, WhyFacts
from loadfactor.interfaces.reports.inquiry import Inquiry, WhyQuestion
from loadfactor.interfaces.reports.page import build_document

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


def test_an_ordinary_report_says_who_answers(run: Run, october: Path) -> None:
    """Without `--why` nothing is diagnosed, and the commands that do are among what to try next, in the same window."""
    report = ask(run, "report", "--from", "2026-10-06", "--store", october)
    sections = {section["name"]: section for section in report["sections"]}  # type: ignore[attr-defined, union-attr]
    assert "why" not in sections
    commands = [each["command"] for each in sections["next"]["commands"]]
    for name in ("diagnose", "savings"):
        (command,) = [each for each in commands if each.startswith(f"loadfactor {name} ")]
        assert command.endswith("--from 2026-10-06T00:00:00+00:00")


def test_a_team_has_its_own_causes_and_its_row_of_the_savings(run: Run, october: Path) -> None:
    """With `--where team=…` the jobs of that team are diagnosed, and of savings its row is told."""
    report = ask(run, "report", "--why", "--where", "team=research", "--store", october)
    (why,) = [section for section in report["sections"] if section["name"] == "why"]  # type: ignore[attr-defined, union-attr]
    assert why["diagnosis"] == ask(run, "diagnose", "--team", "research", "--jobs", "3", "--store", october)
    (row,) = [row for row in why["savings"]["rows"] if row["by"]["team"] == "research"]
    amounts = [money(row[name], "USD") for name in ("lost", "saved")]
    said = "Of {} lost by team research, {} would have been saved at most; first: cull_notebooks."
    assert why["says"].endswith(said.format(*amounts))


def test_the_page_of_a_job_has_its_diagnosis_and_its_traces(october: Path) -> None:
    """Its causes stand on its page; a trace of it is priced at the job's own price of a GPU-hour."""
    books = Books(october)
    with books.snapshot() as snapshot:
        document = build_document(Inquiry(snapshot, job=JOB, why=WhyQuestion(books, (TRACE,))))
    (why,) = [facts for facts in document.data.sections if isinstance(facts, WhyFacts)]
    (job,) = why.diagnosis.jobs
    assert (job.job, job.findings[0].cause, job.findings[0].class_) == (JOB, "idle_notebook", "scheduling")
    assert why.says.startswith(f"Job {JOB} lost 24.2 of 26 GPU-hours. First cause: idle notebook")
    (traces,) = [facts for facts in document.data.sections if isinstance(facts, TraceFacts)]
    assert traces.traced.in_books is not None
    (cost,) = traces.traced.in_books.costs
    assert cost.gpu_s == pytest.approx(0.09, rel=1e-3)  # 90 ms of the example wait for data
    assert cost.cost == pytest.approx(0.09 / 3600 * 2.35, rel=1e-3)  # at $2.35 per GPU-hour


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
