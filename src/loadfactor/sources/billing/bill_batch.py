"""A batch of rows of a bill: its cells by the names that exports give them, as texts, exact amounts and instants."""

import json
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.base.errors import SourceError
from loadfactor.sources.billing.amounts import AMOUNT, check_sign, parse_amounts, parse_instants
from loadfactor.sources.billing.bill_file import BillFile, fold_name
from loadfactor.sources.billing.tags import join_objects, parse_objects, strip_owner
from loadfactor.sources.parsing.cells import CellPosition
from loadfactor.tables.charges import CHARGES
from loadfactor.tables.schema import CURRENCY

_AWS: Final = (
    r"(?:^|[^a-z0-9.-])(?P<type>(?:ml\.)?[a-z][a-z0-9-]*"
    r"\.(?:nano|micro|small|medium|large|[0-9]*xlarge|metal)(?:-[a-z0-9]+)?)(?:$|[^a-z0-9.-])"
)
_AZURE: Final = r'"ServiceType"\s*:\s*"(?P<type>(?:Standard|Basic)_[^"]+)"'
_GOOGLE: Final = r'"compute\.googleapis\.com/machine_spec"\s*:\s*"(?P<type>[^"]+)"'
_FOCUS: Final = r'"InstanceType"\s*:\s*"(?P<type>[^"]+)"'


def find_aws_type(*texts: pa.Array) -> pa.Array:
    """p4d.24xlarge out of USE1-BoxUsage:p4d.24xlarge or a description; the first text that has one.

    >>> find_aws_type(pa.array(["USE1-BoxUsage:p4d.24xlarge", "$0.04 per Linux t3.medium Hour", "0.5 GB"])).to_pylist()
    ['p4d.24xlarge', 't3.medium', None]
    """
    return pc.coalesce(*(_extract(text, _AWS) for text in texts))


def find_azure_type(additional_info: pa.Array) -> pa.Array:
    """Standard_ND96asr_v4 out of AdditionalInfo, with or without braces."""
    return _extract(additional_info, _AZURE)


def find_google_type(system_labels: pa.Array) -> pa.Array:
    """a2-highgpu-1g out of system labels as a JSON object."""
    return _extract(system_labels, _GOOGLE)


def find_focus_type(price_details: pa.Array) -> pa.Array:
    """The key InstanceType of SkuPriceDetails (FOCUS 1.1)."""
    return _extract(price_details, _FOCUS)


def _extract(texts: pa.Array, pattern: str) -> pa.Array:
    return pc.struct_field(pc.extract_regex(texts, pattern), "type")


NO_TEXT: Final = pa.scalar(None, pa.string())
NO_AMOUNT: Final = pa.scalar(None, AMOUNT)
ZERO: Final = pa.scalar(0, AMOUNT)
_NULLS: Final = pa.array(["", "NULL", "null", "Null", "\\N"])


