"""Rules applied to rows against a slow oracle; and the one rule for counters that read 0 while the GPU worked."""

import json
import re
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadfactor.base.errors import InputError
from loadfactor.tables.schema import IDLE_BELOW, table
from loadfactor.tables.signals import find_failed_profiling
from loadfactor.tables.tagging import apply_rules
from loadfactor.tables.tagging_rules import Tagging, read_mapping, read_rules

SCHEMA = table("allocations").schema


def rows_of(*rows: dict[str, Any]) -> pa.Table:
    filled = [{"job_id": "1", "from_utc": 5, **row} for row in rows]
    texts = [{**row, "tags": json.dumps(row["tags"]) if row.get("tags") else None} for row in filled]
    return pa.Table.from_pylist(texts, schema=SCHEMA)


def apply(rows: pa.Table, *rules: dict[str, Any], mapping: str = "") -> list[dict[str, Any]]:
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
        **dict.fromkeys(("team", "project", "purpose"), GIVEN),
    },
)
ROW = st.fixed_dictionaries(
    {"job_id": st.sampled_from(["a", "b", "c"]), "from_utc": st.integers(0, 9)},
    optional={
        **dict.fromkeys(("user", "queue", "team", "project", "experiment_id"), TEXTS.map(lambda text: text or None)),
        "tags": st.dictionaries(st.sampled_from(["comment", "account", "namespace", "label.x/y.z"]), TEXTS, max_size=3),
        "original_holder": st.sampled_from([None, '{"team": ""}', '{"experiment_id": "a", "project": ""}']),
    },
)
DATED = st.tuples(RULE, st.integers(0, 9), st.integers(1, 9))


@pytest.mark.long
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


COLUMNS = {"experiment": "experiment_id", "team": "team", "project": "project", "purpose": "purpose"}


def tag_row(row: dict[str, Any], rules: list[dict[str, Any]], mapping: list[dict[str, Any]], at: str) -> dict[str, Any]:
    """One row, tagged. Rules as in loadfactor.toml; rows of a mapping alike, with `from_ms` and `to_ms`."""
    row = dict(row)
    for column, said in json.loads(row["original_holder"] or "{}").items():
        row[column] = said or None
    given: dict[str, str] = {}
    for rule in rules:
        for name, text in find(rule, row, at).items():
            given.setdefault(name, text)
    for rule in mapping:
        for name, text in find(rule, row, at).items():
            said = row[COLUMNS[name]]
            stands_in = name == "team" and said in (value(row, "account"), value(row, "namespace"))
            if said is None or stands_in:
                given.setdefault(name, text)
    original = {}
    for name, text in given.items():
        if text != row[COLUMNS[name]]:
            original[COLUMNS[name]] = row[COLUMNS[name]] or ""
            row[COLUMNS[name]] = text
    row["original_holder"] = json.dumps(original, sort_keys=True, ensure_ascii=False) if original else None
    return row


def find(rule: dict[str, Any], row: dict[str, Any], at: str) -> dict[str, str]:
    if not rule.get("from_ms", 0) <= row[at] < rule.get("to_ms", 2**62):
        return {}
    groups: dict[str, str | None] = {}
    for field, patterns in rule.get("match", {}).items():
        fits = False
        for pattern in [patterns] if isinstance(patterns, str) else patterns:
            has = value(row, field)
            if pattern == "":
                fits = has is None
            elif pattern.startswith("regex:"):
                found = re.search(pattern.removeprefix("regex:"), has, re.DOTALL) if has is not None else None
                fits = found is not None
                groups |= found.groupdict() if found else {}
            else:
                fits = has is not None and fnmatchcase(has, pattern)
            if fits:
                break
        if not fits:
            return {}
    out = {}
    for name in COLUMNS:
        if name in rule:
            lacks = False

            def fill(found: re.Match[str]) -> str:
                nonlocal lacks
                text = groups[found[1]] if found[1] in groups else value(row, found[1])
                lacks = lacks or text is None
                return text or ""

            text = re.sub(r"\{([^{}]*)\}", fill, rule[name]).strip()
            if text and not lacks:
                out[name] = text
    return out


