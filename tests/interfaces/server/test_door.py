"""People who ask with a browser: sessions, users that a proxy names, and forms."""

from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import urlencode

import pytest
from starlette.testclient import TestClient
from tests.interfaces.server.conftest import LOCAL, MINE, Remembering

from loadfactor.base.errors import StoreError
from loadfactor.books.books import Books
from loadfactor.interfaces.reach import RefusedError
from loadfactor.interfaces.server.app import make_app
from loadfactor.interfaces.server.guard import SECURE_COOKIE, Bounds, Caller, Guard
from loadfactor.interfaces.server.run import AtRest
from loadfactor.interfaces.server.sessions import LONGEST_SESSION_S, ProxyUsers
from loadfactor.store.tokens import NAME, TokenFile, create_token, revoke_token

FORM = {"content-type": "application/x-www-form-urlencoded"}
BROWSER = {"accept": "text/html,application/xhtml+xml"}
USERS = ProxyUsers("X-User", "X-Groups", {"gpu": "everything", "finance": "read", MINE: f"team:{MINE}"})
PROXY = "10.0.0.1"


@pytest.fixture
def folder(team_books: Books) -> Iterator[Path]:
    """The store, whose tokens go when the test is done."""
    yield team_books.store.folder
    (team_books.store.folder / NAME).unlink(missing_ok=True)


def open_browser(
    books: Books, base: str = LOCAL, client: str = "127.0.0.1", bounds: Bounds | None = None, **about: object
) -> TestClient:
    """A browser at another address that keeps its cookies and follows nothing."""
    guard = Guard(
        TokenFile(books.store.folder),
        "0.0.0.0",
        [PROXY],
        allowed_hosts=["books.example"],
        **about,  # type: ignore[arg-type]
    )
    app = make_app(books, Remembering(), guard, bounds)
    return TestClient(app, base, headers=BROWSER, client=(client, 50_000), follow_redirects=False)


def sign_in(browser: TestClient, token: str, place: str = "", **headers: str) -> int:
    """Send the form; the status."""
    origin = {"origin": str(browser.base_url).rstrip("/")}
    fields = urlencode({"token": token, "next": place})
    return browser.post("/login", content=fields, headers=FORM | origin | headers).status_code


def test_a_token_begins_a_session_and_its_end_ends_it(team_books: Books, folder: Path) -> None:
    """The cookie reads what its token reads, writes nothing by itself, and ends when the token is revoked."""
    record, token = create_token(folder, "read", None, "", 1)
    browser = open_browser(team_books)
    asked = browser.get("/somewhere?last=7d&x=1")
    assert (asked.status_code, asked.headers["location"]) == (303, "/login?next=%2Fsomewhere%3Flast%3D7d%26x%3D1")
    assert browser.get("/somewhere", headers={"accept": "application/json"}).status_code == 401

    origin = {"origin": LOCAL}
    done = browser.post("/login", content=urlencode({"token": token, "next": "/x?y=1"}), headers=FORM | origin)
    assert (done.status_code, done.headers["location"]) == (303, "/x?y=1")
    assert done.headers["set-cookie"].endswith("; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict")
    assert token not in done.headers["set-cookie"]
    assert browser.get("/api/v1/imports").status_code == 200
    silence = {"rule": "idle", "for": "1h"}
    assert browser.post("/api/v1/silences", json=silence, headers=origin).status_code == 403

    revoke_token(folder, record.id, 2)
    assert browser.get("/api/v1/imports").status_code == 401


def test_signing_out_ends_the_session(team_books: Books, folder: Path) -> None:
    """Only with the key of its own form; the cookie is worth nothing then, wherever it was copied to."""
    _, token = create_token(folder, "read-team", MINE, "", 1)
    browser = open_browser(team_books)
    assert sign_in(browser, token) == 303
    cookie = dict(browser.cookies)
    (secret,) = cookie.values()
    origin = {"origin": LOCAL}
    assert browser.post("/logout", content="form_key=0", headers=FORM | origin).status_code == 403
    key = browser.app._guard.sessions.sign(secret)  # type: ignore[attr-defined]
    assert browser.post("/logout", content=f"form_key={key}", headers=FORM).status_code == 403  # without an origin
    left = browser.post("/logout", content=f"form_key={key}", headers=FORM | origin)
    assert (left.status_code, left.headers["location"]) == (303, "/login")
    assert browser.get("/api/v1/readings", cookies=cookie).status_code == 401


@pytest.mark.long
@pytest.mark.parametrize(
    ("base", "client", "headers", "cookie"),
    [
        (LOCAL, "127.0.0.1", {}, "loadfactor"),
        ("https://books.example", "10.0.0.9", {}, SECURE_COOKIE),
        ("http://books.example", PROXY, {"x-forwarded-proto": "https"}, SECURE_COOKIE),
        ("http://books.example", PROXY, {"x-forwarded-proto": "http"}, None),
        ("http://books.example", "10.0.0.9", {"x-forwarded-proto": "https"}, None),
        ("http://127.0.0.1", "10.0.0.9", {}, None),
    ],
)
def test_a_token_is_taken_where_nobody_else_can_read_it(
    team_books: Books, folder: Path, base: str, client: str, headers: dict[str, str], cookie: str | None
) -> None:
    """Over TLS, behind a trusted proxy that says https, or on this machine; a header of anybody else says nothing."""
    _, token = create_token(folder, "read", None, "", 1)
    browser = open_browser(team_books, base, client)
    form = browser.get("/login", headers=headers)
    assert sign_in(browser, token, **headers) == (403 if cookie is None else 303)
    assert form.status_code == (403 if cookie is None else 200)
    assert "default-src 'none'" in form.headers["content-security-policy"]
    if cookie is None:
        assert "signing in needs TLS" in unescape(form.text)
    else:
        assert cookie in browser.cookies


