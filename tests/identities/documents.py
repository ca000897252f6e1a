"""The statements of a month as its files have them, read back by readers that are not ours."""

import csv
import re
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from typing import Final

from openpyxl import load_workbook
from pypdf import PdfReader
from tests.identities.fleet import Fleet
from tests.identities.values import Reader, Values

TITLE: Final = "effective cost, {}"
LINE: Final = re.compile(r" *(\S+(?: \S+)*) {2,}.* (direct|shared) .* (-?[\d,]+\.\d+)")
TOTAL: Final = re.compile(r" *total .* (-?[\d,]+\.\d+)")
Cells = tuple[str, str, str]
"""Statement, kind and amount of a line; the total has no kind."""


def read_file(kind: str) -> Reader:
    """What a file of this kind charges, in all and each team: by its lines, of CSV by a row a statement, which sum to its total."""

    def read(fleet: Fleet) -> Values:
        charged: dict[str, Decimal] = defaultdict(Decimal, dict.fromkeys(fleet.teams, Decimal(0)))
        for name, of, amount in fleet.once(f"statement {kind}", lambda fleet: list(_read(fleet, kind))):
            charged["" if not of else name] += Decimal(amount.replace(",", ""))
        assert charged[""] == sum(of for name, of in charged.items() if name), "lines sum to the total"
        return {name: charged[name] for name in ("", *fleet.teams)}

    return read


def _read(fleet: Fleet, kind: str) -> Iterator[Cells]:
    path = fleet.folder / f"statements.{kind}"
    fleet.build("statement", output=path, **fleet.of_month)
    if kind == "pdf":
        text = "\n".join(page.extract_text(extraction_mode="layout") for page in PdfReader(path).pages)
        lines = text[text.index(" Lines") : text.index(" Assumed")].splitlines()
        yield from (found.groups() for line in lines if (found := LINE.fullmatch(line.rstrip())))
        yield from (("total", "", found[1]) for line in lines if (found := TOTAL.fullmatch(line.rstrip())))
        return
    title = TITLE.format(fleet.books.store.currency)
    if kind == "xlsx":
        heads, *rows = load_workbook(path)["Lines"].iter_rows(values_only=True)
        named = [dict(zip(heads, row, strict=True)) for row in rows if row[0]]
        assert all(isinstance(row[title], int | float) for row in named)
        yield from ((row["statement"], row["kind"] or "", f"{row[title]:.2f}") for row in named)
    else:
        with path.open() as file:
            rows = list(csv.DictReader(file))
        yield from ((row["team"] or row["pool"], "" if row is rows[-1] else "all", row[title]) for row in rows)
