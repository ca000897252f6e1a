"""Rules of tagging: which jobs one matches, and what it gives them; as written in `[[tag]]` of loadfactor.toml.

Of each of experiment, team, project and purpose the first rule counts that matches the job and gives it: a rule that only gives the
team leaves the experiment to later ones. What no rule gives stays as the source had it.
"""

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from fnmatch import translate
from functools import cached_property
from typing import Any, Final

from loadfactor.base.errors import InputError, no_such
from loadfactor.base.units import MS_PER_S
from loadfactor.tables.schema import ALWAYS

FROM, TO = "from", "to"
DATES: Final = (FROM, TO)
GIVES: Final = {"experiment": "experiment_id", "team": "team", "project": "project", "purpose": "purpose"}
"""Names that a rule can give, and their columns."""
MATCHED_COLUMNS: Final = {
    **{name: name for name in ("user", "queue", "pool", "node", "job_id", "job_number")},
    "job": "job_id",
    **GIVES,
}
"""Names that a rule can look at besides tags, and their columns. Of those that rules give, the values of the source."""
TAGS: Final = (
    "comment",
    "admin_comment",
    "wckey",
    "account",
    "job_name",
    "qos",
    "partition",
    "reservation",
    "cluster",
    "namespace",
    "owner",
    "purpose_hint",
    "cluster_queue",
    "priority",
)
"""Tags that schedulers give every job."""
CHARGE_COLUMNS: Final = {
    "account": ("SubAccountId", "SubAccountName"),
    "account_name": ("SubAccountName",),
    "service": ("ServiceName",),
    "resource": ("ResourceId",),
    "resource_name": ("ResourceName",),
    "region": ("RegionId",),
}
"""Names that a rule can look at of a bill's rows, and their columns, the better one first."""
BILL_TAGS: Final = ("tag.", "label.")
"""How tags of a bill begin."""
PREFIXES: Final = ("label.", "annotation.", "tag.", "env.", "wandb.", "mlflow.")
"""How tags begin whose names are people's own: of Kubernetes, of clouds, of the job's environment, of experiment trackers."""
REGEX: Final = "regex:"
"""How a pattern begins that is a regular expression; others are globs."""
_REFERENCE: Final = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True)
class Pattern:
    """A text to compare with: a glob that fits the whole value, or a regular expression that is found in it.

    The empty one fits jobs that lack the value.
    """

    text: str

    @property
    def is_literal(self) -> bool:
        """True where it fits one text alone."""
        return bool(self.text) and not self.text.startswith(REGEX) and not re.search(r"[*?[]", self.text)

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        is_regex = self.text.startswith(REGEX)
        return re.compile(self.text.removeprefix(REGEX) if is_regex else translate(self.text), re.DOTALL)

    def find(self, value: str | None) -> re.Match[str] | None:
        """How it fits a value; None where it does not."""
        found = self.text if self.text.startswith(REGEX) else None
        if value is None or not self.text:
            return None
        return self._compiled.search(value) if found else self._compiled.match(value)

    def fits(self, value: str | None) -> bool:
        """True where it fits.

        >>> Pattern("exp-*").fits("exp-7"), Pattern("regex:[0-9]+$").fits("exp-7"), Pattern("").fits(None), Pattern("*").fits(None)
        (True, True, True, False)
        """
        return value is None if not self.text else self.find(value) is not None

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the groups of a regular expression."""
        return tuple(self._compiled.groupindex) if self.text.startswith(REGEX) else ()


@dataclass(frozen=True)
class Condition:
    """A condition on jobs: a value of `field` that one of the patterns fits."""

    field: str
    patterns: tuple[Pattern, ...]


@dataclass(frozen=True)
class TagRule:
    """Jobs that meet every condition and begin in [from_ms, to_ms) are given texts, by column. `{field}` in one stands for a value.

    A text that refers to what a job lacks gives it nothing.
    """

    conditions: tuple[Condition, ...]
    gives: tuple[tuple[str, str], ...]
    from_ms: int = ALWAYS[0]
    to_ms: int = ALWAYS[1]


def read_mapping(text: str, label: str) -> tuple[TagRule, ...]:
    """Rows of a mapping as rules. A column is something to look at (a cell is a glob, empty: any), from, to, or what is given.

    Raises InputError with `label` and the line of what is wrong.
    """
    lines = csv.reader(text.removeprefix("\ufeff").splitlines())
    header: list[str] = []
    rules = []
    try:
        for cells in lines:
            if not any(cell.strip() for cell in cells) or cells[0].lstrip().startswith("#"):
                continue
            where = f"{label}: line {lines.line_num}"
            if not header:
                header = _read_header(cells, where)
            elif len(cells) != len(header):
                raise InputError(f"{where} has {len(cells)} cells, the header has {len(header)}")
            else:
                found = {name: cell.strip() for name, cell in zip(header, cells, strict=True) if cell.strip()}
                rules.append(_read_row(found, where))
    except csv.Error as error:
        raise InputError(f"{label}: line {lines.line_num}: {error}") from error
    if not header:
        raise InputError(f"{label} is empty; begin with a header: user,from,to,experiment,team")
    return tuple(rules)


def _read_header(cells: list[str], where: str) -> list[str]:
    names = [cell.strip() for cell in cells]
    # of what is given the source's own value cannot be looked at here: a column has one meaning
    for name in names:
        if name not in DATES and name not in GIVES:
            check_field(name, where)
        if names.count(name) > 1:
            raise InputError(f"{where}: column {name!r} is there twice")
    if not set(names) & set(GIVES):
        raise InputError(f"{where}: no column says what is given; add one of {', '.join(GIVES)}")
    return names


def _read_row(found: Mapping[str, str], where: str) -> TagRule:
    conditions = tuple(
        Condition(name, (read_pattern(cell, f"{where}: {name}"),))
        for name, cell in found.items()
        if name not in DATES and name not in GIVES
    )
    if not conditions:
        raise InputError(f"{where} matches every job; fill in a column that says which")
    start, end = (read_limit(found.get(name), where, name) for name in DATES)
    span = (ALWAYS[0] if start is None else start, ALWAYS[1] if end is None else end)
    if span[0] >= span[1]:
        raise InputError(f"{where}: `to` {found[TO]} is not after `from` {found[FROM]}")
    return make_rule(conditions, {name: found[name] for name in GIVES if name in found}, where, span)


def read_limit(text: str | None, where: str, name: str) -> int | None:
    """Milliseconds of a day's midnight UTC, or of a time with its zone. Raises InputError for what is neither."""
    if text is None:
        return None
    try:
        if len(text) == len("2026-10-01"):
            at = datetime.combine(date.fromisoformat(text), time(), UTC)
        else:
            at = datetime.fromisoformat(text)
    except ValueError as error:
        raise InputError(f"{where}: {name} {text!r} is no day; write 2026-10-01") from error
    if at.tzinfo is None:
        raise InputError(f"{where}: {name} {text!r} has no zone; write {text}Z, or the day alone")
    return round(at.timestamp() * MS_PER_S)