@dataclass(frozen=True)
class BillBatch:
    """Rows of one file. Columns are found by any of their names; one that is missing is null."""

    file: BillFile
    cells: pa.RecordBatch
    first_row: int
    _texts: dict[str, pa.Array] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return int(self.cells.num_rows)

    @cached_property
    def _columns(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for index, name in enumerate(self.cells.schema.names):
            found.setdefault(fold_name(name), index)
        return found

    def has(self, name: str) -> bool:
        """True when the file has the column."""
        return fold_name(name) in self._columns

    def text(self, *names: str) -> pa.Array:
        """The first of these columns that says something, row by row, as text; NULL and empty cells are null."""
        present = [self._text(name) for name in names if self.has(name)]
        return (pc.coalesce(*present) if len(present) > 1 else present[0]) if present else self.repeat(None)

    def exact(self, *names: str) -> pa.Array:
        """The first of these columns that the file has, as exact decimals; never a mixture. SourceError as `parse_amounts`."""
        for name in names:
            if self.has(name):
                cells = self._plain(name)
                if not pa.types.is_floating(cells.type):
                    cells = self._text(name)
                return parse_amounts(cells, self.position(name), self.file.notes)
        return pa.nulls(len(self), AMOUNT)

    def instant(self, *names: str) -> pa.Array:
        """The first of these columns that says something, row by row, as int64 milliseconds UTC."""
        found = [self._instant(name) for name in names if self.has(name)]
        return (pc.coalesce(*found) if len(found) > 1 else found[0]) if found else pa.nulls(len(self), pa.int64())

    def json(self, *names: str) -> pa.Array:
        """The first of these columns that the file has, as JSON objects with sorted keys; what is none is counted and null."""
        for name in names:
            if self.has(name):
                cells = self._plain(name)
                texts, wrong = parse_objects(cells if pa.types.is_nested(cells.type) else self._text(name))
                self.file.count(f"{self._written(name)} that are no JSON object; left empty", wrong)
                return texts
            if any(n.lower().startswith(f"{name.lower()}.") for n in self.cells.schema.names):
                return self.tagged(f"{name.lower()}.")  # a struct of Parquet, taken apart
        return self.repeat(None)

    def key(self, name: str, key: str) -> pa.Array:
        """What a column of maps, or of JSON objects, says under a key, as text."""
        if not self.has(name):
            return self.repeat(None)
        cells = self._plain(name)
        if pa.types.is_map(cells.type):
            return self._null_words(pc.map_lookup(cells, pa.scalar(key, cells.type.key_type), "first"))
        encoded = parse_objects(self._text(name))[0].dictionary_encode()
        found = [json.loads(text).get(key) for text in encoded.dictionary.to_pylist()]
        return pa.array([None if of is None else str(of) for of in found], pa.string()).take(encoded.indices)

    def lists(self, name: str) -> pa.Array | None:
        """Cells that hold lists: as Parquet stores them, or as JSON text. None without such a column."""
        if not self.has(name):
            return None
        cells = self._plain(name)
        return cells if pa.types.is_nested(cells.type) else self._text(name)

    def currency(self, names: tuple[str, ...], cost: pa.Array) -> pa.Array:
        """The currency of every row; one for the file.

        Raises SourceError: none named and none given, another one than the rows above or the caller gave, no three letters.
        """
        file, label = self.file, self.file.label
        named = next((name for name in names if self.has(name)), None)
        if named is None and file.currency is None:
            raise SourceError(f"{label}: no column names its currency; name it with --currency USD")
        cells = pc.utf8_upper(pc.utf8_trim_whitespace(self.text(*names)))
        for value in pc.unique(cells).drop_null().to_pylist():
            why = ""
            if not re.match(CURRENCY, value):
                why = "is no currency; write the three letters of ISO 4217"
            elif file.currency not in (None, value):
                why = f"where {file.currency} was said before; import each currency as a file of its own"
            if why:
                raise self.position(named or "").refuse(pc.index(cells, value).as_py(), value, why)
            file.currency = value
        lacking = pc.and_(pc.is_null(cells), pc.fill_null(pc.not_equal(cost, ZERO), False))
        index = pc.index(lacking, value=True).as_py()
        if index >= 0 and file.currency is None:
            raise self.position(named or "").refuse(index, "", "is empty; name the currency with --currency USD")
        if file.currency is not None:
            check_sign(label, file.notes.sign, file.currency)
        return pc.fill_null(cells, file.currency) if file.currency is not None else cells

    def repeat(self, value: str | None) -> pa.Array:
        """One text for every row."""
        return pa.repeat(pa.scalar(value, pa.string()), len(self))

    def tagged(self, prefix: str) -> pa.Array:
        """Tags that have a column each, `resourceTags/user:team`, as JSON objects."""
        names = [n for n in self.cells.schema.names if n.lower().startswith(prefix)]
        tags = {strip_owner(n[len(prefix) :]): self._null_words(self.cells.column(n)) for n in names}
        return join_objects(tags) if tags else self.repeat(None)

    def _instant(self, name: str) -> pa.Array:
        cells, position = self._plain(name), self.position(name)
        if not pa.types.is_temporal(cells.type):
            cells = self._text(name)
            self.file.learn_days(fold_name(name), cells, position)
        return parse_instants(cells, position, self.file.order)

    def _plain(self, name: str) -> pa.Array:
        return self.cells.column(self._columns[fold_name(name)])

    def _text(self, name: str) -> pa.Array:
        folded = fold_name(name)
        if folded not in self._texts:
            self._texts[folded] = self._null_words(self._plain(name))
        return self._texts[folded]

    def _null_words(self, cells: pa.Array) -> pa.Array:
        if pa.types.is_nested(cells.type):  # where a bill has one text: shown in messages as JSON
            text = pa.array([None if v is None else json.dumps(v, default=str) for v in cells.to_pylist()], pa.string())
        else:
            text = cells if pa.types.is_string(cells.type) else pc.cast(cells, pa.string())
        nulls = pc.is_in(text, value_set=_NULLS)
        return pc.if_else(nulls, NO_TEXT, text) if nulls.true_count else text

    def _written(self, name: str) -> str:
        return str(self.cells.schema.names[self._columns[fold_name(name)]]) if self.has(name) else name

    def position(self, name: str) -> CellPosition:
        """Where the cells of a column stand, for messages."""
        return CellPosition(self.file.label, self._written(name), self.first_row)


def make_charges(columns: dict[str, pa.Array], rows: int) -> pa.Table:
    """A table of charges of these columns; those left out are null."""
    return pa.table(
        [columns[f.name] if f.name in columns else pa.nulls(rows, f.type) for f in CHARGES.schema],
        schema=CHARGES.schema,
    )


def pick(condition: pa.Array, one: pa.Array, other: pa.Array) -> pa.Array:
    """One where the condition holds, else the other; an unknown condition does not hold."""
    return pc.if_else(pc.fill_null(condition, False), one, other)


def rename(cells: pa.Array, names: dict[str, str], other: pa.Array) -> pa.Array:
    """The names that cells have here, whatever their case; `other` where they have none."""
    lower = pc.utf8_lower(cells)
    index = pc.index_in(lower, value_set=pa.array([n.lower() for n in names]))
    return pc.coalesce(pa.array(list(names.values()), pa.string()).take(index), other)
