"""Keeps the books of a GPU fleet, and answers what to do about them.

Rooms, in the order the data flows (an import only ever points up this list):

- `units`, `tables`, `errors`, `config`, `catalog`: the ground floor
- `sources`: the outside world, turned into the tables
- `store`: keeps the tables as Parquet, runs the questions
- `metrics`: what every number means; the ledger
- `planner`: equations of what could be
- `faces`: the command line, reports and pages
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loadfactor.books.books import Books

__version__ = "0.1.0"


def open(folder: str) -> "Books":
    """The books kept in a folder; made on the first import."""
    from loadfactor.books.books import Books

    return Books(folder)
