"""Tokens are kept hashed, by any number of processes at once; the store's own cleanup leaves them alone."""

import json
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from loadfactor.base.errors import DamageError, InputError
from loadfactor.books.books import Books
from loadfactor.store.disk import append_audit
from loadfactor.store.tokens import LOCK, NAME, TokenFile, create_token, read_tokens, revoke_token


def test_a_token_is_kept_as_a_hash(tmp_path: Path) -> None:
    """The file says nothing of the token, and only its owner reads it."""
    record, token = create_token(tmp_path / "new" / "books", "read", None, "grafana", 1)
    path = tmp_path / "new" / "books" / NAME
    assert token.startswith("lf_")
    assert len(token) == len("lf_") + 43
    assert token[3:] not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert {p.name for p in path.parent.iterdir()} == {NAME, LOCK}
    assert read_tokens(path.parent) == (record,)


def test_a_running_server_sees_tokens_come_and_go(tmp_path: Path) -> None:
    """A token admits from the moment it is made until it is revoked; a wrong one never does."""
    file = TokenFile(tmp_path)
    assert file.list() == ()
    record, token = create_token(tmp_path, "read-team", "vision", "", 1)
    assert file.find(token) == record
    assert file.find(token + "x") is None
    assert file.find("") is None
    revoke_token(tmp_path, record.id, 2)
    assert file.find(token) is None
    assert [r.revoked_ms for r in file.list()] == [2]
    assert revoke_token(tmp_path, record.id, 3).revoked_ms == 2
    with pytest.raises(InputError, match="no token 'x'"):
        revoke_token(tmp_path, "x", 3)


def test_tokens_made_at_once_are_all_kept(tmp_path: Path) -> None:
    """Two who create tokens at the same time lose none."""
    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(lambda n: create_token(tmp_path, "read", None, str(n), n), range(20)))
    assert {record.id for record in read_tokens(tmp_path)} == {record.id for record, _ in made}


@pytest.mark.parametrize("text", ["", "{}", '{"format": 1, "tokens": [{}]}', '{"format": 1, "tokens": [1]}', "[]"])
def test_a_damaged_file_admits_nobody(tmp_path: Path, text: str) -> None:
    """A file that is not what was written is damage, not a store without tokens."""
    (tmp_path / NAME).write_text(text)
    with pytest.raises(DamageError):
        TokenFile(tmp_path).find("lf_x")


def test_the_stores_cleanup_leaves_tokens_and_audit_alone(tmp_path: Path) -> None:
    """Writing to a store keeps the tokens and the audit log, and removes only a token file half written."""
    record, _ = create_token(tmp_path, "write", None, "", 1)
    append_audit(tmp_path, "token create", id=record.id)
    books = Books(tmp_path)
    (tmp_path / "prices.csv").write_text("basis,price_per_gpu_hour,currency\nlist,2,USD\n")
    books.add("prices", [tmp_path / "prices.csv"])
    books.compact()
    books.forget(1)
    assert read_tokens(tmp_path) == (record,)
    lines = [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]
    assert [line["action"] for line in lines] == ["token create", "forget"]
    half = tmp_path / f"{NAME}.{'0' * 32}.tmp"
    half.write_text("{")
    create_token(tmp_path, "write", None, "", 1)
    assert not half.exists()
