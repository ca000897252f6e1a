"""Answers that take longer than a page: diagnoses, savings and plans, made beside the questions and kept."""

import asyncio
import re
import threading
from html import unescape
from pathlib import Path
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient
from tests.interfaces.server.conftest import MINE, THEIRS, write_fleet
from tests.interfaces.web.test_web_pages import Elements, serve
from tests.waiting import LONGEST_S

from loadfactor.base.errors import DamageError, InputError
from loadfactor.base.request import options_of
from loadfactor.books.books import Books
from loadfactor.interfaces.document import Document
from loadfactor.interfaces.pages.books import build_document as build_check
from loadfactor.interfaces.plans.process import PLANS, PlanProcess
from loadfactor.interfaces.server import pages
from loadfactor.interfaces.server.question_pool import QuestionPool
from loadfactor.interfaces.server.standing import Progress, StandingAnswers
from loadfactor.interfaces.web.plans import OF_BOOKS, OF_MACHINE, read_forms
from loadfactor.store.tokens import create_token

OWN = "/plan/own?demand_gpus=20x6,40x6,60x4,80x8"
KINDS = {kind.name: kind for kind in PLANS}


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Books:
    """The books of two teams."""
    books = Books(tmp_path_factory.mktemp("long") / "books")
    books.add("tables", [write_fleet(tmp_path_factory.mktemp("tables") / "fleet")])
    return books


def read_until_made(browser: TestClient, path: str) -> str:
    """A page once its answer is made; until then it looks again by itself."""
    for _ in range(200):
        answer = browser.get(path)
        assert answer.status_code == 200, path
        if 'http-equiv="refresh"' not in answer.text:
            return answer.text
        assert "is being made" in answer.text
    raise AssertionError(f"{path} is never made")


@pytest.mark.long
def test_a_diagnosis_is_made_beside_and_kept(books: Books) -> None:
    """The page says how far it is and looks again; then it has the answer and when it was made, for a program, too."""
    with serve(books) as browser:
        text = read_until_made(browser, "/diagnosis")
        assert re.search(r"Made \d{4}-\d\d-\d\d \d\d:\d\d UTC in ", text)
        assert browser.get("/diagnosis").text == text  # the same one
        assert browser.get("/diagnosis?format=json").json()["of"]
        assert "loadfactor diagnose --store" in text
        assert browser.get("/diagnosis?where=pool=a").status_code == 400
        saved = read_until_made(browser, "/savings")
        assert "could have been saved" in saved or "known to be lost" in saved or "no lever" in saved