def test_what_is_no_token_that_reads_is_refused(team_books: Books, folder: Path) -> None:
    """A token that sends reads no page; a form of another site signs nobody in; too many tries are slowed down."""
    _, token = create_token(folder, "write", None, "", 1)
    browser = open_browser(team_books, bounds=Bounds(sign_in_burst=4, sign_ins_per_s=0.001))
    assert sign_in(browser, token) == 403
    assert sign_in(browser, "lf_no") == 401
    assert sign_in(browser, "lf_no", origin="https://evil.example") == 403
    assert browser.post("/login", content="token=lf_no", headers=FORM).status_code == 403
    assert sign_in(browser, "lf_no") == 429
    assert not browser.cookies


def test_a_session_is_bounded(tmp_path: Path) -> None:
    """After `LONGEST_SESSION_S` it admits nobody."""
    now = [0.0]
    guard = Guard(TokenFile(tmp_path), clock_s=lambda: now[0])
    record, _ = create_token(tmp_path, "read", None, "", 1)
    caller = Caller("127.0.0.1", "127.0.0.1", cookie=f"loadfactor={guard.sessions.begin(record)}")
    assert guard.admit(caller, "fleet").token == record.id
    now[0] = LONGEST_SESSION_S
    with pytest.raises(RefusedError, match="a token is needed"):
        guard.admit(caller, "fleet")


@pytest.mark.long
@pytest.mark.parametrize(
    ("peer", "headers", "path", "status"),
    [
        (PROXY, {"X-User": "ana", "X-Groups": "staff,gpu"}, "/api/v1/imports", 200),
        (PROXY, {"X-User": "ana", "X-Groups": "finance"}, "/api/v1/imports", 200),
        (PROXY, {"X-User": "ana", "X-Groups": MINE}, "/api/v1/readings", 200),
        (PROXY, {"X-User": "ana", "X-Groups": MINE}, "/api/v1/imports", 403),
        (PROXY, {"X-User": "ana", "X-Groups": "staff"}, "/api/v1/readings", 403),
        (PROXY, {"X-User": "ana"}, "/api/v1/readings", 403),
        (PROXY, {}, "/api/v1/readings", 401),
        (PROXY, {"X-User": ""}, "/api/v1/readings", 401),
        ("10.0.0.9", {"X-User": "ana", "X-Groups": "gpu"}, "/api/v1/readings", 403),
        ("127.0.0.1", {"X-User": "ana", "X-Groups": MINE}, "/api/v1/imports", 200),
    ],
)
def test_a_proxy_names_who_asks(team_books: Books, peer: str, headers: dict[str, str], path: str, status: int) -> None:
    """Groups have the roles that the configuration gives them; who is no trusted proxy names nobody."""
    browser = open_browser(team_books, "http://books.example", peer, users=USERS)
    assert browser.get(path, headers=headers).status_code == status


def test_a_proxy_that_names_nobody_opens_no_page(team_books: Books) -> None:
    """Programs behind it ask as before; what a browser opens needs to know who asks."""
    browser = open_browser(team_books, "http://books.example", PROXY)
    assert browser.get("/api/v1/readings").status_code == 200
    refused = browser.get("/somewhere")
    assert refused.status_code == 403
    assert "name its user_header" in refused.text


def test_two_users_are_none(team_books: Books) -> None:
    """A header that a client slipped past the proxy."""
    browser = open_browser(team_books, "http://books.example", PROXY, users=USERS)
    both = [("x-user", "ana"), ("x-user", "bob"), ("x-groups", "gpu")]
    assert browser.get("/api/v1/readings", headers=both).status_code == 400  # type: ignore[arg-type]


def test_pages_and_their_files_say_how_long_they_are_kept(team_books: Books) -> None:
    """A file has its content in its name, so it is kept for good; a page is asked for anew."""
    browser = open_browser(team_books)
    form = browser.get("/login")
    (first, *_rest) = [part.partition('"')[0] for part in form.text.split('href="/static/')[1:]]
    style = browser.get(f"/static/{first}")
    assert style.status_code == 200
    assert style.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert form.headers["cache-control"] == "private, no-cache"
    assert browser.get("/static/..%2f..%2fguard.py").status_code == 404


def test_books_at_rest_are_read_alone(team_books: Books, folder: Path) -> None:
    """Nothing writes to them, on the server's own machine or with a token; pages and endpoints read."""
    guard = Guard(TokenFile(folder), is_read_only=True)
    client = TestClient(make_app(team_books, AtRest(), guard, is_live=False), LOCAL, client=("127.0.0.1", 5000))
    assert client.get("/").status_code == 200
    assert "Silence" not in client.get("/alerts").text
    _, token = create_token(folder, "write", None, "", 1)
    for path in ("/api/v1/write", "/api/v1/imports?source=tables&filename=devices.csv", "/api/v1/silences"):
        refused = client.post(path, content=b"x", headers={"authorization": f"Bearer {token}"})
        assert (refused.status_code, "at rest" in refused.text) == (403, True), path


def test_a_full_disk_keeps_nobody_from_signing_in(
    team_books: Books, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line that `audit.log` does not take stands in the log of the server, and the session begins."""

    def refuse(*_args: object, **_facts: object) -> None:
        raise StoreError("audit.log cannot be written (No space left on device)")

    monkeypatch.setattr("loadfactor.interfaces.server.door.append_audit", refuse)
    record, token = create_token(folder, "read", None, "", 1)
    browser = open_browser(team_books)
    assert sign_in(browser, token) == 303
    line = next(line for line in capsys.readouterr().err.splitlines() if "sign in" in line)
    assert record.id in line
    assert "No space left" in line
