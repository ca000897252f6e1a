"""Property tests of tags read column-wise: what comes out is what the reader of single texts says, whatever a cell holds."""

import json

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import settings as with_settings
from hypothesis import strategies as st

from loadfactor.sources.billing import holders, tags
from loadfactor.sources.billing import tags as plain_objects

KEYS = st.sampled_from(
    ["team", "Team", "TEAM", "user:team", "user_team", "project", "owner", "User", "a b", "k.+(", "é", ""]
)
VALUES = st.one_of(st.text(max_size=6), st.sampled_from(["", " x ", "\u00a0", 'a"b', "a\\b", "a,b:c", "{}", "\x85y"]))
OBJECTS = st.dictionaries(
    KEYS, st.one_of(VALUES, VALUES, st.none(), st.integers(), st.lists(st.integers(), max_size=2)), max_size=4
)
WRITTEN = st.tuples(OBJECTS, st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", ":\n")]), st.booleans()).map(
    lambda of: json.dumps(of[0], ensure_ascii=of[2], separators=of[1])
)
CELLS = st.one_of(
    WRITTEN,
    WRITTEN.map(lambda text: text[1:-1]),  # as Azure writes it
    st.sampled_from(
        [
            '{"a":"b"',
            '"a":"b"}',
            '{"a":"b","a":"c"}',
            '{"a":"b"} x',
            "[]",
            "null",
            '"a"',
            " ",
            '{"a":"b",}',
            '{"a" "b":"c"}',
        ]
    ),
    st.text(max_size=10),
)


@given(st.lists(CELLS, min_size=1, max_size=8))
@example(['{"user:team":"a","team":"b"}', '{"Team":"","TEAM":"x"}', '{"owner":"a","user":" "}'])
@with_settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_objects_are_read_alike_in_columns_and_singly(monkeypatch: pytest.MonkeyPatch, cells: list[str]) -> None:
    """Texts with the same keys give the objects and the holders that each of them gives alone."""
    monkeypatch.setattr(plain_objects, "_FEWEST", 1)
    texts, wrong = tags.parse_objects(pa.array(cells))
    singly = [tags._parse(cell) for cell in cells]
    assert texts.to_pylist() == [text or None for text in singly]
    assert wrong == sum(text is False for text in singly)
    known = [text for text in singly if text]
    found = holders._read_holders(pa.chunked_array([pa.array(known, pa.string())]))
    assert found == {
        name: pa.array([holders._find_text(text)[name] for text in known], pa.string()) for name in holders._KEYS
    }


def test_many_different_values_of_one_key_are_read_in_order() -> None:
    """Texts that differ in their values alone keep their order among others."""
    cells = [f'{{"team": "t{n}", "owner": "o{n}"}}' if n % 3 else f'{{"team":{n}}}' for n in range(200)]
    texts, wrong = tags.parse_objects(pa.array(cells))
    assert wrong == 0
    assert texts.to_pylist() == [tags._parse(cell) for cell in cells]
    found = holders._read_holders(pa.chunked_array([texts]))
    assert found["team"].to_pylist() == [f"t{n}" if n % 3 else str(n) for n in range(200)]
    assert found["user"].to_pylist() == [f"o{n}" if n % 3 else None for n in range(200)]
