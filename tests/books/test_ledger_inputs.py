"""What booked hours stand on, in the manifest: read as it was written, in the words of before too, and nothing is booked again."""

import json
from dataclasses import astuple, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.books.charging.gpu_bills import line
from tests.books.charging.test_billed_prices import bill, booked, make_books

from loadfactor.books.books import Books
from loadfactor.books.ledger_inputs import BookedBills, BookedFile, LedgerInputs, OwnedPrice, OwnedPrices, read_inputs
from loadfactor.store.manifest import NAME, write_down
from loadfactor.tables.schema import ALWAYS, Span

__all__ = ["booked"]

DIGEST = st.text("0123456789abcdef", min_size=16, max_size=16)
INSTANT = st.integers(*ALWAYS)
NAMED = st.none() | st.text(min_size=1)
FILES = st.builds(BookedFile, DIGEST, INSTANT, INSTANT)
BILLS = st.builds(BookedBills, DIGEST, DIGEST, st.lists(FILES, max_size=4).map(lambda files: tuple(sorted(files))))
ROWS = st.builds(OwnedPrice, NAMED, NAMED, st.none() | INSTANT, st.none() | INSTANT, st.floats(0, 1e12), NAMED)
OWNED = st.just(OwnedPrices()) | st.builds(OwnedPrices, DIGEST, st.lists(ROWS, max_size=3).map(tuple))
INPUTS = st.builds(LedgerInputs, DIGEST, DIGEST, DIGEST, st.none() | BILLS, OWNED)


def write_words(inputs: LedgerInputs) -> str:
    """As manifests kept it before."""
    said = f"{inputs.sources} {inputs.unlisted} {inputs.names}"
    if inputs.bills:
        files = (f"{f.checksum}@{f.from_ms}-{f.to_ms}" for f in inputs.bills.files)
        said += "|" + ",".join([inputs.bills.rules, inputs.bills.nodes, *files])
    if inputs.owned.written:
        rows = [astuple(row) for row in inputs.owned.rows]
        said += " " + json.dumps({"written": inputs.owned.written, "rows": rows})
    return said


@given(INPUTS)
def test_what_is_written_is_read(inputs: LedgerInputs) -> None:
    """In today's form and in the words of before."""
    assert read_inputs(inputs.write()) == inputs
    assert read_inputs(write_words(inputs)) == inputs


@pytest.mark.parametrize("is_owned", [False, True])
def test_books_of_before_are_not_booked_again(
    is_owned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, booked: list[Span]
) -> None:
    """Whose manifest keeps the words: they are read and compacted as they are, and what comes later books its own hours."""
    from loadfactor.settings.config import settings

    monkeypatch.chdir(tmp_path)
    (tmp_path / "loadfactor.toml").write_text(
        '[[owned]]\naccelerator = "a100-sxm-40gb"\nserver_price = 90_000\nserver_kw = 6\n' if is_owned else ""
    )
    settings.cache_clear()
    try:
        books = make_books(tmp_path, {"i-1": (8, 0, 72), "i-2": (8, 0, 72)})
        bill(books, tmp_path, [line("i-1", hour, 1, "8") for hour in range(24)])
        cost = books.show("cost")[0].value
        manifest = books.store.manifest
        words = write_words(read_inputs(manifest.sources_key))
        assert (" {" in words) == is_owned
        (tmp_path / "store" / NAME).write_bytes(write_down(replace(manifest, sources_key=words)))
        booked.clear()
        before = Books(tmp_path / "store")
        before.compact()
        assert before.show("cost")[0].value == cost
        assert booked == [], "what did not change is not booked"
        bill(before, tmp_path, [line("i-2", hour, 1, "9", BillingAccountId="2") for hour in range(24)], "more.csv")
        assert booked
        assert max(end for _, end in booked) - min(start for start, _ in booked) <= 24 * 3_600_000
        assert before.store.manifest.sources_key.startswith("{")
    finally:
        settings.cache_clear()
