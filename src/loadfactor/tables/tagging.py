"""Rules applied column-wise to rows of allocations and queue events. Each time they begin with the columns of the source."""

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.tables.schema import ALWAYS
from loadfactor.tables.tagging_rules import (
    BILL_TAGS,
    CHARGE_COLUMNS,
    GIVES,
    MATCHED_COLUMNS,
    Condition,
    Tagging,
    TagRule,
    split_template,
)

TAGGED = {"allocations": "from_utc", "queue_events": "at_utc", "charges": "ChargePeriodStart"}
"""The tables whose rows have a holder or somebody who pays, and the instant that decides which dated rule counts."""
_NOTHING: npt.NDArray[np.object_] = np.array(None, dtype=object)
Texts = npt.NDArray[np.object_]
Flags = npt.NDArray[np.bool_]
Groups = dict[str, Texts]
"""Named groups of a rule's regular expressions, a text for each row that it matches."""
Places = npt.NDArray[np.int64]
"""Numbers of rows."""
ORIGINAL = "original_holder"
"""The column with the values of the source, as a JSON object by column, where rules give others; "" where it had none."""


def apply_rules(tagging: Tagging, rows: pa.Table, table: str) -> pa.Table:
    """Rows of a table with experiment, team, project and purpose as the rules give them; the original values are kept beside.

    Rows that no rule speaks of stay as their source had them. The order of rows stays.
    """
    source_rows = restore_source(rows)
    facts = ChargeFacts(source_rows) if table == "charges" else Facts(source_rows)
    everywhere = np.arange(rows.num_rows)
    original = {column: facts.field(name).take(everywhere) for name, column in GIVES.items()}
    at_ms = np.asarray(source_rows[TAGGED[table]])
    given: dict[str, Texts] = {column: np.full(rows.num_rows, None, dtype=object) for column in original}
    _give(tagging.rules, facts, at_ms, given, {column: np.ones(rows.num_rows, np.bool_) for column in original})
    missing = {column: _is_null(values) for column, values in original.items()}
    if tagging.mapping:
        missing["team"] |= find_default_teams(facts, original["team"])
    _give(tagging.mapping, facts, at_ms, given, {c: missing[c] & _is_null(given[c]) for c in original})
    final = {column: np.where(_is_null(given[column]), original[column], given[column]) for column in original}
    return _write(source_rows, original, final)


def give_texts(rules: Iterable[TagRule], rows: pa.Table, names: Iterable[str]) -> dict[str, Texts]:
    """Texts that rules give each row of allocations under names of their own; None where none does."""
    given: dict[str, Texts] = {name: np.full(rows.num_rows, None, dtype=object) for name in names}
    open_ = {name: np.ones(rows.num_rows, np.bool_) for name in given}
    _give(rules, Facts(rows), np.asarray(rows[TAGGED["allocations"]]), given, open_)
    return given


class FactColumn:
    """One value a row: `values[codes[row]]`, distinct; the last of the values is None, for rows that have none."""

    def __init__(self, values: Sequence[str | None], codes: Places) -> None:
        self.values: npt.NDArray[np.object_] = np.array([*values, None], dtype=object)
        self.codes = codes

    @classmethod
    def of_column(cls, column: pa.ChunkedArray) -> "FactColumn":
        encoded = column.combine_chunks().dictionary_encode()
        values = encoded.dictionary.to_pylist()
        return cls(values, encoded.indices.fill_null(len(values)).to_numpy(zero_copy_only=False).astype(np.int64))

    @classmethod
    def of_documents(cls, texts: "FactColumn", found: Sequence[str | None]) -> "FactColumn":
        """A field of documents: `found` of each of its values but None."""
        known = dict.fromkeys(value for value in found if value is not None)
        distinct: dict[str | None, int] = {value: code for code, value in enumerate(known)}
        codes = np.array([distinct.get(value, len(distinct)) for value in (*found, None)], np.int64)
        return cls(list(known), codes[texts.codes])

    @classmethod
    def empty(cls, rows: int) -> "FactColumn":
        """A field that no row has."""
        return cls((), np.zeros(rows, np.int64))

    @cached_property
    def _codes_by_value(self) -> dict[str | None, int]:
        return {value: code for code, value in enumerate(self.values)}

    @cached_property
    def _order(self) -> tuple[Places, Places]:
        order = np.argsort(self.codes, kind="stable")
        return order, np.searchsorted(self.codes[order], np.arange(len(self.values) + 1))

    def find_rows(self, value: str) -> Places:
        code = self._codes_by_value.get(value)
        if code is None:
            return np.empty(0, np.int64)
        order, starts = self._order
        return order[starts[code] : starts[code + 1]]

    def take(self, rows: Places) -> npt.NDArray[np.object_]:
        """The values of some rows."""
        taken: npt.NDArray[np.object_] = self.values[self.codes[rows]]
        return taken


