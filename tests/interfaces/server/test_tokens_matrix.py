"""Every endpoint × every kind of token × the data of two teams: a team's token says nothing of another team."""

import gzip
import io
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from urllib.parse import unquote_plus, urlencode

import pyarrow as pa
import pytest
from starlette.testclient import TestClient
from tests.interfaces.server.conftest import MINE, THEIRS, serve

from loadfactor.books.books import Books
from loadfactor.interfaces.server.app import NEEDS
from loadfactor.interfaces.server.endpoints import DIAGNOSIS, SAVINGS
from loadfactor.interfaces.server.guard import GRANTS
from loadfactor.store.tokens import create_token, revoke_token
from loadfactor.tables.schema import DIMENSIONS

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
    return answer.status_code, content.decode() + str({k: v for k, v in answer.headers.items() if k not in drawn})


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


@pytest.mark.parametrize("right", ["read-team", "nobody's team"])
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


def test_the_same_questions_are_answered_to_a_token_that_reads_everything(
    guarded: TestClient, tokens: dict[str, str | None]
) -> None:
    """The matrix asks what would tell: with the right token the other team's names and costs are there."""
    said = "".join(
        ask(guarded, "GET", question, tokens["read"])[1] for question in list_questions() if "where" not in question
    )
    assert all(secret in said for secret in (THEIRS, str(TEAM_COST)))


def test_a_teams_numbers_are_those_of_the_whole(guarded: TestClient, tokens: dict[str, str | None]) -> None:
    """What a team reads of itself is its row in the split that everything's token reads."""
    path = "/api/v1/readings?by=team"
    of_all, of_team = (
        guarded.get(path, headers={"Authorization": f"Bearer {tokens[right]}"}).json()["readings"]
        for right in ("read", "read-team")
    )
    assert of_team == [reading for reading in of_all if reading["by"]["team"] == MINE]


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
