"""The pages over the books of two teams: every page, with every kind of token, in every form, and names that are hostile."""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from gzip import compress
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient
from tests.interfaces.server.conftest import HOUR, LOCAL, MINE, START, THEIRS, Remembering, write_csv, write_fleet
from tests.long import rest_long

from loadfactor.base.clock import now_ms
from loadfactor.base.errors import InputError
from loadfactor.books.books import Books
from loadfactor.insight.alerts.delivery.board import read_board
from loadfactor.insight.alerts.delivery.outbox import add_silence
from loadfactor.insight.alerts.delivery.silence import Silence
from loadfactor.interfaces.plans.process import PLANS
from loadfactor.interfaces.server.app import make_app
from loadfactor.interfaces.server.guard import Guard
from loadfactor.interfaces.server.pages import MOST_KEPT_BYTES, KeptParts
from loadfactor.interfaces.server.question_pool import QuestionPool
from loadfactor.interfaces.web.pages import PAGES
from loadfactor.interfaces.web.views import MOST_OF_OWNER, SavedView, list_views, name_owner, save_view
from loadfactor.store.session import Session
from loadfactor.store.source_status import Failure, Skipped, SourceStatus, write_statuses
from loadfactor.store.tokens import TokenFile, create_token, revoke_token

HTML = {"accept": "text/html"}
ADDRESSES = {f"/plan/{kind.name}": f"/plan/{kind.name}?model=x" for kind in PLANS}  # refused: a plan takes seconds
NAMES = {"/teams/{id}": "{}", "/teams/{id}/statement": "{}", "/jobs/{id}": "job-{}", "/gpus/{id}": "GPU-{}-0"}
HOURS = {
    "busy_gpu_hours": 0,
    "idle_gpu_hours": 253,
    "unallocated_gpu_hours": 252,
    "unobserved_gpu_hours": 255,
    "down_gpu_hours": 254,
}
"""Hours of a cell of the heat map, and the byte of one that is mostly so."""
OF_FLEET = ("/quality", "/settings", "/savings", "/sources")
WITHOUT_BOOKS = ("/settings", "/docs", "/plan/")
HOSTILE = (
    "<script>alert(1)</script>",
    "'; DROP TABLE jobs --",
    "\u202egnp.exe",
    "a/b?c#d&e=f",
    "../../etc/passwd",
    "“" * 200,
)


def paths(of: str) -> list[str]:
    """Every page; those of one thing, of what this team has."""
    found = [page.path.replace("{id}", NAMES.get(page.path, "").format(of)) for page in PAGES]
    return [ADDRESSES.get(path, path) for path in found]


def serve(books: Books, is_live: bool = False) -> TestClient:
    """A browser at a server of these books, at rest."""
    app = make_app(books, Remembering(), Guard(TokenFile(books.store.folder)), is_live=is_live)
    return TestClient(app, LOCAL, headers=HTML, client=("127.0.0.1", 5000), follow_redirects=False)


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Books:
    """The books of the two teams, with a token of each kind."""
    books = Books(tmp_path_factory.mktemp("pages") / "books")
    books.add("tables", [write_fleet(tmp_path_factory.mktemp("tables") / "fleet")])
    return books


@pytest.fixture(scope="module")
def open_pages(books: Books) -> dict[str, str]:
    """Every page as this machine alone reads it without a token, by its path."""
    with serve(books) as browser:
        answers = {path: browser.get(path) for path in paths(MINE)}
    assert {path: answer.status_code for path, answer in answers.items()} == dict.fromkeys(answers, 200)
    for answer in answers.values():
        assert "script-src 'self'" in answer.headers["content-security-policy"]
    return {path: answer.text for path, answer in answers.items()}


@pytest.fixture(scope="module")
def tokens(books: Books, open_pages: dict[str, str]) -> dict[str, str]:
    """A token of each kind, made when the pages were read without one."""
    assert open_pages
    folder = books.store.folder
    made = {right: create_token(folder, right, None, "", 1)[1] for right in ("read", "write")}
    made["nobody's team"] = create_token(folder, "read-team", "nobody", "", 1)[1]
    return made | {"read-team": create_token(folder, "read-team", MINE, "", 1)[1]}


class Elements(HTMLParser):
    """The tags of a page with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep it."""
        self.found.append((tag, dict(attrs)))

    def links(self) -> list[str]:
        """The addresses that a reader can follow."""
        return [attrs["href"] or "" for tag, attrs in self.found if tag == "a"]


def test_every_page_leads_on_and_says_its_command(open_pages: dict[str, str]) -> None:
    """Its question is its title, it links to every other page, and the same stands on the command line."""
    for path, text in open_pages.items():
        found = Elements(text)
        assert re.search(r"<title>[^<]*\?", text), path
        assert {page.path for page in PAGES if page.name} <= {link.partition("?")[0] for link in found.links()}, path
        assert "<code>loadfactor " in text or path == "/views", path
        assert "data-empty" not in text or path in ("/alerts", "/views", "/diagnosis", "/savings"), (
            path
        )  # the last two are being made
    assert f'href="/teams/{MINE}"' in open_pages["/teams"]
    assert f'href="/jobs/job-{MINE}"' in open_pages["/jobs"]
    assert f'href="/gpus/GPU-{MINE}-0"' in open_pages["/gpus"]


