"""Names that a server is called by, and pages that send: every endpoint, behind a trusted proxy and without."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.interfaces.server.conftest import LOCAL, Remembering

from loadfactor.base.errors import InputError
from loadfactor.books.books import Books
from loadfactor.interfaces.reach import RefusedError
from loadfactor.interfaces.server.app import NEEDS_OF_ALL, make_app
from loadfactor.interfaces.server.guard import Caller, Guard
from loadfactor.interfaces.server.sessions import ProxyUsers
from loadfactor.settings.config import read_settings
from loadfactor.store.tokens import NAME, TokenFile, create_token

ENDPOINTS = sorted({(method, re.sub(r"\{[^}]*\}", "a", path)) for method, path in NEEDS_OF_ALL} | {("GET", "/nowhere")})
USERS = ProxyUsers("X-User", "X-Groups", {"gpu": "everything"})
NAMED = {"X-User": "ana", "X-Groups": "gpu"}


@pytest.fixture
def folder(team_books: Books) -> Iterator[Path]:
    """The store, whose tokens go when the test is done."""
    yield team_books.store.folder
    (team_books.store.folder / NAME).unlink(missing_ok=True)


def open_client(books: Books, *proxies: str, users: ProxyUsers | None = None, host: str = "127.0.0.1") -> TestClient:
    guard = Guard(TokenFile(books.store.folder), host, proxies, users, allowed_hosts=["books.example", "[fd00::1]"])
    app = make_app(books, Remembering(), guard)
    return TestClient(app, LOCAL, raise_server_exceptions=False, client=("127.0.0.1", 5000), follow_redirects=False)


@pytest.mark.long
@pytest.mark.parametrize("proxies", [(), ("127.0.0.0/8",)])
@pytest.mark.parametrize("users", [None, USERS])
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_foreign_host_is_refused_at_every_endpoint(
    team_books: Books, proxies: tuple[str, ...], users: ProxyUsers | None, host: str
) -> None:
    """`Host: evil.example` gets 421 from each of them without a token, whatever headers name a user."""
    with open_client(team_books, *proxies, users=users, host=host) as client:
        for method, path in ENDPOINTS:
            for origin in ({}, {"Origin": "http://evil.example"}):
                answer = client.request(method, path, headers={"Host": "evil.example"} | origin | NAMED)
                assert (path, answer.status_code) == (path, 421)
                assert "allowed_hosts" in answer.text


@pytest.mark.long
@pytest.mark.parametrize("proxies", [(), ("127.0.0.0/8",)])
def test_a_foreign_origin_is_refused_at_every_endpoint(team_books: Books, proxies: tuple[str, ...]) -> None:
    """A page of http://evil.example that calls the server by its right name gets 403, but from /health."""
    with open_client(team_books, *proxies) as client:
        for method, path in ENDPOINTS:
            for origin in ("http://evil.example", "null", "http://127.0.0.1.evil.example"):
                answer = client.request(method, path, headers={"Origin": origin})
                assert (path, answer.status_code) == (path, 200 if path == "/health" else 403)


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        "localhost",
        "LOCALHOST:9417",
        "127.0.0.1:1",
        "127.9.9.9",
        "[::1]:9417",
        "books.example",
        "Books.Example.:80",
        "[fd00::1]:9417",
    ],
)
def test_its_own_names_are_answered(team_books: Books, name: str) -> None:
    """This machine's names with any port, and those that the settings allow."""
    with open_client(team_books, "127.0.0.0/8") as client:
        assert client.get("/api/v1/imports", headers={"Host": name}).status_code == 200


def test_the_address_that_a_connection_is_to_is_its_own(tmp_path: Path) -> None:
    """A server on 0.0.0.0 is called 10.0.0.5 by who connects to 10.0.0.5; 10.0.0.6 is another machine."""
    guard = Guard(TokenFile(tmp_path), "0.0.0.0", ["10.0.0.0/8"])
    guard.admit(Caller("10.0.0.9", "10.0.0.5:9417", own_address="10.0.0.5"), "fleet")
    with pytest.raises(RefusedError, match=r"not called '10\.0\.0\.6'"):
        guard.admit(Caller("10.0.0.9", "10.0.0.6:9417", own_address="10.0.0.5"), "fleet")