class Facts:
    """The fields of a batch of rows, each worked out when it is first needed."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self._fields: dict[str, FactColumn] = {}

    def field(self, name: str) -> FactColumn:
        """A field by its name in rules."""
        if name not in self._fields:
            self._fields[name] = self._read(name)
        return self._fields[name]

    def _read(self, name: str) -> FactColumn:
        column = MATCHED_COLUMNS.get(name)
        if column is None:
            texts, documents = self._tags
            return FactColumn.of_documents(texts, [_read_text(document.get(name)) for document in documents])
        if column in self._rows.column_names:
            return FactColumn.of_column(self._rows[column])
        return FactColumn.empty(self._rows.num_rows)

    @cached_property
    def _tags(self) -> tuple[FactColumn, list[dict[str, Any]]]:
        texts = FactColumn.of_column(self._rows["tags"])
        return texts, [read_object(text) for text in texts.values[:-1]]


def find_default_teams(facts: Facts, team: Texts) -> Flags:
    """Where the team only repeats the account or the namespace, which stand for it as long as nobody says otherwise."""
    everywhere = np.arange(len(team))
    repeats: Flags = (team == facts.field("account").take(everywhere)) | (
        team == facts.field("namespace").take(everywhere)
    )
    return repeats & ~_is_null(team)


def _give(
    rules: Iterable[TagRule],
    facts: Facts,
    at_ms: npt.NDArray[np.int64],
    given: dict[str, Texts],
    open_: dict[str, Flags],
) -> None:
    """Fill `given`, where it is `open_`, from the rules in their order."""
    for rule in rules:
        open_rows = np.logical_or.reduce([open_[column] for column, _ in rule.gives])
        rows, groups = _match(rule, facts, open_rows)
        if (rule.from_ms, rule.to_ms) != ALWAYS and len(rows):
            inside = (at_ms[rows] >= rule.from_ms) & (at_ms[rows] < rule.to_ms)
            rows, groups = rows[inside], {name: texts[inside] for name, texts in groups.items()}
        if not len(rows):
            continue
        for column, template in rule.gives:
            texts = _fill_in(template, facts, rows, groups)
            taken = open_[column][rows] & ~_is_null(texts)
            given[column][rows[taken]] = texts[taken]
            open_[column][rows[taken]] = False


def _match(rule: TagRule, facts: Facts, open_rows: Flags) -> tuple[Places, Groups]:
    """The open rows that meet every condition of a rule, and the groups of its regular expressions."""
    ordered = sorted(rule.conditions, key=lambda c: not _is_literal(c))
    if ordered and _is_literal(ordered[0]):
        first = ordered.pop(0)
        rows = facts.field(first.field).find_rows(first.patterns[0].text)
        rows = rows[open_rows[rows]]
    else:
        rows = np.flatnonzero(open_rows)
    groups: Groups = {}
    for condition in ordered:
        if not len(rows):
            break
        hit, found = _compare(condition, facts, rows)
        rows = rows[hit]
        groups = {name: texts[hit] for name, texts in (groups | found).items()}
    return rows, groups


def _is_literal(condition: Condition) -> bool:
    return len(condition.patterns) == 1 and condition.patterns[0].is_literal


def _compare(condition: Condition, facts: Facts, rows: Places) -> tuple[Flags, Groups]:
    """Which of the rows meet a condition, each distinct value compared once; groups for all of the rows."""
    field = facts.field(condition.field)
    codes, places = np.unique(field.codes[rows], return_inverse=True)
    hits = np.zeros(len(codes), np.bool_)
    names = [group for pattern in condition.patterns for group in pattern.groups]
    groups = {name: np.full(len(codes), None, dtype=object) for name in names}
    for place, value in enumerate(field.values[codes]):
        pattern = next((p for p in condition.patterns if p.fits(value)), None)
        hits[place] = pattern is not None
        if pattern is not None and pattern.groups and (found := pattern.find(value)):
            for name, text in found.groupdict().items():
                groups[name][place] = text
    return hits[places], {name: texts[places] for name, texts in groups.items()}


def _fill_in(template: str, facts: Facts, rows: Places, groups: Groups) -> Texts:
    """The text that a rule gives each of the rows; None where it refers to what a row lacks."""
    if "{" not in template:
        return np.full(len(rows), template, dtype=object)
    parts = []
    for text, is_reference in split_template(template):
        if not is_reference:
            parts.append(np.full(len(rows), text, dtype=object))
        else:
            parts.append(groups[text] if text in groups else facts.field(text).take(rows))
    out: Texts = np.empty(len(rows), dtype=object)
    out[:] = [None if None in of else "".join(of).strip() or None for of in zip(*parts, strict=True)]
    return out


def _write(rows: pa.Table, original: dict[str, Texts], final: dict[str, Texts]) -> pa.Table:
    replaced = {column: final[column] != original[column] for column in original}
    kept = np.full(rows.num_rows, None, dtype=object)
    written: dict[tuple[tuple[str, str], ...], str] = {}  # few differ
    for row in np.flatnonzero(np.logical_or.reduce(list(replaced.values()))).tolist():
        values = tuple((column, original[column][row] or "") for column in original if replaced[column][row])
        text = written.get(values)
        if text is None:
            text = written[values] = json.dumps(dict(values), sort_keys=True, ensure_ascii=False)
        kept[row] = text
    for column, texts in (*final.items(), (ORIGINAL, kept)):
        if column == ORIGINAL or replaced[column].any():
            rows = rows.set_column(rows.column_names.index(column), column, pa.array(texts, pa.string()))
    return rows


def _is_null(values: Texts) -> Flags:
    nulls: Flags = np.equal(values, _NOTHING, dtype=object).astype(np.bool_)
    return nulls


class ChargeFacts(Facts):
    """The fields of rows of charges: `tag.KEY` is a tag of the bill, `account` the sub account's id, or its name without one."""

    def _read(self, name: str) -> FactColumn:
        if name.startswith(BILL_TAGS):
            texts, documents = self._tags
            key = name.partition(".")[2]
            return FactColumn.of_documents(texts, [_read_text(document.get(key)) for document in documents])
        if name in CHARGE_COLUMNS:
            columns = [self._rows[column] for column in CHARGE_COLUMNS[name]]
            return FactColumn.of_column(pc.coalesce(*columns))
        return super()._read(name) if name in MATCHED_COLUMNS else FactColumn.empty(self._rows.num_rows)

    @cached_property
    def _tags(self) -> tuple[FactColumn, list[dict[str, Any]]]:
        texts = FactColumn.of_column(pc.coalesce(self._rows["AllocatedTags"], self._rows["Tags"]))
        return texts, [read_object(text) for text in texts.values[:-1]]