@pytest.mark.long  # some two hundred pages
@pytest.mark.long  # some two hundred pages
def test_links_within_pages_lead_somewhere(books: Books, open_pages: dict[str, str], tokens: dict[str, str]) -> None:
    """Every address of a page is answered, to who reads everything."""
    links = {link for text in open_pages.values() for link in Elements(text).links() if link.startswith("/")}
    with serve(books) as browser:
        for link in links:
            answer = browser.get(link, headers={"authorization": f"Bearer {tokens['read']}"})
            assert answer.status_code == (400 if "?model=x&" in link else 200), link  # no such plan, for a program


def test_pages_are_json_and_csv_too(books: Books, tokens: dict[str, str]) -> None:
    """By the address or by what is accepted; the readings are those of `show`."""
    bearer = {"authorization": f"Bearer {tokens['read']}"}
    with serve(books) as browser:
        by_address = browser.get("/teams?format=json", headers=bearer)
        by_accept = browser.get("/teams", headers=bearer | {"accept": "application/json"})
        assert json.loads(by_address.text) == json.loads(by_accept.text)
        costs = {r["by"]["team"]: r["value"] for r in by_address.json() if r["metric"] == "cost"}
        shown = browser.get("/api/v1/readings?metric=cost&by=team", headers=bearer).json()["readings"]
        assert costs == {r["by"]["team"]: r["value"] for r in shown}
        assert browser.get("/teams?format=csv", headers=bearer).text.startswith("metric,")
        assert browser.get("/teams?format=xml", headers=bearer).status_code == 400
        tag = browser.get("/teams", headers=bearer).headers["etag"]
        assert browser.get("/teams", headers=bearer | {"if-none-match": tag}).status_code == 304
        assert tag != by_address.headers["etag"]
        of_team = browser.get(
            "/teams", headers={"authorization": f"Bearer {tokens['read-team']}", "if-none-match": tag}
        )
        assert (of_team.status_code, of_team.headers["etag"] != tag) == (200, True)
        assert {"Authorization", "Cookie"} <= {*of_team.headers["vary"].split(", ")}


@pytest.mark.long
@pytest.mark.parametrize("right", rest_long(["read-team", "nobody's team"]))
def test_a_teams_pages_say_nothing_of_another_team(books: Books, tokens: dict[str, str], right: str) -> None:
    """No page, form, refusal or header, of its own names or of theirs, holds a name, a price or a share of theirs."""
    with serve(books) as browser:
        for path in [*paths(MINE), *paths(THEIRS), "/jobs?q=hush", "/time?by=team,hour", f"/time?where=team={THEIRS}"]:
            for form in ("html", "json", *(["cells"] if path == "/gpus" else [])):
                question = f"{path}{'&' if '?' in path else '?'}format={form}"
                answer = browser.get(question, headers={"authorization": f"Bearer {tokens[right]}"})
                assert answer.status_code < 500, question
                shown = unescape(answer.text) + str(
                    {k: v for k, v in answer.headers.items() if k not in ("etag", "x-request-id")}
                )
                if THEIRS in path:  # the name that was requested is repeated
                    shown = re.sub(rf"[\w-]*{THEIRS}[\w-]*", "", shown)
                assert not [s for s in (THEIRS, "7919", "63352", "63,352", "0.7654", "76.5 %") if s in shown], question


NAMING = (
    *("/teams/{}", "/jobs/job-{}", "/gpus/GPU-{}-0", "/jobs?q={}", "/time?where=team={}", "/time?where=pool=pool-{}"),
    *(
        "/jobs?where=user=user-{}",
        f"/jobs/job-{MINE}?beside=job-{{}}",
        "/diagnosis?where=team={}",
        "/diagnosis?where=job=job-{}",
    ),
    *(
        "/gpus?where=node=node-{}&format=cells",
        "/money?where=project=project-{}",
        "/queue?where=team={}",
        "/teams/{}/statement",
        "/digest?where=team={}",
        "/digest?where=user=user-{}",
        "/teams?where=experiment={}",
    ),
    *("/api/v1/readings?metric=cost&where=job=job-{}", "/api/v1/jobs?user=user-{}", "/api/v1/diagnosis?job=job-{}"),
)
"""Addresses that name a thing, in every way that there is."""
FORMS = (
    ("/alerts", "rule=job_idle&by.team={}&for=4h&reason=acknowledged"),
    ("/alerts", "rule=job_idle&of=job%3Djob-{}&for=2h"),
    ("/alerts", "lift={}"),
    ("/views", "name=theirs&address=%2Fteams%2F{}"),
    ("/views", "name=theirs&address=%2Fjobs%2Fjob-{}%3Flast%3D2d"),
    ("/views", "remove={}"),
)
"""Forms that name a thing: acknowledge, silence, lift, save a view, remove one."""


