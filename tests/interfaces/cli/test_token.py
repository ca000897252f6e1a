"""`loadfactor token`: created once, listed without the secret, revoked, each with a line in the audit log."""

import json
from pathlib import Path

import pytest
from tests.commands import Run, make_run


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a token command on books of its own."""
    run_command = make_run(capsys, monkeypatch, "--store", tmp_path / "books")
    return lambda *words: run_command("token", *words)


def test_a_token_is_created_listed_and_revoked(run: Run, tmp_path: Path) -> None:
    """The token is in the answer of `create` alone; the list has its id and what it may do."""
    code, out, _ = run("create", "--read-team", "vision", "--name", "dashboard", "--format", "json")
    made = json.loads(out)
    assert (code, made["right"], made["team"], made["name"]) == (0, "read-team", "vision", "dashboard")
    code, shown, _ = run("create", "--write")
    assert "lf_" in shown
    code, out, _ = run("list", "--format", "json")
    listed = json.loads(out)["tokens"]
    assert [token["right"] for token in listed] == ["read-team", "write"]
    assert made["token"] not in out + (tmp_path / "books" / "audit.log").read_text()
    assert run("revoke", made["id"])[0] == 0
    assert json.loads(run("list", "--format", "json")[1])["tokens"][0]["revoked"]
    actions = [json.loads(line)["action"] for line in (tmp_path / "books" / "audit.log").read_text().splitlines()]
    assert actions == ["token create", "token create", "token revoke"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("create",), "give one of --write, --read and --read-team NAME"),
        (("create", "--read", "--write"), "a token does one thing"),
        (("create", "--read-team", "unknown holder"), "is no team"),
        (("revoke", "cafe"), "no token 'cafe'"),
    ],
)
def test_what_cannot_be_is_one_line(run: Run, words: tuple[str, ...], said: str) -> None:
    """A mistake is one line and exit code 2."""
    code, _, err = run(*words)
    assert code == 2
    assert said in err
    assert err.count("\n") == 1