def read_object(text: str | None) -> dict[str, Any]:
    """A JSON object; an empty one where the text is none."""
    if not text:
        return {}
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _read_text(value: Any) -> str | None:
    if value is None:
        return None
    text = (value if isinstance(value, str) else json.dumps(value)).strip()
    return text or None


def _read_original(value: Any) -> str | None:
    """A text of the source; None for the empty one, which stands for nothing."""
    return value if isinstance(value, str) and value else None


def restore_source(rows: pa.Table) -> pa.Table:
    """The rows with the values of their source, before any rule."""
    if rows[ORIGINAL].null_count == rows.num_rows:
        return rows
    texts = FactColumn.of_column(rows[ORIGINAL])
    documents = [read_object(text) for text in texts.values]  # the last is that of none
    for column in GIVES.values():
        replaced = np.array([column in document for document in documents])[texts.codes]
        if replaced.any():
            original = FactColumn.of_documents(
                texts, [_read_original(document.get(column)) for document in documents[:-1]]
            )
            values = FactColumn.of_column(rows[column])
            everywhere = np.arange(rows.num_rows)
            merged = np.where(replaced, original.take(everywhere), values.take(everywhere))
            rows = rows.set_column(rows.column_names.index(column), column, pa.array(merged, pa.string()))
    return rows.set_column(rows.column_names.index(ORIGINAL), ORIGINAL, pa.nulls(rows.num_rows, pa.string()))