@pytest.mark.long
def test_what_is_there_and_forbidden_is_as_what_is_not_there(
    books: Books, tokens: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To a team's token: the same answer, byte for byte, after the same questions of the books: no time tells them apart."""
    statements: list[str] = []
    for name in ("fetch", "fetch_columns", "fetch_one", "materialize", "create_view"):

        def note(session: Session, *given: str, work: Callable[..., object] = getattr(Session, name)) -> object:
            statements.append(" ".join(given))
            return work(session, *given)

        monkeypatch.setattr(Session, name, note)
    bearer = {"authorization": f"Bearer {tokens['read-team']}", "accept-encoding": "identity"}
    with serve(books) as browser:

        def ask(address: str, name: str) -> tuple[object, ...]:
            statements.clear()
            answer = browser.get(address.format(name), headers=bearer)
            text = answer.text.replace(name, "NAME")
            headers = {k: v for k, v in answer.headers.items() if k not in ("etag", "x-request-id")}
            return answer.status_code, text, headers, [of.replace(name, "NAME") for of in statements]

        for address in NAMING:
            ask(address, "whatever")  # what is read once is read
            there, not_there = ask(address, THEIRS), ask(address, "nonesuch")
            assert len(THEIRS) == len("nonesuch")
            assert there == not_there, address


@pytest.mark.long
def test_forms_that_name_what_is_forbidden_are_as_of_what_is_not_there(tmp_path: Path) -> None:
    """To a team's session: the same answer, byte for byte; nothing that it may not write is changed."""
    books = Books(tmp_path / "books")
    books.add("tables", [write_fleet(tmp_path / "fleet")])
    folder = books.store.folder
    theirs, token = (create_token(folder, "read-team", team, "", 1) for team in (THEIRS, MINE))
    add_silence(folder, Silence(THEIRS, "job_idle", {"team": THEIRS}, now_ms(), now_ms() + HOUR, "", "somebody"))
    save_view(folder, name_owner(theirs[0].id, ""), SavedView(THEIRS, f"/teams/{THEIRS}", 1), ["/teams/{id}"])
    form = {"content-type": "application/x-www-form-urlencoded", "origin": LOCAL, "accept-encoding": "identity"}
    with serve(books) as browser:
        browser.post("/login", content=f"token={token[1]}&next=/", headers=form)
        (key, *_) = re.findall(r'name="form_key" value="(\w+)"', browser.get("/time").text)

        def send(path: str, words: str, name: str) -> tuple[object, ...]:
            answer = browser.post(path, content=f"form_key={key}&{words.format(name)}", headers=form)
            headers = {k: v for k, v in answer.headers.items() if k != "x-request-id"}
            return answer.status_code, answer.text.replace(name, "NAME"), headers

        for path, words in FORMS:
            there, not_there = send(path, words, THEIRS), send(path, words, "nonesuch")
            assert there == not_there, words
            assert there[0] == (403 if path == "/alerts" else 303), words
    (silence,) = read_board(folder, now_ms(), ()).silences
    assert silence.id == THEIRS
    assert [view.name for view in list_views(folder, name_owner(theirs[0].id, ""))] == [THEIRS]


@pytest.mark.long
def test_documents_are_pages_and_files(books: Books, tokens: dict[str, str]) -> None:
    """The digest and the statement of a team are what the commands say, in every form; a team has its own alone."""
    bearer = {"authorization": f"Bearer {tokens['read']}"}
    own = {"authorization": f"Bearer {tokens['read-team']}"}
    month = f"{datetime.fromtimestamp(START / 1000, UTC):%Y-%m}"
    (charged,) = [of for of in books.read_statements(month) if of.team == MINE]
    with serve(books) as browser:
        for address in (f"/teams/{MINE}/statement", f"/teams/{MINE}/statement?month={month}"):
            of_team, of_all = (browser.get(address, headers=h | {"accept": "application/json"}) for h in (own, bearer))
            assert Decimal(of_all.json()["amounts"]["EffectiveCost"]) == charged.amounts["EffectiveCost"]
            assert of_team.json() == {**of_all.json(), "remarks": []}
        page = browser.get(f"/teams/{MINE}/statement", headers=bearer).text
        assert f'statement?month={month}"' in page
        assert "only month" not in page
        assert "only " not in browser.get("/digest?every=month", headers=bearer).text
        for form, begins in (("pdf", b"%PDF"), ("xlsx", b"PK"), ("csv", b"line,")):
            for page in (f"/teams/{MINE}/statement", "/digest?every=month"):
                file = browser.get(f"{page}{'&' if '?' in page else '?'}format={form}", headers=own)
                assert file.status_code == 200, file.text
                assert file.content.startswith(begins) or (form == "csv" and "digest" in page), page
        assert browser.get("/teams?format=pdf", headers=bearer).status_code == 400
        assert browser.get(f"/teams/{THEIRS}/statement", headers=own).status_code == 403
        assert browser.get(f"/digest?where=team={THEIRS}", headers=own).status_code == 403
        assert browser.get("/digest?where=job=x", headers=bearer).status_code == 400
        assert browser.get(f"/teams/{MINE}/statement?version=1", headers=bearer).status_code == 404
        fleet, team = (browser.get("/digest?format=json", headers=of).json() for of in (bearer, own))
        assert (fleet["team"], team["team"]) == (None, MINE)
        told = {of["metric"]: of["value"] for of in fleet["readings"]}
        week = {"from": fleet["from"], "to": fleet["to"], "metric": "cost"}
        assert (
            told["cost"] == browser.get("/api/v1/readings", params=week, headers=bearer).json()["readings"][0]["value"]
        )
        assert browser.get("/digest?every=day&on=1999-01-01", headers=bearer).status_code == 200
        assert 'href="/digest"' in browser.get(f"/teams?where=pool=pool-{MINE}", headers=bearer).text
        text = browser.get("/digest", headers=bearer).text
        assert 'href="/digest?every=month"' in text
        links = Elements(browser.get("/money", headers=bearer).text).links()
        assert {f"/teams/{of}/statement" for of in (MINE, THEIRS)} <= {*links}
        assert (
            f"/teams/{MINE}/statement?month={month}"
            in Elements(browser.get(f"/teams/{MINE}", headers=own).text).links()
        )


@pytest.mark.long
def test_pages_ask_for_their_tokens(books: Books, tokens: dict[str, str]) -> None:
    """Without one a browser is sent to sign in, with one of a team pages of the fleet are refused, as a page."""
    with serve(books) as browser:
        for path in paths(MINE):
            assert browser.get(path).headers["location"] == f"/login?next={quote(path, safe='')}"
            assert browser.get(path, headers={"accept": "application/json"}).status_code == 401
            assert browser.get(path, headers={"authorization": f"Bearer {tokens['write']}"}).status_code == 403
            refused = browser.get(path, headers={"authorization": f"Bearer {tokens['read-team']}"})
            assert refused.status_code == (403 if path in OF_FLEET else 200), path
            assert refused.headers["content-type"].startswith("text/html")


def test_a_session_reads_pages_and_signs_out_by_their_form(books: Books, tokens: dict[str, str]) -> None:
    """The page carries the key of its session; one that may not write has no form that does."""
    with serve(books) as browser:
        form = {"content-type": "application/x-www-form-urlencoded", "origin": LOCAL}
        signed = browser.post("/login", content=f"token={tokens['read']}&next=/teams", headers=form)
        text = browser.get(signed.headers["location"]).text
        (key,) = set(re.findall(r'name="form_key" value="(\w+)"', text))
        assert "Silence" not in browser.get("/alerts").text
        assert browser.post("/alerts", content=f"form_key={key}&rule=x&for=1h", headers=form).status_code == 403
        assert browser.post("/logout", content=f"form_key={key}", headers=form).status_code == 303
        assert browser.get("/teams").status_code == 303


@pytest.mark.long
def test_a_person_silences_and_lifts_by_the_forms(tmp_path: Path) -> None:
    """With a token that reads and writes; without the key of the page, or from another origin, nothing is written."""
    books = Books(tmp_path / "books")
    books.add("tables", [write_fleet(tmp_path / "fleet")])
    folder = books.store.folder
    token = create_token(folder, "everything", None, "", 1)[1]
    with serve(books) as browser:
        form = {"content-type": "application/x-www-form-urlencoded", "origin": LOCAL}
        assert browser.post("/login", content=f"token={token}&next=/alerts", headers=form).status_code == 303
        text = browser.get("/alerts").text
        (key, *_) = re.findall(r'name="form_key" value="(\w+)"', text)
        assert '<option value="notebook_idle"' in text
        words = "rule=notebook_idle&of=team%3Dvision&for=1h&reason=known"
        assert browser.post("/alerts", content=words, headers=form).status_code == 403
        elsewhere = form | {"origin": "https://evil.example"}
        assert browser.post("/alerts", content=f"form_key={key}&{words}", headers=elsewhere).status_code == 403
        assert browser.post("/alerts", content=f"form_key={key}&{words}", headers=form).status_code == 303
        (silence,) = read_board(folder, now_ms(), ()).silences
        assert (silence.rule, silence.by, silence.reason) == ("notebook_idle", {"team": "vision"}, "known")
        assert "notebook_idle, team vision" in browser.get("/alerts").text
        lifted = f"form_key={key}&lift={silence.id}"
        assert browser.post("/alerts", content=lifted, headers=form).status_code == 303
        assert "team vision" not in browser.get("/alerts").text
        wrong = browser.post("/alerts", content=f"form_key={key}&rule=notebook_idle&of=x&for=1h", headers=form)
        assert wrong.status_code == 400


def test_thousands_are_parted_as_the_reader_reads_them(books: Books, tokens: dict[str, str]) -> None:
    """By narrow spaces where a comma could be that of a fraction, on pages alone; names, commands and data stay as they are."""
    bearer = {"authorization": f"Bearer {tokens['read']}"}
    german, english = {"accept-language": "de-DE,de;q=0.9,en;q=0.8"}, {"accept-language": "en-US"}
    with serve(books) as browser:
        for_germans, for_others = (browser.get("/teams", headers=bearer | of) for of in (german, english))
        assert "$63\u202f352" in for_germans.text
        assert "$63,352" in for_others.text
        assert "63,352" not in re.sub(r"<[^>]*>", "", for_germans.text)
        assert re.findall(r'data-\w+="[^"]*"', for_germans.text) != []
        assert for_germans.text.replace("\u202f", ",").replace(' data-thousands="space"', "") == for_others.text
        assert for_germans.headers["etag"] != for_others.headers["etag"]
        assert "Accept-Language" in for_germans.headers["vary"]
        for form in ("json", "csv"):
            texts = {browser.get(f"/teams?format={form}", headers=bearer | of).text for of in (german, english)}
            assert len(texts) == 1


@pytest.mark.long
def test_a_view_is_saved_listed_and_removed_by_forms(tmp_path: Path) -> None:
    """By whoever reads, for themselves alone; not without the key of the page, from elsewhere, or for what is no page."""
    books = Books(tmp_path / "books")
    books.add("tables", [write_fleet(tmp_path / "fleet")])
    folder = books.store.folder
    tokens = {team: create_token(folder, "read-team", team, "", 1) for team in (MINE, THEIRS)}
    form = {"content-type": "application/x-www-form-urlencoded", "origin": LOCAL}
    hostile = "<b>&'; DROP"

    def sign_in(browser: TestClient, team: str) -> str:
        browser.post("/login", content=f"token={tokens[team][1]}&next=/", headers=form)
        return str(re.findall(r'name="form_key" value="(\w+)"', browser.get("/time").text)[0])

    def save(browser: TestClient, key: str, name: str, address: str, **headers: str) -> int:
        body = f"form_key={key}&name={quote(name)}&address={quote(address, safe='')}"
        return browser.post("/views", content=body, headers=form | headers).status_code

    with serve(books) as mine, serve(books) as theirs:
        key, other_key = sign_in(mine, MINE), sign_in(theirs, THEIRS)
        place = "/time?last=2d&metric=utilization"
        assert (
            f'name="address" value="{place.replace("&", "&amp;")}"' in mine.get("/time?metric=utilization&last=2d").text
        )
        assert save(mine, key, hostile, place) == save(mine, key, "a", "/jobs/a b?last=2d") == 303
        assert save(mine, key, "a", f"/teams/{MINE}") == 303  # in place of the one of that name
        assert save(theirs, other_key, "of them", "/teams") == 303
        refused = [("", "/"), ("x" * 101, "/"), ("x", "//evil.example"), ("x", "https://evil.example"), ("x", "/login")]
        refused += [("x", "/views"), ("a\u202eb", "/"), ("x", "/jobs?q=" + "y" * 4_000), ("x", "/time\x1b")]
        assert {save(mine, key, *of) for of in refused} == {400}
        assert save(mine, other_key, "x", "/") == save(mine, key, "x", "/", origin="https://evil.example") == 403
        text = mine.get("/views").text
        assert f'<a href="{place.replace("&", "&amp;")}">&lt;b&gt;&amp;&#39;; DROP</a>' in text
        assert [view["address"] for view in mine.get("/views?format=json").json()] == [place, f"/teams/{MINE}"]
        assert "of them" not in text
        assert [view["name"] for view in theirs.get("/views?format=json").json()] == ["of them"]
        for number in range(MOST_OF_OWNER - 2):
            save_view(folder, name_owner(tokens[MINE][0].id, ""), SavedView(f"n{number}", "/", 1), ["/"])
        assert save(mine, key, "one too many", "/") == 400
        gone = f"form_key={key}&remove={quote(hostile)}"
        assert mine.post("/views", content=gone, headers=form).status_code == 303
        assert "DROP" not in mine.get("/views").text
        revoke_token(folder, tokens[MINE][0].id, 2)
        assert save(theirs, other_key, "b", "/") == 303
        assert list_views(folder, name_owner(tokens[MINE][0].id, "")) == []


@pytest.mark.long
def test_what_was_saved_outlasts_a_kill(tmp_path: Path) -> None:
    """Every view that was acknowledged before the process was killed is there."""
    Books(tmp_path / "books").add("tables", [write_fleet(tmp_path / "fleet")])
    code = """
import sys
from pathlib import Path
from loadfactor.interfaces.web.views import SavedView, save_view
for number in range(100):
    save_view(Path(sys.argv[1]), "o", SavedView(str(number), "/", number), ["/"])
    print(number, flush=True)
"""
    folder = tmp_path / "books"
    with subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        kept = [process.stdout.readline().strip() for _ in range(5)]
        process.kill()
        kept += process.stdout.read().split()
    assert {view.name for view in list_views(folder, "o")} >= {*kept} >= {"0", "4"}


def test_what_is_not_there_is_said_as_a_page(books: Books, tokens: dict[str, str]) -> None:
    """To a browser; a program gets its line of JSON."""
    with serve(books) as browser:
        bearer = {"authorization": f"Bearer {tokens['read']}"}
        there_is_none = browser.get("/nowhere", headers=bearer)
        assert there_is_none.status_code == 404
        assert "There is no such page." in there_is_none.text
        assert browser.get("/nowhere", headers=bearer | {"accept": "*/*"}).json()["error"]
        assert browser.get("/teams?last=x", headers=bearer).status_code == 400
        for path in ("/teams/nobody", "/jobs/nobody", "/gpus/nobody"):
            assert browser.get(path, headers=bearer).status_code == 404, path
            assert browser.get(f"{path}?last=x", headers=bearer).status_code == 400, path


@pytest.mark.long
def test_sources_say_how_they_do(tmp_path: Path) -> None:
    """Each live one with what is wrong and what is not kept, times without samples, and what was imported."""
    books = Books(tmp_path / "books")
    books.add("tables", [write_fleet(tmp_path / "fleet")])
    skipped = (Skipped("no_name", 3, START, "{job up}"),)
    failures = (Failure(START, START + HOUR, "connection refused"),)
    well = SourceStatus("dcgm a", "ok", START + HOUR, targets=4, answering=3, skipped=skipped)
    write_statuses(books.store.folder, [well, SourceStatus("slurm", "failing", None, "no answer", START, failures)])
    with serve(books) as browser:
        text = unescape(browser.get("/sources").text)
        for words in (
            "1 source of 2 is not well: slurm (failing)",
            "3 of 4",
            "3 samples without a name",
            "connection refused",
            "tables",
        ):
            assert words in text, words
        assert browser.get("/sources?format=json").json()["live"][1]["error"] == "no answer"


def test_empty_books_say_so(tmp_path: Path) -> None:
    """Every page is there, and says that there is nothing in it."""
    with serve(Books(tmp_path / "empty")) as browser:
        for path in paths("x"):
            answer = browser.get(path)
            assert answer.status_code == 200, path
            assert ("data-empty" in answer.text) == (not path.startswith(WITHOUT_BOOKS)), path


@pytest.mark.long
def test_live_pages_show_the_last_days(tmp_path: Path) -> None:
    """Without a window seven days, of books at rest all of them."""
    folder = tmp_path / "tables"
    folder.mkdir()
    write_csv(folder / "devices.csv", [{"device_id": "G", "node": "n", "accelerator": "H100", "from_utc": START}])
    hour = [
        {"device_id": "G", "from_utc": at, "to_utc": at + HOUR, "team": "t", "job_id": "j"}
        for at in (START, START + 240 * HOUR)
    ]
    write_csv(folder / "allocations.csv", hour)
    books = Books(tmp_path / "books")
    books.add("tables", [folder])
    question = "/teams?format=json"
    found_hours = []
    for is_live in (False, True):
        with serve(books, is_live) as browser:
            found = browser.get(question).json()
        found_hours.append([r["value"] for r in found if r["metric"] == "paid_gpu_hours" and r["by"]["team"] == "t"])
    assert found_hours == [[2.0], [1.0]]


@pytest.mark.long
def test_hostile_names_are_text(tmp_path: Path) -> None:
    """Of teams and jobs: on every page that names them, in links, and as the name of a page itself."""
    folder = tmp_path / "tables"
    folder.mkdir()
    write_csv(folder / "devices.csv", [{"device_id": "G", "node": "n", "accelerator": "H100", "from_utc": START}])
    held = [
        {"device_id": "G", "from_utc": START + n * HOUR, "to_utc": START + (n + 1) * HOUR, "team": name, "job_id": name}
        for n, name in enumerate(HOSTILE)
    ]
    write_csv(folder / "allocations.csv", held)
    books = Books(tmp_path / "books")
    books.add("tables", [folder])
    with serve(books) as browser:
        for place in ("/teams", "/jobs"):
            text = browser.get(place).text
            assert "<script>" not in text
            assert "\u202e" not in text
            assert "DROP TABLE" in unescape(text)
            links = [link for link in Elements(text).links() if link.startswith(f"{place}/")]
            assert len(links) >= len(HOSTILE)
            assert {browser.get(link).status_code for link in links} == {
                200
            }  # of bidi marks, too, which are spelled out
        for name in HOSTILE[:2] + HOSTILE[3:4]:
            for place in ("/teams", "/jobs"):
                answer = browser.get(f"{place}/{quote(name, safe='')}")
                assert answer.status_code == 200, (place, name)
                assert "<script>" not in answer.text
                assert name in unescape(answer.text)


def test_pages_carry_no_style_or_script(books: Books, open_pages: dict[str, str]) -> None:
    """Of their own, which their policy forbids: they link files of this server, 30 kB packed at most of scripts."""
    links = set()
    for path, text in open_pages.items():
        found = Elements(text).found
        links |= {attrs["src"] for tag, attrs in found if tag == "script"}
        assert not [tag for tag, attrs in found if tag == "style" or "style" in attrs], path
        assert not [name for _, attrs in found for name in attrs if name.startswith("on")], path
    assert links
    assert None not in links
    with serve(books) as browser:
        files = [browser.get(str(link)) for link in links]
    assert {answer.status_code for answer in files} == {200}
    assert sum(len(compress(answer.content)) for answer in files) <= 30_000


def test_charts_carry_the_values_that_a_cursor_shows(open_pages: dict[str, str]) -> None:
    """Each as it is written elsewhere, of every moment, and pages of books at rest do not ask for themselves."""
    (told, *_) = [
        json.loads(attrs["data-chart"] or "") for _, attrs in Elements(open_pages["/"]).found if "data-chart" in attrs
    ]
    assert told["names"][0] == "Allocation"
    assert {len(row) for row in told["y"]} == {len(told["moments"])}
    assert told["moments"][0] == START // 1000
    assert set(told["moments"][1:]) == {HOUR // 1000}
    assert told["y"][0][0].endswith(" %")
    assert "data-poll" not in open_pages["/"]


def test_a_tile_draws_how_it_went(open_pages: dict[str, str]) -> None:
    """As a small line that says in words what it shows; of a few days by the hour."""
    drawn = re.findall(
        r'<svg class="picture course"[^>]* aria-label="([^"]*)"><title>([^<]*)</title><path', open_pages["/"]
    )
    assert [said for said, title in drawn if said != title] == []
    assert "Utilization by hour: lowest 63.3 %, highest 63.3 %, last 63.3 %" in dict(drawn)


def test_the_heat_map_is_one_byte_a_cell(books: Books, tokens: dict[str, str]) -> None:
    """Of each GPU and hour what most of it was, as the readings say; of a team's token what the team held."""
    bearer = {"authorization": f"Bearer {tokens['read']}"}
    metrics = ("utilization", *HOURS)
    with serve(books) as browser:
        answer = browser.get("/gpus?format=cells", headers=bearer)
        question = "/api/v1/readings?by=device,hour&metric=" + ",".join(metrics)
        readings = browser.get(question, headers=bearer).json()["readings"]
        own = browser.get("/gpus?format=cells", headers={"authorization": f"Bearer {tokens['read-team']}"})
        by_node = browser.get("/gpus?format=cells&rows=nodes", headers=bearer)
        assert browser.get("/teams?format=cells", headers=bearer).status_code == 400
        assert browser.get("/gpus?rows=racks", headers=bearer).status_code == 400
    line, _, cells = answer.content.partition(b"\n")
    told = json.loads(line)
    assert len(cells) == len(told["rows"]) * told["columns"]
    found: dict[tuple[str, str], dict[str, float]] = {}
    for r in readings:
        found.setdefault((r["by"]["device"], r["by"]["hour"]), {})[r["metric"]] = r["value"] or 0.0
    compared = 0
    for (device, hour), of in found.items():
        (row,) = [n for n, (_, name) in enumerate(told["rows"]) if name == device]
        column = (round(datetime.fromisoformat(hour).timestamp()) - told["first"]) // told["step"]
        most = max(HOURS, key=lambda name: of[name])
        expected = HOURS[most] if most != "busy_gpu_hours" else round(of["utilization"] * 200)
        assert cells[row * told["columns"] + column] == expected
        compared += 1
    assert compared
    assert [name for _, name in json.loads(own.content.partition(b"\n")[0])["rows"]] == [
        f"GPU-{MINE}-{n}" for n in (0, 1)
    ]
    assert len(json.loads(by_node.content.partition(b"\n")[0])["rows"][0]) == 1


@pytest.mark.long
def test_a_kept_page_is_of_its_reader_and_its_books(tmp_path: Path) -> None:
    """What was worked out for who reads everything is not given to a team, nor after an import."""
    books = Books(tmp_path / "books")
    books.add("tables", [write_fleet(tmp_path / "fleet")])
    right = {team: create_token(books.store.folder, "read-team", team, "", 1)[1] for team in (MINE, THEIRS)}
    right["all"] = create_token(books.store.folder, "read", None, "", 1)[1]
    with serve(books) as browser:

        def read(who: str) -> str:
            answer = browser.get("/teams", headers={"authorization": f"Bearer {right[who]}"})
            return re.sub(r"token \w+", "", answer.text)

        first = read("all")
        assert MINE in first
        assert THEIRS in first
        assert THEIRS not in read(MINE)
        assert MINE not in read(THEIRS)
        assert read("all") == first
        (tmp_path / "more").mkdir()
        held = {"from_utc": START + HOUR * 5, "to_utc": START + HOUR * 6}
        row = {"device_id": f"GPU-{MINE}-0", "job_id": "later", "team": "third", **held}
        write_csv(tmp_path / "more" / "allocations.csv", [row])
        books.add("tables", [tmp_path / "more"])
        assert "third" in read("all")


def test_many_readers_of_a_page_are_one_question() -> None:
    """Fifty at once wait for one answer; one that fails is not kept, and the oldest go where all would be too large."""
    questions: list[str] = []

    def build(content: str) -> dict[str, str]:
        questions.append(content)
        if not content:
            raise InputError("nothing")
        return {"content": content}

    async def ask() -> None:
        pool = QuestionPool(1, 1, 1)
        kept = KeptParts(pool)
        answers = await asyncio.gather(*(kept.find("a", lambda: build("x")) for _ in range(50)))
        assert answers == [{"content": "x"}] * 50
        assert questions == ["x"]
        for _ in range(2):
            with pytest.raises(InputError):
                await kept.find("b", lambda: build(""))
        large = "y" * (MOST_KEPT_BYTES - 1)
        await kept.find("c", lambda: build(large))  # with it "a" is as much as may be kept
        await kept.find("a", lambda: build("x"))
        await kept.find("d", lambda: build("z"))
        await kept.find("a", lambda: build("x"))
        await kept.find("c", lambda: build("c"))
        assert questions == ["x", "", "", large, "z", "c"]
        pool.close()

    asyncio.run(ask())


def test_two_jobs_stand_beside_each_other(books: Books, tokens: dict[str, str]) -> None:
    """Each with its own numbers; a team's token compares with its own jobs alone."""
    address = f"/jobs/job-{MINE}?beside=job-{THEIRS}"
    with serve(books) as browser:
        page = browser.get(address, headers={"authorization": f"Bearer {tokens['read']}"})
        assert "<h1>Job job-minerals cost $16.00, job job-hushhush $63,352.</h1>" in page.text
        assert "<td>$63,352</td>" in page.text
        refused = browser.get(address, headers={"authorization": f"Bearer {tokens['read-team']}"})
        assert refused.status_code == 404
        assert "63,352" not in refused.text
        assert (
            browser.get(f"/jobs/job-{MINE}?beside=x", headers={"authorization": f"Bearer {tokens['read']}"}).status_code
            == 404
        )


@pytest.mark.long
def test_a_form_puts_a_job_beside_another(books: Books, tokens: dict[str, str]) -> None:
    """It offers what its reader may see, and keeps the window; from there a link leads to the job alone."""
    with serve(books) as browser:

        def read(right: str, address: str) -> Elements:
            return Elements(browser.get(address, headers={"authorization": f"Bearer {tokens[right]}"}).text)

        alone = f"/jobs/job-{MINE}?last=2d"
        for right, others in (("read", [f"job-{THEIRS}"]), ("read-team", [])):
            found = read(right, alone).found
            offered = [
                of["value"] for tag, of in found if tag == "option" and (of.get("value") or "").startswith("job-")
            ]
            assert offered == others, right
        page = read("read", f"{alone}&beside=job-{THEIRS}")
        assert alone in page.links()
        fields = [(of["name"], of.get("value")) for tag, of in page.found if tag == "input" and "name" in of]
        assert ("beside", f"job-{THEIRS}") in fields
        assert ("last", "2d") in fields


@pytest.mark.long
def test_lists_are_filtered_by_state(tmp_path: Path) -> None:
    """By that of most of their time, and jobs by how they ended: links with counts, which keep those alone."""
    folder = tmp_path / "tables"
    folder.mkdir()
    times = {"from_utc": START, "to_utc": START + 4 * HOUR}
    gpus = [{"device_id": f"G{n}", "node": "n", "accelerator": "H100", **times} for n in range(3)]
    write_csv(folder / "devices.csv", gpus)
    ends = {"G0": "failed", "G1": "completed"}
    held = [{"device_id": of, "job_id": f"on {of}", "team": "t", "end_state": end, **times} for of, end in ends.items()]
    write_csv(folder / "allocations.csv", held)
    samples = [
        {"device_id": "G0", "from_utc": START + n * HOUR, "to_utc": START + (n + 1) * HOUR, "busy_share": 0.9}
        for n in range(4)
    ]
    write_csv(folder / "samples.csv", samples)
    books = Books(tmp_path / "books")
    books.add("tables", [folder])
    with serve(books) as browser:
        jobs, gpus_page = unescape(browser.get("/jobs").text), unescape(browser.get("/gpus").text)
        for name, value in (("state", "busy"), ("state", "unobserved"), ("end", "failed"), ("end", "completed")):
            assert f'<a href="/jobs?{name}={value}">{value}</a></th><td class="n">1</td>' in jobs, value
        for value in ("busy", "unobserved", "unallocated"):
            assert f'<a href="/gpus?state={value}">{value}</a></th><td class="n">1</td>' in gpus_page, value
        failed = unescape(browser.get("/jobs?end=failed").text)
        assert "1 job held GPUs and ended as failed, by cost" in failed
        assert "on G0" in failed
        assert "on G1" not in failed
        assert browser.get("/jobs?state=busy&end=completed").text.count("No jobs were busy for most of their time") >= 1
        assert "/gpus/G2" in (free := browser.get("/gpus?state=unallocated").text)
        assert "/gpus/G1" not in free
        assert browser.get("/gpus?state=asleep").status_code == 400


def test_lists_of_jobs_are_filtered_by_where_they_ran(books: Books, tokens: dict[str, str]) -> None:
    """A pool or an accelerator is a link with the count of its jobs, and keeps those alone."""
    bearer = {"authorization": f"Bearer {tokens['read']}"}
    with serve(books) as browser:
        text = browser.get("/jobs", headers=bearer).text
        for name in ("pool", "accelerator"):
            (link,) = [a for a in Elements(text).links() if f"{name}%3D" in a and MINE in a]
            kept = browser.get(link, headers=bearer).text
            assert f"/jobs/job-{MINE}" in kept
            assert f"/jobs/job-{THEIRS}" not in kept


def test_the_period_before_stands_beside_this_one(books: Books, tokens: dict[str, str]) -> None:
    """Dashed lines over time and a change of each group; of books that do not reach back it is said, another word is refused."""
    with serve(books) as client:
        client.headers["authorization"] = f"Bearer {tokens['read']}"
        over = client.get("/time?metric=paid_gpu_hours&last=2h&compare=before").text
        assert "Paid, the period before" in unescape(over)
        teams = unescape(client.get("/teams?last=2h&compare=before").text)
        assert "Against the period before" in teams
        assert "±0.0 %" in teams
        assert 'value="before" checked' in teams
        whole = unescape(client.get("/time?compare=before").text)
        assert "do not reach back" in whole
        assert client.get("/teams?compare=after").status_code == 400
