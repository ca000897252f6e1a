"""Bills with damage of every kind, and tags in whatever way a bill writes them: read, or refused in one line."""

import gzip
import json
import random
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sources.billing.bills import read_bill

from loadfactor.base.errors import LoadfactorError
from loadfactor.sources.billing import tags
from loadfactor.sources.billing.focus import SOURCE

HEAD = (
    "ProviderName,BillingAccountId,BillingCurrency,BillingPeriodStart,ChargePeriodStart,BilledCost,EffectiveCost,Tags\n"
)
BILL = HEAD + "".join(f'AWS,1,USD,2024-09-01,2024-09-{d:02},{d}.25,{d}.25,"{{""team"":""t""}}"\n' for d in range(1, 29))
WORDS = (b'"', b",", b"NaN", b"1e999", b"\0", b"-", b"\xf0\x9f\x98\x80", b"5/1/25", b"9" * 40, b"EUR", b"\n\n", b"\xff")


def flip(data: bytearray, rnd: random.Random) -> bytes:
    """Three bytes are others."""
    for _ in range(3):
        data[rnd.randrange(len(data))] = rnd.randrange(256)
    return bytes(data)


def insert(data: bytearray, rnd: random.Random) -> bytes:
    """Something stands where it should not."""
    at = rnd.randrange(len(data))
    data[at:at] = rnd.choice(WORDS)
    return bytes(data)


def cut_gzip(data: bytearray, rnd: random.Random) -> bytes:
    """A gzip file that ends early."""
    packed = gzip.compress(bytes(data))
    return packed[: rnd.randrange(len(packed) // 2, len(packed))]


@pytest.mark.parametrize("damage", [flip, insert])
def test_damage_is_read_or_refused_in_one_line(damage, tmp_path: Path) -> None:
    """Whatever stands in a bill."""
    path, said = tmp_path / "bill.csv", []
    for seed in range(40):
        path.write_bytes(damage(bytearray(BILL.encode()), random.Random(seed)))
        try:
            read_bill(SOURCE, path)
        except LoadfactorError as error:
            said.append(str(error))
    assert said
    assert not [text for text in said if "\n" in text]


def test_a_gzip_file_that_ends_early_is_refused(tmp_path: Path) -> None:
    """Wherever it ends."""
    path = tmp_path / "bill.csv.gz"
    for seed in range(20):
        path.write_bytes(cut_gzip(bytearray(BILL.encode()), random.Random(seed)))
        with pytest.raises(LoadfactorError, match=r"truncated gzip|corrupt gzip") as error:
            read_bill(SOURCE, path)
        assert "\n" not in str(error.value)


KEYS = st.sampled_from(
    ["team", "Team", "TEAM", "user:team", "user_team", "project", "owner", "User", "a b", "k.+(", "é", ""]
)
VALUES = st.one_of(st.text(max_size=6), st.sampled_from(["", " x ", "\u00a0", 'a"b', "a\\b", "a,b:c", "{}", "\x85y"]))
OBJECTS = st.dictionaries(KEYS, VALUES, min_size=1, max_size=4)
WAYS = st.tuples(st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", ":\n")]), st.booleans(), st.booleans())
WRONG = ['{"a":"b"', '{"a":"b"} x', '"a"', '{"a":"b",}', '{"a" "b":"c"}', "x"]


@given(st.lists(st.tuples(OBJECTS, WAYS), min_size=1, max_size=8), st.lists(st.sampled_from(WRONG), max_size=3))
def test_objects_come_out_as_they_were_written(objects, wrong) -> None:
    """With braces or without, spaced or not: the same object with sorted keys, in its place; what is none is counted."""
    written = []
    for of, (separators, is_ascii, has_braces) in objects:
        text = json.dumps(of, ensure_ascii=is_ascii, separators=separators)
        written.append(text if has_braces else text[1:-1])  # as Azure writes it
    texts, count = tags.parse_objects(pa.array([*written, *wrong, " ", "null"]))
    assert count == len(wrong)
    assert [text and json.loads(text) for text in texts.to_pylist()] == [
        *({tags.strip_owner(key): value for key, value in of.items()} for of, _ in objects),
        *[None] * (len(wrong) + 2),
    ]


def test_holders_of_many_tags_stand_in_their_rows() -> None:
    """Of keys that differ in case the one in small letters counts, else the first that says something."""
    written = ['{"Team":"","TEAM":"x"}', '{"TEAM":"y","team":"a"}', '{"owner":"a","user":" "}', '{"team":7}']
    found = tags._read_holders(pa.chunked_array([pa.array(written * 2)]))
    assert found["team"].to_pylist() == ["x", "a", None, "7"] * 2
    assert found["user"].to_pylist() == [None, None, "a", None] * 2