@pytest.mark.parametrize(
    ("forwarded", "status"), [("books.example", 200), ("evil.example", 421), ("books.example, evil.example", 421)]
)
def test_the_forwarded_host_of_a_trusted_proxy_counts(team_books: Books, forwarded: str, status: int) -> None:
    """A proxy that calls the server 127.0.0.1 says in X-Forwarded-Host what it was called."""
    headers = {"X-Forwarded-Host": forwarded}
    with open_client(team_books, "127.0.0.0/8") as client:
        assert client.get("/api/v1/imports", headers=headers).status_code == status
        origin = {"Origin": f"https://{forwarded}"}
        body = {"rule": "job_became_idle", "for": "1h", "reason": "r", "who": "w"}
        assert client.post("/api/v1/silences", json=body, headers=headers | origin).status_code in (status, status + 1)
    with open_client(team_books) as client:  # who is no trusted proxy forwards nothing
        assert client.get("/api/v1/imports", headers=headers).status_code == 200


def test_a_forwarded_host_does_not_hide_a_foreign_one(team_books: Books) -> None:
    """A page sets headers: `X-Forwarded-Host: localhost` next to `Host: evil.example` is refused."""
    with open_client(team_books, "127.0.0.0/8") as client:
        headers = {"Host": "evil.example", "X-Forwarded-Host": "localhost"}
        assert client.get("/api/v1/imports", headers=headers).status_code == 421


def test_with_tokens_any_name_will_do_for_who_sends_one(team_books: Books, folder: Path) -> None:
    """Prometheus sends to loadfactor.monitoring.svc with its token; a page of another site has none, and is sent to sign in."""
    _, token = create_token(folder, "everything", None, "", 1)
    bearer = {"Authorization": f"Bearer {token}"}
    with open_client(team_books, host="0.0.0.0") as client:
        foreign = {"Host": "loadfactor.monitoring.svc:9417"}
        assert client.get("/api/v1/imports", headers=foreign | bearer).status_code == 200
        assert client.get("/api/v1/imports", headers=foreign).status_code == 401
        assert client.get("/health", headers=foreign).status_code == 200
        evil = {"Origin": "http://evil.example"}
        assert client.get("/api/v1/imports", headers=foreign | bearer | evil).status_code == 200
        assert client.post("/api/v1/write", headers=foreign | bearer | evil).status_code == 403
    with open_client(team_books, "127.0.0.0/8", users=USERS, host="0.0.0.0") as client:
        assert client.get("/api/v1/imports", headers=foreign | bearer).status_code == 200
        assert client.get("/api/v1/imports", headers=foreign | NAMED).status_code == 421
        assert client.get("/api/v1/imports", headers={"Host": "books.example"} | NAMED).status_code == 200


def test_health_answers_to_any_address_and_to_no_foreign_name(team_books: Books) -> None:
    """A kubelet probes a pod by its address, 10.42.0.7; a name that is not ours may be one of another site."""
    with open_client(team_books, host="0.0.0.0") as client:
        assert client.get("/health", headers={"Host": "10.42.0.7:9417"}).status_code == 200
        assert client.get("/metrics", headers={"Host": "10.42.0.7:9417"}).status_code == 421
        assert client.get("/health", headers={"Host": "evil.example"}).status_code == 421


def test_new_settings_are_taken_while_it_runs(tmp_path: Path) -> None:
    """A reload adds and removes names."""
    guard = Guard(TokenFile(tmp_path), "127.0.0.1")
    caller = Caller("127.0.0.1", "books.example")
    with pytest.raises(RefusedError):
        guard.admit(caller, "fleet")
    guard.take((), None, ["books.example"])
    assert guard.admit(caller, "fleet").right == "open"
    guard.take((), None, ())
    with pytest.raises(RefusedError):
        guard.admit(caller, "fleet")


@pytest.mark.parametrize("name", ["https://books.example", "books.example:9417", "books.example/a", "", "*"])
def test_a_setting_that_is_no_name_is_refused(tmp_path: Path, name: str) -> None:
    """Names have neither scheme nor port."""
    (tmp_path / "loadfactor.toml").write_text(f'[server]\nallowed_hosts = ["{name}"]\n')
    with pytest.raises(InputError, match="allowed_hosts"):
        read_settings(tmp_path / "loadfactor.toml")


def test_the_shipped_compose_file_names_its_host() -> None:
    """Prometheus asks `loadfactor:9417` for /metrics: the name is allowed."""
    settings = read_settings(Path("packaging/compose/loadfactor.toml"))
    assert settings.server.allowed_hosts == ("loadfactor",)
    assert '"loadfactor:9417"' in Path("packaging/compose/prometheus.yml").read_text()