def value(row: dict[str, Any], field: str) -> str | None:
    column = COLUMNS.get(field, field)
    if column in ("user", "queue", "pool", "node", "job_id", "job_number", *COLUMNS.values()):
        return row.get(column)
    return (json.loads(row["tags"] or "{}").get(field) or "").strip() or None


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"match": {"commnt": "x"}, "team": "a"}, "[[tag]] number 1: no tag called 'commnt'; did you mean 'comment'?"),
        ({"match": {"comment": "x"}}, "[[tag]] number 1 gives nothing; add one of experiment, team, project, purpose"),
        (
            {"match": {"comment": 5}, "team": "a"},
            '[[tag]] number 1: comment is a pattern or a list of them: comment = "exp-*"',
        ),
        ({"match": "x", "team": "a"}, '[[tag]] number 1: match is a table: match = { account = "vision*" }'),
        ({"team": ""}, '[[tag]] number 1: team is a text, like team = "{comment}"'),
        ({"team": "{coment}"}, "[[tag]] number 1: team: no tag called 'coment'; did you mean 'comment'?"),
        ({"teem": "a"}, "[[tag]] number 1: no key called 'teem'; did you mean 'team'?"),
        (
            {"match": {"comment": "regex:("}, "team": "a"},
            "[[tag]] number 1: comment: 'regex:(' is no regular expression: missing ), unterminated subpattern at position 0",
        ),
    ],
)
def test_a_wrong_rule_is_named_with_what_to_write(written: dict[str, Any], said: str) -> None:
    """One line with the number of the table."""
    with pytest.raises(InputError) as error:
        read_rules([written])
    assert str(error.value) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "m.csv is empty; begin with a header: user,from,to,experiment,team"),
        ("usr,team\n", "m.csv: line 1: no tag called 'usr'; did you mean 'user'?"),
        ("user\nann\n", "m.csv: line 1: no column says what is given; add one of experiment, team, project, purpose"),
        ("user,user,team\n", "m.csv: line 1: column 'user' is there twice"),
        ("user,team\nann\n", "m.csv: line 2 has 1 cells, the header has 2"),
        ("user,team\nann,A\n,B\n", "m.csv: line 3 matches every job; fill in a column that says which"),
        ("user,team\nann,\n", "m.csv: line 2 gives nothing; add one of experiment, team, project, purpose"),
        ("user,from,team\nann,1.2.2026,A\n", "m.csv: line 2: from '1.2.2026' is no day; write 2026-10-01"),
        (
            "user,from,team\nann,2026-10-01T08:00,A\n",
            "m.csv: line 2: from '2026-10-01T08:00' has no zone; write 2026-10-01T08:00Z, or the day alone",
        ),
        (
            "user,from,to,team\nann,2026-10-02,2026-10-01,A\n",
            "m.csv: line 2: `to` 2026-10-01 is not after `from` 2026-10-02",
        ),
    ],
)
def test_a_wrong_mapping_is_named_by_file_and_line(text: str, said: str) -> None:
    """One line with the file, the line and what to write."""
    with pytest.raises(InputError) as error:
        read_mapping(text, "m.csv")
    assert str(error.value) == said


def test_a_mapping_is_read_as_spreadsheets_write_it() -> None:
    """With a byte order mark, quotes, empty lines and comments."""
    rules = read_mapping('\ufeff"job_name",experiment\r\n\r\n# old ones\r\n"a,b*",x\r\n', "m.csv")
    assert [(c.field, c.patterns[0].text) for rule in rules for c in rule.conditions] == [("job_name", "a,b*")]


def test_points_in_names_of_tags_may_be_written_as_tables() -> None:
    """`label.app = …` and `"label.app" = …` are one."""
    dotted, quoted = read_rules(
        [{"match": {"label": {"app": "x"}}, "team": "a"}, {"match": {"label.app": "x"}, "team": "a"}]
    )
    assert dotted == quoted


@pytest.mark.parametrize(
    ("busy", "sm", "engine", "tensor", "at_work", "failed"),
    [
        (0.9, 0.0, 0.0, 0.0, False, True),
        (IDLE_BELOW, None, 0.0, None, False, True),
        (0.049, 0.0, 0.0, 0.0, False, False),  # idle: zeros are what an idle GPU measures
        (None, 0.0, 0.0, 0.0, True, True),  # its power says that it worked
        (0.9, 0.0, 0.2, 0.0, False, False),  # not all are 0
        (0.9, None, None, 0.0, False, False),  # work without tensor cores has tensor activity 0
        (0.9, None, None, None, False, False),
    ],
)
def test_zeros_of_a_working_gpu_are_no_measurement(
    busy: float | None, sm: float | None, engine: float | None, tensor: float | None, at_work: bool, failed: bool
) -> None:
    """SM or engine was measured, everything measured is 0, and GPU_UTIL or the caller says that the GPU worked."""
    values = {"busy_share": busy, "sm_active_share": sm, "engine_active_share": engine, "tensor_active_share": tensor}
    columns = {name: pa.array([value], pa.float64()) for name, value in values.items()}
    assert find_failed_profiling(columns, pa.array([at_work])).to_pylist() == [failed]
