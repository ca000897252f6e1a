"""The guard admits nobody by name, address or page that it should not."""

from pathlib import Path

import pytest
from tests.interfaces.server.conftest import serve

from loadfactor.base.errors import InputError
from loadfactor.books.books import Books
from loadfactor.interfaces.server.guard import Bounds, Caller, Guard, RefusedError, check_binding
from loadfactor.store.tokens import NAME, TokenFile, create_token, revoke_token


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.0.0.7", "gpu-books.example"])
def test_other_addresses_need_a_check(tmp_path: Path, host: str) -> None:
    """Who listens beyond loopback needs a valid token or a trusted proxy; without TLS the token is warned of."""
    tokens = TokenFile(tmp_path)
    with pytest.raises(InputError, match="loadfactor token create"):
        check_binding(host, tokens, (), tls=False)
    assert check_binding(host, tokens, ("10.0.0.1",), tls=False) is None
    record, _ = create_token(tmp_path, "write", None, "", 1)
    assert "unencrypted" in (check_binding(host, tokens, (), tls=False) or "")
    assert check_binding(host, tokens, (), tls=True) is None
    revoke_token(tmp_path, record.id, 2)
    with pytest.raises(InputError):
        check_binding(host, tokens, (), tls=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.0.0.2"])
def test_loopback_needs_none(tmp_path: Path, host: str) -> None:
    """A server for this machine alone may be open."""
    assert check_binding(host, TokenFile(tmp_path), (), tls=False) is None


@pytest.mark.parametrize(
    ("caller", "status"),
    [
        (Caller("127.0.0.1", "127.0.0.1:8400"), None),
        (Caller("127.0.0.1", "LOCALHOST"), None),
        (Caller("::1", "[::1]:8400"), None),
        (Caller("127.0.0.1", "evil.example:8400"), 421),
        (Caller("127.0.0.1", "127.0.0.1.evil.example"), 421),
        (Caller("127.0.0.1", ""), 421),
        (Caller("127.0.0.1", "127.0.0.1", "POST", "https://evil.example"), 403),
        (Caller("127.0.0.1", "127.0.0.1", "POST", "null"), 403),
        (Caller("127.0.0.1", "127.0.0.1:1", "POST", "http://127.0.0.1:1"), None),
        (Caller("10.0.0.9", "127.0.0.1"), 403),
        (Caller("", "127.0.0.1"), 403),
    ],
)
def test_without_tokens_only_this_machine_may_ask(tmp_path: Path, caller: Caller, status: int | None) -> None:
    """A name that is not this machine's, a page of another site and another machine are refused."""
    guard = Guard(TokenFile(tmp_path))
    if status is None:
        assert guard.admit(caller, "fleet").right == "open"
    else:
        with pytest.raises(RefusedError) as refused:
            guard.admit(caller, "fleet")
        assert refused.value.status == status


def test_a_trusted_proxy_answers_for_who_asks(tmp_path: Path) -> None:
    """Requests of a trusted proxy are admitted under any name, and counted for the client it names."""
    guard = Guard(TokenFile(tmp_path), "0.0.0.0", ["10.0.0.0/8", "fd00::/8"])
    by_proxy = Caller("10.1.2.3", "books.example", forwarded_for="1.2.3.4, 5.6.7.8")
    assert guard.admit(by_proxy, "fleet").right == "open"
    assert guard.admit(Caller("::ffff:10.1.2.3", "books.example"), "write").right == "open"
    assert guard.client_of(by_proxy) == "5.6.7.8"
    other = Caller("11.1.2.3", "books.example", forwarded_for="10.0.0.1")
    assert guard.client_of(other) == "11.1.2.3"
    with pytest.raises(RefusedError):
        guard.admit(other, "fleet")
    with pytest.raises(InputError, match="is no address"):
        Guard(TokenFile(tmp_path), "0.0.0.0", ["proxy"])


def test_a_store_that_had_a_token_stays_closed(tmp_path: Path) -> None:
    """Revoking the last token does not open the server."""
    record, _ = create_token(tmp_path, "read", None, "", 1)
    revoke_token(tmp_path, record.id, 2)
    with pytest.raises(RefusedError) as refused:
        Guard(TokenFile(tmp_path)).admit(Caller("127.0.0.1", "127.0.0.1"), "read")
    assert refused.value.status == 401


def test_damaged_tokens_admit_nobody(empty: Books) -> None:
    """While the tokens cannot be read every question is refused, and health goes on."""
    empty.store.folder.mkdir(exist_ok=True)
    (empty.store.folder / NAME).write_text("{")
    with serve(empty) as client:
        assert client.get("/api/v1/readings").status_code == 503
        assert client.get("/health").status_code == 200


def test_a_client_that_asks_too_often_is_slowed_down(empty: Books) -> None:
    """Requests beyond the rate are refused with Retry-After, and health goes on."""
    with serve(empty, Bounds(burst=3, requests_per_s=0.001)) as client:
        answers = [client.get("/api/v1/metrics") for _ in range(5)]
        assert [a.status_code for a in answers] == [200, 200, 200, 429, 429]
        assert answers[-1].headers["retry-after"] == "2"
        assert client.get("/health").status_code == 200


def test_long_headers_are_refused(empty: Books) -> None:
    """Headers have a bound."""
    with serve(empty, Bounds(header_bytes=500)) as client:
        assert client.get("/api/v1/metrics", headers={"X-Long": "x" * 500}).status_code == 431
