"""What the server of children has done once before it forks them: everything is imported, compiled and cached."""

from pathlib import Path
from tempfile import TemporaryDirectory

from tests.torture.bench import ask
from tests.torture.fleet import PARTS, write_parts

from loadfactor.books.books import Books
from loadfactor.interfaces import cli  # noqa: F401


def work_once() -> None:
    """Import, forget, compact and ask a store that is gone afterwards."""
    with TemporaryDirectory(prefix="torture-warm-") as folder:
        write_parts(Path(folder) / "parts")
        books = Books(Path(folder) / "store")
        for part in PARTS:
            books.add("tables", [Path(folder) / "parts" / part])
        books.forget(3)
        books.compact()
        books.check()
        ask(Path(folder) / "store")


work_once()
