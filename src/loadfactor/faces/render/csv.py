"""The main table of a document as CSV, its values unrounded."""

import csv
import io

from loadfactor.errors import InputError
from loadfactor.faces.document import Document


def render_csv(document: Document) -> str:
    """Headings and rows of the first table; an empty cell was not measured. InputError where the page has no table."""
    tables = [table for section in document.sections for table in section.tables]
    if not tables:
        raise InputError("this answer has no table to write as CSV; take --format json")
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.title for column in tables[0].columns])
    writer.writerows(["" if cell is None else cell for cell in row] for row in tables[0].rows)
    return out.getvalue()