@dataclass(frozen=True)
class Tagging:
    """All rules, and behind them the rows of a mapping, which fill what is still missing."""

    rules: tuple[TagRule, ...] = ()
    mapping: tuple[TagRule, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.rules or self.mapping)


def split_template(text: str) -> list[tuple[str, bool]]:
    """The parts of a text that a rule gives, each with whether it is a reference.

    >>> split_template("run {comment}")
    [('run ', False), ('comment', True)]
    """
    parts = [(part, place % 2 == 1) for place, part in enumerate(_REFERENCE.split(text))]
    return [(part, is_reference) for part, is_reference in parts if part or is_reference]


def check_field(name: str, where: str) -> str:
    """The name of something that rules can look at. Raises InputError naming the nearest where there is none."""
    if (
        name in MATCHED_COLUMNS
        or name in TAGS
        or name in CHARGE_COLUMNS
        or (name.startswith(PREFIXES) and not name.endswith("."))
    ):
        return name
    error = no_such("tag", name, (*TAGS, *MATCHED_COLUMNS, *CHARGE_COLUMNS, *(prefix + "NAME" for prefix in PREFIXES)))
    raise InputError(f"{where}: {error}")


def read_rules(tables: Sequence[Mapping[str, Any]]) -> tuple[TagRule, ...]:
    """Rules from the tables [[tag]] of loadfactor.toml. Raises InputError naming the table that is wrong, counted from 1."""
    return tuple(_read_rule(table, f"[[tag]] number {place}") for place, table in enumerate(tables, start=1))


def _read_rule(table: Mapping[str, Any], where: str) -> TagRule:
    for name in table:
        if name not in GIVES and name != "match":
            raise InputError(f"{where}: {no_such('key', name, ('match', *GIVES))}")
    conditions = read_match(table.get("match", {}), where)
    given = {name: table[name] for name in GIVES if name in table}
    return make_rule(conditions, given, where)


def read_match(match: Any, where: str) -> tuple[Condition, ...]:
    """The conditions of a rule of loadfactor.toml. Raises InputError where that is wrong."""
    if not isinstance(match, Mapping):
        raise InputError(f'{where}: match is a table: match = {{ account = "vision*" }}')
    return tuple(_read_condition(name, value, where) for name, value in _flatten(match))


def make_rule(
    conditions: tuple[Condition, ...], given: Mapping[str, Any], where: str, span: tuple[int, int] = ALWAYS
) -> TagRule:
    """A rule of what was read. Raises InputError where it gives nothing, or refers to what there is not."""
    check_texts(conditions, given, where)
    if not given:
        raise InputError(f"{where} gives nothing; add one of {', '.join(GIVES)}")
    return TagRule(conditions, tuple((GIVES[name], text.strip()) for name, text in given.items()), *span)


def check_texts(conditions: tuple[Condition, ...], given: Mapping[str, Any], where: str) -> None:
    """Raise InputError where a text that a rule gives is none, or refers to what there is not."""
    groups = {group for c in conditions for pattern in c.patterns for group in pattern.groups}
    for name, text in given.items():
        if not isinstance(text, str) or not text.strip():
            raise InputError(f'{where}: {name} is a text, like {name} = "{{comment}}"')
        for part, is_reference in split_template(text):
            if is_reference and part not in groups:
                check_field(part, f"{where}: {name}")


def _flatten(match: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Keys of a table in a table joined by points: TOML reads label.app = "x" so."""
    for name, value in match.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _read_condition(name: str, value: Any, where: str) -> Condition:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise InputError(f'{where}: {name} is a pattern or a list of them: {name} = "exp-*"')
    return Condition(check_field(name, where), tuple(read_pattern(text, f"{where}: {name}") for text in texts))


def read_pattern(text: str, where: str) -> Pattern:
    """A pattern. Raises InputError where it is no regular expression."""
    pattern = Pattern(text)
    try:
        pattern.fits("")
    except re.error as error:
        raise InputError(f"{where}: {text!r} is no regular expression: {error}") from error
    return pattern
