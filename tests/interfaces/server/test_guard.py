"""The guard: names, addresses and pages it refuses, tokens of every kind, and clients that are slow or too many."""

import asyncio
import gzip
import io
import json
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus, urlencode

import pyarrow as pa
import pytest
from starlette.testclient import TestClient
from tests.interfaces.server.conftest import MINE, THEIRS, Remembering, serve
from tests.long import rest_long

from loadfactor.base.errors import BusyError, InputError
from loadfactor.books.books import Books
from loadfactor.interfaces.reach import RefusedError
from loadfactor.interfaces.server.app import NEEDS, make_app
from loadfactor.interfaces.server.endpoints import DIAGNOSIS, SAVINGS
from loadfactor.interfaces.server.gate import Gate
from loadfactor.interfaces.server.guard import GRANTS, Bounds, Caller, Guard, check_binding
from loadfactor.interfaces.server.question_pool import QuestionPool
from loadfactor.store.tokens import NAME, TokenFile, create_token, revoke_token
from loadfactor.tables.schema import DIMENSIONS


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
    """Requests of a trusted proxy are admitted under the names that the settings allow, and counted for the client it names."""
    guard = Guard(TokenFile(tmp_path), "0.0.0.0", ["10.0.0.0/8", "fd00::/8"], allowed_hosts=["books.example"])
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


TEAM_COST = 2 * 4 * 7919.0
"""What the other team's GPUs cost."""
SECRETS = (THEIRS, "7919", f"{TEAM_COST:.0f}", "0.7654", "76543")
"""What nobody but THEIRS may read: their names (every name of theirs holds the team's), prices, amounts and shares."""
CHOSEN = ("device", "node", "accelerator", "pool", "job", "experiment", "user", "team", "project", "purpose")
NAMED = {name: f"{name}-{{}}" for name in CHOSEN} | {"device": "GPU-{}-0", "accelerator": "H100-{}", "team": "{}"}


@dataclass(frozen=True)
class Token:
    """A kind of token, and the secret."""

    right: str
    secret: str | None


@pytest.fixture(scope="module")
def tokens(team_books: Books) -> Iterator[dict[str, str | None]]:
    """A token of every kind, one that was revoked, one that never was, and none; gone afterwards."""
    folder = team_books.store.folder
    made = {right: create_token(folder, right, None, "", 1)[1] for right in ("read", "write")}  # type: ignore[arg-type]
    made["read-team"] = create_token(folder, "read-team", MINE, "", 1)[1]
    made["nobody's team"] = create_token(folder, "read-team", "nobody", "", 1)[1]
    record, revoked = create_token(folder, "read", None, "", 1)
    revoke_token(folder, record.id, 2)
    yield made | {"revoked": revoked, "wrong": "lf_wrong", "none": None}
    with suppress(FileNotFoundError):
        (folder / "tokens.json").unlink()


@pytest.fixture(scope="module")
def guarded(team_books: Books, tokens: dict[str, str | None]) -> Iterator[TestClient]:
    """A client of a server that asks for tokens."""
    assert tokens
    with serve(team_books) as client:
        yield client


