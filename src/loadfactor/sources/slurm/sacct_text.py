"""Text of `sacct -P` in batches of cells: the heading names the fields and shows what stands between them.

Slurm quotes nothing, so what stands between fields may also stand in one. In a last field of free text (a job's name) it is part of
the text; in any other place nobody can say where the field ends, and the line is refused.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.sources.base import Input
from loadfactor.sources.parsing.cells import quote
from loadfactor.sources.parsing.text_blocks import TextBlock, split_blocks

FREE_TEXT: Final = ("jobname", "comment", "admincomment", "systemcomment", "submitline", "workdir", "constraints")
"""Fields whose text may hold what stands between fields."""
_NEEDED: Final = ("state", "start", "end")
TRES_FIELDS: Final = ("alloctres", "tresallocstr", "allocgres", "reqtres", "tresreqstr", "reqgres")
_BLOCK_BYTES: Final = 4 * BYTES_PER_MIB
_STAND_IN: Final = "\x1f"  # for what is several characters between fields
_BETWEEN: Final = re.compile(r"[A-Za-z0-9]+([^A-Za-z0-9]+)[A-Za-z0-9]")


@dataclass(frozen=True)
class CellBatch:
    """Rows whose cells are all text; an empty cell is null. `lines`: the line of each row."""

    cells: pa.Table
    lines: np.ndarray[Any, np.dtype[np.int64]]
    label: str
    cut_off: int | None = None  # the line that the input breaks off in


@dataclass(frozen=True)
class SacctHeading:
    """The first line: fields in lower case, and what stands between them."""

    text: str
    fields: tuple[str, ...]
    delimiter: str
    is_closed: bool  # also at the end of every line (sacct -p)

    @property
    def ends_in_text(self) -> bool:
        """True where the last field is free text."""
        return self.fields[-1] in FREE_TEXT


def find_heading(label: str, line: str) -> SacctHeading:
    """The heading in a line. SourceError where it is none, or lacks a field that every import needs."""
    text = line.rstrip("\r\n")
    found = _BETWEEN.match(text)
    between = found[1] if found else "|"
    is_closed = text.endswith(between)
    fields = tuple(name.strip().lower() for name in text.removesuffix(between).split(between))
    if "jobid" not in fields and "jobidraw" not in fields:
        raise SourceError(
            f"{label}: the first line names no JobID, so it is no output of `sacct -P` with its heading; "
            "docs/import-slurm.md has the command"
        )
    if not between.strip(" "):
        raise SourceError(f"{label}: its columns are aligned with spaces, and cut off; write it with `sacct -P`")
    missing = [name for name in _NEEDED if name not in fields]
    if missing:
        said = {"state": "State", "start": "Start", "end": "End"}
        raise SourceError(
            f"{label}: sacct's fields {', '.join(said[name] for name in missing)} are missing; add them to --format"
        )
    if not set(fields) & set(TRES_FIELDS):
        raise SourceError(f"{label}: no field says which GPUs a job has; add AllocTRES,ReqTRES to --format")
    doubled = next((name for name in fields if fields.count(name) > 1), None)
    if doubled is not None:
        raise SourceError(f"{label}: two columns are called {quote(doubled)}; keep one")
    return SacctHeading(text, fields, between, is_closed)


def split_sacct(source: Input, wanted: frozenset[str]) -> Iterator[CellBatch]:
    """The rows under the heading, of their fields those wanted; blank lines and repeated headings are read over.

    SourceError names input and line: no heading, not text, more or fewer fields than the heading names.
    """
    heading: SacctHeading | None = None
    blocks = split_blocks(source, _BLOCK_BYTES)
    block = next(blocks, None)
    while block is not None:
        following = next(blocks, None)
        data, line = block.data, block.line
        if heading is None:
            stripped = data.lstrip(b"\n")
            line += len(data) - len(stripped)
            first, _, data = stripped.partition(b"\n")
            heading = find_heading(source.label, first.decode())
            line += 1
            if data.startswith(b"---"):
                raise SourceError(f"{source.label}: its columns are aligned with spaces; write it with `sacct -P`")
        if data and not data.isspace():
            yield _split_block(source.label, heading, TextBlock(data, line), wanted, following is None)
        block = following


def _split_block(
    label: str, heading: SacctHeading, block: TextBlock, wanted: frozenset[str], is_last: bool
) -> CellBatch:
    data, delimiter = _prepare(heading, block.data)
    is_broken_off = is_last and not data.endswith(b"\n")
    names = [*heading.fields, *(["(closed)"] if heading.is_closed else [])]
    wrong: list[Any] = []

    def set_aside(row: Any) -> str:
        wrong.append(row)
        return "skip"

    include = [name for name in heading.fields if name in wanted]
    try:
        cells = pacsv.read_csv(
            pa.BufferReader(data),
            read_options=pacsv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
            parse_options=pacsv.ParseOptions(
                delimiter=delimiter, quote_char=False, newlines_in_values=False, invalid_row_handler=set_aside
            ),
            convert_options=pacsv.ConvertOptions(
                include_columns=include,
                column_types=dict.fromkeys(include, pa.string()),
                strings_can_be_null=True,
                null_values=[""],
            ),
        )
    except pa.ArrowException as error:
        raise SourceError(f"{label}, near line {block.line}: {str(error).splitlines()[0]}") from None
    numbers = np.arange(1, cells.num_rows + len(wrong) + 1)
    mended, cut_off = _mend(label, heading, block, wrong, delimiter, is_broken_off)
    if wrong:
        kept = np.delete(numbers, [row.number - 1 for row in wrong])
        cells = pa.concat_tables([cells, pa.table({n: [row[n] for _, row in mended] for n in include}, cells.schema)])
        numbers = np.concatenate([kept, np.array([number for number, _ in mended], dtype=kept.dtype)])
    first = "jobid" if "jobid" in include else include[0]
    again = pc.fill_null(pc.equal(pc.utf8_lower(cells[first]), first), False).to_numpy()
    if again.any():
        cells, numbers = cells.filter(pa.array(~again)), numbers[~again]
    return CellBatch(cells.combine_chunks(), numbers + block.line - 1, label, cut_off)


def _prepare(heading: SacctHeading, data: bytes) -> tuple[bytes, str]:
    """The block with one character between its fields, and that character."""
    if len(heading.delimiter) == 1:
        return data, heading.delimiter
    return data.replace(heading.delimiter.encode(), _STAND_IN.encode()), _STAND_IN


def _mend(
    label: str, heading: SacctHeading, block: TextBlock, wrong: list[Any], delimiter: str, is_broken_off: bool
) -> tuple[list[tuple[int, dict[str, str | None]]], int | None]:
    """Rows with more fields than the heading names, where the last one is free text; the line that the input breaks off in."""
    mended: list[tuple[int, dict[str, str | None]]] = []
    total = block.data.count(b"\n") + 1 if is_broken_off else 0
    blank = block.data.count(b"\n\n") if is_broken_off else 0
    for row in wrong:
        number = block.line + row.number - 1
        text = row.text.rstrip("\r\n")
        if heading.is_closed:
            text = text.removesuffix(delimiter)
        cells = text.split(delimiter, len(heading.fields) - 1)
        if len(cells) == len(heading.fields) and (heading.ends_in_text or delimiter not in cells[-1]):
            mended.append((row.number, dict(zip(heading.fields, (cell or None for cell in cells), strict=True))))
        elif len(cells) < len(heading.fields) and is_broken_off and row.number >= total - blank:
            return mended, number
        else:
            what = "more" if len(cells) == len(heading.fields) else "fewer"
            remedy = "; write JobName as the last field" if what == "more" else "; is it cut off?"
            raise SourceError(
                f"{label}, line {number}: {what} fields than the {len(heading.fields)} of the heading: {quote(text)}{remedy}"
            )
    return mended, None
