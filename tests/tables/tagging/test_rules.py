"""Rules and mappings as people write them, and what is said of those that cannot be."""

from typing import Any

import pytest

from loadfactor.base.errors import InputError
from loadfactor.tables.tagging_rules import read_mapping, read_rules


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
