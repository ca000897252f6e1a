"""Pseudonyms: stable, reversible with their key alone, and the key file that holds it."""

import stat
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from loadfactor.base.errors import InputError
from loadfactor.base.privacy import PSEUDONYM, Pseudonyms, make_key, read_key

KEY, OTHER = Pseudonyms(b"k" * 64), Pseudonyms(b"o" * 64)


@given(st.text(min_size=1, max_size=40))
def test_a_name_becomes_one_text_that_only_its_key_turns_back(name: str) -> None:
    """Always the same one, a word of letters and digits; masking it again changes nothing."""
    masked = KEY.mask(name)
    assert masked == Pseudonyms(b"k" * 64).mask(name)
    assert PSEUDONYM.fullmatch(masked)
    assert KEY.reveal(masked) == name
    assert KEY.mask(masked) == masked
    assert OTHER.reveal(masked) is None
    assert OTHER.mask(name) != masked


@pytest.mark.parametrize("text", ["p-", "p-abc", "p-" + "a" * 30, "alice", "P-" + "A" * 30, ""])
def test_what_only_looks_like_a_pseudonym_is_none(text: str) -> None:
    """It is a name like others."""
    assert KEY.reveal(text) is None


@given(st.binary(max_size=200))
def test_sealed_bytes_are_opened_by_their_key(content: bytes) -> None:
    """What was never sealed comes back as it is; another key is refused."""
    prefix = KEY.seal(b"").split(b"\0")[0] + b"\0"
    assume(not content.startswith(prefix))
    sealed = KEY.seal(content)
    assert KEY.open(sealed) == content
    assert KEY.open(content) == content
    if content:
        assert content not in sealed.removeprefix(prefix) or len(content) < 4
        with pytest.raises(InputError, match="sealed with another key"):
            OTHER.open(sealed)


def test_a_key_is_made_once_and_kept_from_others(tmp_path: Path) -> None:
    """Its file is for its owner alone; it is not replaced, and is refused where others may read it."""
    path = tmp_path / "key"
    make_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_key(path).reveal(read_key(path).mask("ann")) == "ann"
    with pytest.raises(InputError, match="is there already"):
        make_key(path)
    path.chmod(0o640)
    with pytest.raises(InputError, match="chmod 600"):
        read_key(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "cannot be read"), ("", "is no key"), ("loadfactor-key-1 AAAA", "is no key"), ("ä", "cannot be read")],
)
def test_without_its_key_nothing_is_masked(tmp_path: Path, content: str | None, said: str) -> None:
    """A missing or broken key is refused with what makes one."""
    path = tmp_path / "key"
    if content is not None:
        path.write_text(content, encoding="utf-8")
        path.chmod(0o600)
    with pytest.raises(InputError, match=said):
        read_key(path)
    with pytest.raises(InputError, match="key_file under"):
        read_key(None)
