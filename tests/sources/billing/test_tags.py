"""Property test of tags: objects come out as they were written, in whatever way a bill writes them."""

import json

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from loadfactor.sources.billing import tags

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
