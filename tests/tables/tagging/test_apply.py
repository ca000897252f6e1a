"""Rules applied to rows: what counts first, what stays, dates, and any rules against a slow oracle."""

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables.tagging.rule_oracle import tag_row

from loadfactor.tables.schema import table
from loadfactor.tables.tagging import apply_rules
from loadfactor.tables.tagging_rules import Tagging, read_mapping, read_rules

SCHEMA = table("allocations").schema


def rows_of(*rows: dict[str, Any]) -> pa.Table:
    """Allocations with the cells given; tags as a mapping."""
    filled = [{"job_id": "1", "from_utc": 5, **row} for row in rows]
    texts = [{**row, "tags": json.dumps(row["tags"]) if row.get("tags") else None} for row in filled]
    return pa.Table.from_pylist(texts, schema=SCHEMA)


def apply(rows: pa.Table, *rules: dict[str, Any], mapping: str = "") -> list[dict[str, Any]]:
    """The rows tagged."""
    tagging = Tagging(read_rules(rules), read_mapping(mapping, "mapping.csv") if mapping else ())
    return apply_rules(tagging, rows, "allocations").to_pylist()


def test_each_of_the_four_is_given_by_the_first_rule_that_gives_it() -> None:
    """A rule that gives the experiment leaves the team to a later one; a later experiment does not count."""
    rows = rows_of({"tags": {"comment": "exp-7", "account": "nlp"}, "team": "nlp"})
    (row,) = apply(
        rows,
        {"match": {"comment": "exp-*"}, "experiment": "{comment}"},
        {"match": {"account": "nlp"}, "experiment": "other", "team": "language"},
    )
    assert (row["experiment_id"], row["team"]) == ("exp-7", "language")
    assert json.loads(row["original_holder"]) == {"experiment_id": "", "team": "nlp"}


def test_a_reference_to_what_a_job_lacks_gives_nothing() -> None:
    """The next rule gives it then; what the source said stays where none does."""
    rows = rows_of({"tags": {"account": "nlp"}, "project": "said"})
    (row,) = apply(rows, {"experiment": "{comment}", "project": "{wckey}"}, {"experiment": "{account}-misc"})
    assert (row["experiment_id"], row["project"]) == ("nlp-misc", "said")


def test_a_regular_expression_names_what_it_finds() -> None:
    """Its named groups can be given."""
    rows = rows_of({"tags": {"job_name": "train_vit_003"}}, {"tags": {"job_name": "jupyter"}})
    out = apply(
        rows, {"match": {"job_name": "regex:^train_(?P<name>[a-z]+)_"}, "experiment": "{name}", "purpose": "training"}
    )
    assert [(r["experiment_id"], r["purpose"]) for r in out] == [("vit", "training"), (None, None)]


def test_a_mapping_fills_what_is_missing_on_its_dates() -> None:
    """It says nothing of what rules or the source gave, but counts before an account that only stands for the team."""
    day = 86_400_000
    rows = rows_of(
        {"user": "ann", "from_utc": 5 * day, "tags": {"account": "nlp"}, "team": "nlp"},
        {"user": "ann", "from_utc": 40 * day, "tags": {"account": "nlp"}, "team": "nlp"},
        {"user": "ann", "from_utc": 5 * day, "experiment_id": "said", "team": "own"},
    )
    mapping = "user,from,to,experiment,team\nann,1970-01-02,1970-02-01,old,A\nann,1970-02-01,,new,B\n"
    out = apply(rows, mapping=mapping)
    assert [(r["experiment_id"], r["team"]) for r in out] == [("old", "A"), ("new", "B"), ("said", "own")]


def test_rules_begin_with_what_the_source_said() -> None:
    """Applying others later gives what they would have given at first; none at all brings the source's words back."""
    rows = rows_of({"tags": {"account": "nlp"}, "team": "nlp"}, {"team": "vision", "user": "bob"})
    first = read_rules([{"match": {"team": "nlp"}, "team": "language"}, {"match": {"user": "bob"}, "project": "p"}])
    later = read_rules([{"match": {"team": "nlp"}, "experiment": "x"}])
    tagged = apply_rules(Tagging(first), rows, "allocations")
    assert apply_rules(Tagging(first), tagged, "allocations") == tagged
    assert apply_rules(Tagging(later), tagged, "allocations") == apply_rules(Tagging(later), rows, "allocations")
    assert apply_rules(Tagging(), tagged, "allocations") == rows


TEXTS = st.sampled_from(["a", "b", "ab", "a-1", "b[", ""])
FIELDS = st.sampled_from(
    ["comment", "account", "label.x/y.z", "user", "team", "experiment", "job_id", "queue", "namespace"]
)
PATTERNS = st.sampled_from(["a", "b", "a*", "*", "?", "[ab]", "b[[]", "", "regex:^a(?P<g>.*)$", "regex:b"])
GIVEN = st.sampled_from(["E", "{comment}", "x-{user}-{account}", " {label.x/y.z} ", "{team}", "{experiment}"])
RULE = st.fixed_dictionaries(
    {"experiment": GIVEN},
    optional={
        "match": st.dictionaries(FIELDS, PATTERNS | st.lists(PATTERNS, min_size=1, max_size=2), max_size=2),
        "team": GIVEN,
        "project": GIVEN,
        "purpose": GIVEN,
    },
)
ROW = st.fixed_dictionaries(
    {"job_id": st.sampled_from(["a", "b", "c"]), "from_utc": st.integers(0, 9)},
    optional={
        **{
            name: TEXTS.map(lambda text: text or None) for name in ("user", "queue", "team", "project", "experiment_id")
        },
        "tags": st.dictionaries(st.sampled_from(["comment", "account", "namespace", "label.x/y.z"]), TEXTS, max_size=3),
        "original_holder": st.sampled_from([None, '{"team": ""}', '{"experiment_id": "a", "project": ""}']),
    },
)
DATED = st.tuples(RULE, st.integers(0, 9), st.integers(1, 9))


@settings(max_examples=400, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=8), st.lists(RULE, max_size=4), st.lists(DATED, max_size=3))
def test_any_rules_tag_any_rows_as_one_by_one(
    rows: list[dict[str, Any]], rules: list[dict[str, Any]], dated: list[tuple[dict[str, Any], int, int]]
) -> None:
    """Column by column or row by row, rule by rule: the same."""
    taken = rows_of(*rows)
    of = zip(read_rules([rule for rule, _, _ in dated]), dated, strict=True)
    made = [replace(rule, from_ms=start, to_ms=end) for rule, (_, start, end) in of]
    out = apply_rules(Tagging(read_rules(rules), tuple(made)), taken, "allocations").to_pylist()
    mapping = [{**rule, "from_ms": a, "to_ms": b} for rule, a, b in dated]
    assert out == [tag_row(row, rules, mapping, "from_utc") for row in taken.to_pylist()]


@pytest.mark.parametrize("text", ["no json", "[1]", '{"comment": null}', '{"comment": {"a": 1}}'])
def test_tags_that_are_no_object_of_texts_break_nothing(text: str) -> None:
    """They are read as far as they can be."""
    rows = pa.Table.from_pylist([{"job_id": "1", "from_utc": 5, "tags": text}], schema=SCHEMA)
    (row,) = apply(rows, {"match": {"comment": "exp*"}, "experiment": "x"})
    assert row["experiment_id"] is None