def ask(client: TestClient, method: str, path: str, token: str | None) -> tuple[int, str]:
    """The status of an answer, and all it says: headers, and the content unpacked."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    answer = client.request(method, path, headers=headers, content=b"good" if method == "POST" else None)
    content = answer.content
    if answer.headers.get("content-type", "").startswith("application/vnd.apache.arrow"):
        content = str(pa.ipc.open_stream(io.BytesIO(content)).read_all().to_pylist()).encode()
    if content.startswith(b"\x1f\x8b"):
        content = gzip.decompress(content)
    drawn = ("x-request-id", "etag", "content-length")  # at random, and a length
    return answer.status_code, content.decode(errors="replace") + str(
        {k: v for k, v in answer.headers.items() if k not in drawn}
    )


@pytest.mark.long
@pytest.mark.parametrize("right", ["read", "write", "read-team", "nobody's team", "revoked", "wrong", "none"])
def test_every_endpoint_asks_for_its_token(guarded: TestClient, tokens: dict[str, str | None], right: str) -> None:
    """An endpoint admits the tokens that grant what it needs: 401 without one, 403 with another one."""
    for (method, path), need in NEEDS.items():
        if (method, path) == ("POST", "/api/v1/imports"):
            path += "?source=tables&filename=devices.csv"  # of no device table: refused as a file, once admitted
        status, said = ask(guarded, method, path, tokens[right])
        kind = "read-team" if right == "nobody's team" else right
        if need == "nothing" or need in GRANTS.get(kind, ()):
            assert status not in (401, 403), (method, path, said)
        else:
            assert status == (403 if kind in GRANTS else 401), (method, path, said)
            assert THEIRS not in said
            assert MINE not in said


def list_questions() -> Iterator[str]:
    """Questions of every endpoint: every dimension to split by, every name to choose, every form, pages, and mistakes."""
    forms = [{"format": form} for form in ("json", "csv", "arrow")]
    splits = [{"by": name} for name in DIMENSIONS] + [{"by": "team,job"}, {"by": "device,user"}, {}]
    chosen = [
        {"where": f"{name}={NAMED[name].format(of)}"} for name, of in product(CHOSEN, (MINE, THEIRS, THEIRS[:-1]))
    ]
    chosen += [
        {"where": f"job=waiting-{THEIRS}"},
        {"where": f"team={MINE},user=user-{THEIRS}"},
        {"where": "team=unknown holder"},
    ]
    chosen += [{"where": f"team={MINE},team={THEIRS}"}, {"where": f"team={THEIRS},team={MINE}"}]
    for path in (path for method, path in NEEDS if method == "GET"):
        yield path
        if path in (DIAGNOSIS, SAVINGS):  # which take a second each, and these alone
            asked = (
                {"job": f"job-{THEIRS}"},
                {"job": f"waiting-{THEIRS}"},
                {"team": THEIRS},
                {"team": THEIRS[:-1]},
                {"by": "team"},
            )
            yield from (f"{path}?{urlencode(choice)}" for choice in asked)
            continue
        yield from (f"{path}?{urlencode(form)}" for form in forms)
        yield from (f"{path}?{urlencode(choice)}" for choice in chosen)
        if path in ("/api/v1/readings", "/api/v1/coverage"):
            yield from (f"{path}?{urlencode(split)}" for split in splits)
            yield from (f"{path}?{urlencode({'by': 'team', **choice})}" for choice in chosen[:6])
        yield f"{path}?metric=cost_per_{THEIRS[:-1]}x"
        yield f"{path}?limit=1&offset=1"
        yield f"{path}/{THEIRS[:-1]}"


def leave_echoes_out(question: str, said: str) -> str:
    """What was said, without the names that the question itself held: repeating those tells nobody anything."""
    for name in re.findall(rf"[\w-]*(?:{THEIRS}|{MINE})[\w-]*", unquote_plus(question)):
        said = said.replace(f"'{name}'", "''")
    return said


@pytest.mark.long
@pytest.mark.parametrize("right", rest_long(["nobody's team", "read-team"]))
def test_a_teams_token_says_nothing_of_another_team(
    guarded: TestClient, tokens: dict[str, str | None], right: str
) -> None:
    """No answer, refusal or header holds a name, a job or an amount of another team."""
    told = 0
    for question in list_questions():
        status, said = ask(guarded, "GET", question, tokens[right])
        assert status < 500, (question, said)
        said = leave_echoes_out(question, said)
        assert not [secret for secret in SECRETS if secret in said], (question, said)
        assert right == "read-team" or MINE not in said, (question, said)
        told += MINE in said
    assert bool(told) == (right == "read-team")


@pytest.mark.long
def test_the_same_questions_are_answered_to_a_token_that_reads_everything(
    guarded: TestClient, tokens: dict[str, str | None]
) -> None:
    """The matrix asks what would tell: with the right token the other team's names and costs are there."""
    said = "".join(
        ask(guarded, "GET", question, tokens["read"])[1] for question in list_questions() if "where" not in question
    )
    assert all(secret in said for secret in (THEIRS, str(TEAM_COST)))


@pytest.mark.long
def test_a_teams_numbers_are_those_of_the_whole(guarded: TestClient, tokens: dict[str, str | None]) -> None:
    """What a team reads of itself is its row in the split that everything's token reads."""
    path = "/api/v1/readings?by=team"
    of_all, of_team = (
        guarded.get(path, headers={"Authorization": f"Bearer {tokens[right]}"}).json()["readings"]
        for right in ("read", "read-team")
    )
    assert of_team == [reading for reading in of_all if reading["by"]["team"] == MINE]


@pytest.mark.long
def test_a_name_of_another_team_is_as_unknown_as_one_of_nobody(
    guarded: TestClient, tokens: dict[str, str | None]
) -> None:
    """A token of one team cannot find out by asking whether another team's job, user or GPU exists."""
    for path, dimension in product(("readings", "coverage", "jobs"), CHOSEN):
        name = NAMED[dimension].format(THEIRS)
        there, nowhere = (
            ask(guarded, "GET", f"/api/v1/{path}?{urlencode({'where': f'{dimension}={asked}'})}", tokens["read-team"])
            for asked in (name, name[:-1] + "x")
        )
        assert there[0] == nowhere[0] != 200
        errors = [said.partition("}")[0] for _, said in (there, nowhere)]
        assert errors[0].replace(name, "") == errors[1].replace(name[:-1] + "x", "")


HEADERS = [(b"host", b"localhost"), (b"content-encoding", b"snappy")]


def make(books: Books, bounds: Bounds) -> tuple[Gate, Remembering]:
    """A server, and its receiver."""
    receiver = Remembering()
    return make_app(books, receiver, Guard(TokenFile(books.store.folder)), bounds), receiver


