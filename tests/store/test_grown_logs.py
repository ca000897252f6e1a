"""A training log that is imported again when it is longer: the longer one counts, alone."""

from pathlib import Path

import pytest
from tests.sources.training_logs.logs import megatron_line

from loadfactor.books.books import Books
from loadfactor.sources.base import ReadOptions

RUN = ReadOptions(held_by="run")
START_MS = 1_790_000_000_000


def write_lines(path: Path, *steps: int, day: str = "2026-10-05") -> Path:
    """A log of these steps, a minute each."""
    lines = [
        f"[{day} {8 + n // 60:02}:{n % 60:02}:00] iteration {step}/ 900 | consumed samples: {step * 4} |"
        f" elapsed time per iteration (ms): {50_000 + 100 * n}.0 | number of skipped iterations: 0 |"
        for n, step in enumerate(steps)
    ]
    path.write_text("\n".join([*lines, ""]))
    return path


def add_up(books: Books) -> dict[tuple[str, bool], float]:
    """Amounts by unit and whether they were kept."""
    found: dict[tuple[str, bool], float] = {}
    for row in books.table("progress").to_pyarrow().to_pylist():
        key = row["unit"], row["kept"]
        found[key] = found.get(key, 0) + row["amount"]
    return found


def test_a_log_that_grew_and_restarted(tmp_path: Path) -> None:
    """The same rows as in books that never saw the shorter file: what the restart lost is lost, not kept as well."""
    books, path = Books(tmp_path / "books"), tmp_path / "run.log"
    first = books.add("training-log", [write_lines(path, *range(1, 31))], RUN)
    second = books.add("training-log", [write_lines(path, *range(1, 31), *range(21, 51))], RUN)
    assert (first.replaced, second.replaced) == ((), (1,))
    once = Books(tmp_path / "once")
    once.add("training-log", [path], RUN)
    assert add_up(books) == add_up(once)
    assert add_up(books)["step", False] == 10
    assert books.add("training-log", [path], RUN).already


def test_an_untimed_log_does_not_shift(tmp_path: Path) -> None:
    """A log without any time, with the same start: as if the longer one were the only one."""
    path, options = tmp_path / "run.log", ReadOptions(held_by="run", begun_ms=START_MS)
    books = Books(tmp_path / "books")
    for last in (20, 50):
        path.write_text("".join(megatron_line(step) + "\n" for step in range(1, last + 1)))
        books.add("training-log", [path], options)
    assert add_up(books)["step", True] == 50
    assert [record.paths for record in books.imports] == [(str(path),)]


@pytest.mark.parametrize(("job", "day"), [("run", "2026-10-06"), ("other", "2026-10-05")])
def test_another_run_stays(tmp_path: Path, job: str, day: str) -> None:
    """A log that began anew under the same name, and one of another job, take nobody's place."""
    books, path = Books(tmp_path / "books"), tmp_path / "run.log"
    books.add("training-log", [write_lines(path, *range(1, 11))], RUN)
    receipt = books.add("training-log", [write_lines(path, *range(1, 21), day=day)], ReadOptions(held_by=job))
    assert receipt.replaced == ()
    assert add_up(books)["step", True] == 30
