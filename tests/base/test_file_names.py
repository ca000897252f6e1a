"""Names of files for owners: no two owners share one, and each fits every file system."""

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from loadfactor.base.paths import name_file

ALIKE = [
    *("vision/a", "vision a", "vision_a", "Vision_a", "vision\\a", "vision:a", "vision%2fa", "vision  a", " vision a"),
    *("ml:eu", "ml|eu", "ml?eu", "ml*eu", "ml_eu", "ML_EU"),
    *("", " ", ".", "..", "...", "/", "~", "-", "--output", "_", "\0", "\n", "\x1b[31m", "a\tb", "a\rb"),
    *("CON", "con", "con.txt", "Con.x", "nul", "lpt1", "com0", "all", "All", "ALL", "a.", "a", ".a", "a "),
    *("caf\u00e9", "cafe\u0301", "CAF\u00c9", "stra\u00dfe", "strasse", "\u0130", "i\u0307", "\u212a", "k", "K"),
    *("\ud800", "\udfff", "\udcff", "\ufffd", "\U0001f600", "\u6570\u636e" * 60, "\u6570\u636e" * 61),
    *("x" * 80, "x" * 81, "x" * 300, "x" * 300 + "y", "X" * 300),
    *("vision_a~0558815be4bc0ef4", "Vision_a~0558815be4bc0ef4"),
]
ON_WINDOWS = {"con", "prn", "aux", "nul", *(f"{name}{n}" for name in ("com", "lpt") for n in range(10))}
NAMES = st.text() | st.text("aAb _/.~-:\u00e9e\u0301\ud800\0", max_size=6)


def fold_name(name: str) -> str:
    """What a file system that ignores case and composition compares."""
    return unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", name).casefold())


@pytest.mark.parametrize("owner", ["vision", "vision_a", "nlp-2", "ann@example.org", "ann.k", "7b", "x" * 80])
def test_plain_name_stays_as_it_is(owner: str) -> None:
    """The files of the team vision begin with vision."""
    assert name_file(owner) == owner


def test_listed_owners_share_no_name() -> None:
    """vision/a, vision a and Vision_a are three files, also where case is ignored."""
    owner_by_name = {fold_name(name_file(owner)): owner for owner in ALIKE}
    assert len(owner_by_name) == len(ALIKE)


@given(NAMES, NAMES)
def test_two_owners_share_no_name(first: str, second: str) -> None:
    """Whatever two owners are called, their names differ after folding."""
    assert (fold_name(name_file(first)) == fold_name(name_file(second))) == (first == second)


@given(NAMES)
@example("\ud800")
@example("CON.txt")
@example("\u6570" * 300)
def test_name_fits_every_file_system(owner: str) -> None:
    """At most 80 bytes, no separator, no space, no control character, no ending point, nothing that Windows keeps to itself."""
    name = name_file(owner)
    assert 0 < len(name.encode()) <= 80
    assert not set(name) & set('<>:"/\\|?* ')
    assert name.isprintable()
    assert name[0] not in ".-"
    assert name[-1] != "."
    assert name.split(".")[0].lower() not in ON_WINDOWS


def test_names_joined_by_a_space_stay_apart() -> None:
    """The digest `a` of the team `b c` and the digest `a b` of the team `c` are two files."""
    pairs = [(first, second) for first in ALIKE for second in ALIKE]
    assert len({f"{name_file(first)} {name_file(second)}" for first, second in pairs}) == len(pairs)