@pytest.mark.long
def test_the_check_of_the_books_is_made_once_for_all_windows(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside it stands how much of each node was observed in the window."""
    checked: list[Books] = []
    monkeypatch.setattr(pages, "build_check", lambda of: (checked.append(of), build_check(of))[1])
    with serve(books) as browser:
        text = read_until_made(browser, "/quality")
        assert "The books balance" in text
        assert "How much of each node was observed" in text
        assert "The books balance" in read_until_made(browser, f"/quality?where=team={MINE}")
        assert browser.get("/quality?format=json").json()["balances"]
    assert len(checked) == 1


@pytest.mark.long
def test_damaged_books_are_no_mistake_of_who_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a long answer finds the damage, its page answers 503 as others do, each time."""
    books = Books(tmp_path / "books")
    books.add("tables", [write_fleet(tmp_path / "fleet")])

    def find_damage(_books: Books) -> Document:
        raise DamageError("ledger-1.parquet is damaged; run `loadfactor repair`")

    monkeypatch.setattr(pages, "build_check", find_damage)
    with serve(books) as browser:
        for form in ("html", "json"):
            answers = [browser.get(f"/quality?format={form}") for _ in range(2)]
            assert [answer.status_code for answer in answers] == [503, 503]
            assert all("is damaged" in answer.text and answer.headers["retry-after"] for answer in answers)


@pytest.mark.long
def test_a_team_has_a_diagnosis_of_its_own(tmp_path: Path) -> None:
    """Kept apart from that of the fleet, whoever asked first."""
    books = Books(tmp_path / "books")
    books.add("tables", [write_fleet(tmp_path / "fleet")])
    with serve(books) as browser:
        assert f"job-{THEIRS}" in read_until_made(browser, "/diagnosis")
        token = create_token(books.store.folder, "read-team", MINE, "", 1)[1]
        browser.headers["authorization"] = f"Bearer {token}"
        assert THEIRS not in read_until_made(browser, "/diagnosis")
        assert browser.get(f"/diagnosis?where=team={THEIRS}").status_code in (400, 403)


def test_answers_are_made_once_for_each_state_of_the_books() -> None:
    """Whoever asks; anew when the books went on and it stood long enough; an error stands for a while."""
    made: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    def make(name: str, tell: Progress) -> Document:
        tell("half of it", 0.5)
        begun.set()
        assert go_on.wait(LONGEST_S)
        made.append(name)
        if name == "refused":
            raise InputError("no such thing")
        return Document(name)

    async def walk() -> None:
        pool = QuestionPool(1, 2, 1)
        answers, patient = StandingAnswers(pool), StandingAnswers(pool, fresh_s=600)
        first = await answers.look("key", 1, "a", lambda tell: make("first", tell), 0)
        assert (first.is_making, first.document) == (True, None)
        assert await asyncio.to_thread(begun.wait, LONGEST_S)
        half = await answers.look("key", 1, "b", lambda tell: make("second", tell), 0)
        assert (half.what, half.share) == ("half of it", 0.5)
        await answers.look("other", 1, "a", lambda tell: make("other", tell), 0)
        waits = await answers.look("third", 1, "a", lambda tell: make("third", tell), 0)
        assert waits.what == "others are made first"  # one caller waits for two at once
        go_on.set()
        found = await answers.look("key", 1, "a", lambda tell: make("again", tell), None)
        assert (found.is_making, found.document) == (False, Document("first"))
        assert (await answers.look("key", 2, "a", lambda tell: make("anew", tell), None)).document == Document("anew")
        refused = await answers.look("refused", 1, "a", lambda tell: make("refused", tell), None)
        assert (await answers.look("refused", 1, "a", lambda tell: make("refused", tell), None)) is refused
        assert refused.error == "no such thing"
        await patient.look("key", 1, "a", lambda tell: make("patient", tell), None)
        await patient.look("key", 2, "a", lambda tell: make("too early", tell), None)
        pool.close()

    asyncio.run(walk())
    assert made == ["first", "other", "anew", "refused", "patient"]


@pytest.mark.parametrize("kind", PLANS, ids=lambda kind: kind.name)
def test_a_form_has_every_option_of_its_plan(kind: type, tmp_path: Path) -> None:
    """But files of the server, what it would reach, and the books for who may not read all of them."""
    of_team, of_fleet = (
        {f.option.field for f in read_forms(kind, {}, folder)[0].fields} for folder in (None, tmp_path)
    )  # type: ignore[arg-type]
    every = {option.field for option in options_of(kind.request) if option.kind is not Path}  # type: ignore[attr-defined]
    every -= {*OF_MACHINE.get(kind.name, ())}  # type: ignore[attr-defined]
    assert of_team == every - set(OF_BOOKS)
    assert of_fleet >= every


def test_a_form_names_the_field_that_is_wrong() -> None:
    """In one line each; files of the server cannot be named, nor can what is no field."""
    state = {"users": ["x"], "router": ["none"], "model": ["/etc/passwd"], "trace": ["/etc/passwd"]}
    (form,) = read_forms(KINDS["serve"], state, None)
    assert {field.name for field in form.wrong} == {"users", "router", "model"}
    assert "no field called 'trace'" in form.error
    assert not form.given
    (form,) = read_forms(KINDS["serve"], {"store": ["yes"]}, None)
    assert "no field called 'store'" in form.error


@pytest.mark.long
def test_a_plan_is_its_address(books: Books) -> None:
    """The page has the answer of the command and the fields that give it; two stand side by side, with what differs."""
    with serve(books) as browser:
        text = read_until_made(browser, OWN)
        assert "Own 40 GPUs" in text
        assert "loadfactor plan own --demand-gpus 20x6,40x6,60x4,80x8" in text
        fields = {attrs.get("name"): attrs for tag, attrs in Elements(text).found if tag in ("input", "select")}
        assert fields["demand_gpus"]["value"] == "20x6,40x6,60x4,80x8"
        assert fields["life_years"]["placeholder"]
        assert browser.get(f"{OWN}&format=json").json()["server"]["gpus"] == 8
        untidy = browser.get(f"{OWN}&rent_price=&users=")
        assert unescape(untidy.headers["location"]).endswith("demand_gpus=20x6%2C40x6%2C60x4%2C80x8")
        beside = read_until_made(browser, f"{OWN}&rent_price=9&against={quote(OWN.partition('?')[2])}")
        assert "What they differ in" in beside
        assert "not given" in beside  # the other's rent price
        assert "What comes of it" in beside
        assert browser.get("/plan/own?life_years=0&format=json").status_code == 400
        assert 'aria-invalid="true"' in browser.get("/plan/own?life_years=0").text


@pytest.mark.long
def test_a_plan_that_takes_too_long_is_ended() -> None:
    """And the next one is made by another process."""
    planner = PlanProcess(0.01)
    try:
        with pytest.raises(InputError, match="more than 10 ms of processor time"):  # what it imports takes longer
            planner.ask("own", {"demand_gpus": "20x6,40x6,60x4,80x8"})
        planner._longest_s = 60
        assert planner.ask("own", {"demand_gpus": "20x6,40x6,60x4,80x8"}).headline.startswith("Own 40 GPUs")
        with pytest.raises(InputError, match="demand-gpus"):
            planner.ask("own", {"demand_gpus": "x"})
    finally:
        planner.close()