async def send_write(
    app: Gate, pieces: list[dict[str, Any]], client: str = "127.0.0.1", path: str = "/api/v1/write"
) -> tuple[int, str]:
    """Send a body in these pieces, then nothing more: the status and the content of the answer."""
    sent: list[dict[str, Any]] = []
    left = iter(pieces)

    async def receive() -> dict[str, Any]:
        for piece in left:
            return piece
        await asyncio.sleep(3600)
        return {}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": "POST", "path": path, "query_string": b"source=tables&filename=a.csv",
        "headers": HEADERS if path == "/api/v1/write" else HEADERS[:1],
        "client": (client, 1), "server": ("127.0.0.1", 1), "scheme": "http", "root_path": "",
    }  # fmt: skip
    await app(scope, receive, send)
    return sent[0]["status"], b"".join(m.get("body", b"") for m in sent[1:]).decode()


def test_a_body_that_does_not_come_is_given_up(empty: Books) -> None:
    """A client that stops in the middle of its body is refused when its time is over, and nothing is received."""
    app, receiver = make(empty, Bounds(write_s=0.05))
    status, said = asyncio.run(send_write(app, [{"type": "http.request", "body": b"ha", "more_body": True}]))
    assert (status, list(json.loads(said)), receiver.bodies) == (408, ["error"], [])


def test_a_body_that_breaks_off_is_not_received(empty: Books) -> None:
    """A client that leaves in the middle of its body leaves nothing behind."""
    app, receiver = make(empty, Bounds())
    left = [{"type": "http.request", "body": b"ha", "more_body": True}, {"type": "http.disconnect"}]
    asyncio.run(send_write(app, left))
    assert receiver.bodies == []


def part_of(size: int) -> list[dict[str, Any]]:
    """So many bytes of a body that is not whole."""
    return [{"type": "http.request", "body": b"x" * size, "more_body": True}]


@pytest.mark.parametrize(
    ("bounds", "statuses"),
    [
        (
            Bounds(write_s=0.2, bodies_of_token=2),
            [408, 408, 429, 204, 204],
        ),  # two of one client; another one has its own
        (Bounds(write_s=0.2, bodies=2), [408, 408, 429, 429, 204]),
        (Bounds(write_s=0.2, held_bytes_of_token=250), [408, 408, 429, 204, 204]),
        (Bounds(write_s=0.2, held_bytes=250), [408, 408, 429, 204, 204]),  # what is refused lies there no more
    ],
)
def test_slow_bodies_hold_up_nobody_else(empty: Books, bounds: Bounds, statuses: list[int]) -> None:
    """Bodies of one client that do not come are bounded in number and bytes: others' are taken, and when theirs are over, too."""

    async def send() -> list[int]:
        app, _ = make(empty, bounds)
        slow = [asyncio.create_task(send_write(app, part_of(100))) for _ in range(3)]
        await slow[2]  # refused at once
        whole: list[dict[str, Any]] = [{"type": "http.request", "body": b"x"}]
        other = await send_write(app, whole, "::1")
        return [(await task)[0] for task in slow] + [other[0], (await send_write(app, whole))[0]]

    assert asyncio.run(send()) == statuses


def test_a_file_that_drips_is_given_up(empty: Books) -> None:
    """A file has an hour to come, but not a byte a second."""
    app, _ = make(empty, Bounds(write_s=0.1))
    status, said = asyncio.run(send_write(app, part_of(1), path="/api/v1/imports"))
    assert (status, "16,384 bytes a second" in said) == (408, True)


def test_more_requests_at_once_than_may_are_refused(empty: Books) -> None:
    """Beyond the bound of requests at once the next one is told to come back."""

    async def both() -> tuple[int, int]:
        app, _ = make(empty, Bounds(in_flight=1, write_s=0.2))
        first = asyncio.create_task(send_write(app, []))
        await asyncio.sleep(0.05)
        second, _ = await send_write(app, [])
        return (await first)[0], second

    assert asyncio.run(both()) == (408, 429)


def test_more_questions_than_may_wait_are_refused() -> None:
    """Questions beyond those worked on and waiting are refused at once; when one is done, the next is taken."""

    async def ask() -> list[object]:
        pool, go = QuestionPool(1, 1, 2), threading.Event()
        asked = [asyncio.create_task(pool.ask(go.wait)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await pool.ask(lambda: True)
        go.set()
        answers = [await each for each in asked]
        await asyncio.sleep(0)
        return [*answers, await pool.ask(lambda: "next")]

    assert asyncio.run(ask()) == [True, True, "next"]


@pytest.mark.parametrize("right", ["write", "everything"])
def test_books_at_rest_are_read_by_tokens_that_read(tmp_path: Path, right: str) -> None:
    """One that only sends reads nothing there, either; one of everything reads, and nobody writes."""
    _, token = create_token(tmp_path, right, None, "", 1)  # type: ignore[arg-type]
    guard = Guard(TokenFile(tmp_path), is_read_only=True)
    caller = Caller("127.0.0.1", "127.0.0.1", authorization=f"Bearer {token}")
    with pytest.raises(RefusedError, match="at rest"):
        guard.admit(caller, "write")
    if right == "write":
        with pytest.raises(RefusedError, match="a token that reads"):
            guard.admit(caller, "read")
    else:
        access = guard.admit(caller, "fleet")
        assert [access.grants(need) for need in ("read", "fleet", "save", "write")] == [True, True, False, False]
