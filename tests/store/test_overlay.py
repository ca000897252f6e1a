"""The overlay: questions on the same rows share what was made of them, whatever is written meanwhile."""

import shutil
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest
from tests.store.live_batches import START, batch

from loadfactor.books import rebuild, snapshot
from loadfactor.books.books import Books
from loadfactor.metrics.query.answer import answer
from loadfactor.metrics.query.question import Fetch, Question
from loadfactor.metrics.query.reading import Readings
from loadfactor.store import live_rows, overlay
from loadfactor.store.live import LiveBatch, LiveLog, OriginState, ReceivedBody
from loadfactor.store.live_copy import LOG_SUFFIX, NAME, LogMark, is_as_read, open_marked_copy
from loadfactor.store.session import Entry, Session
from loadfactor.store.store import Store

GPU = LiveBatch("dcgm", "devices", pa.table({"device_id": ["g0"], "node": ["n0"], "from_utc": [START]}), "node-7:9400")


def mark(folder: Path) -> LogMark | None:
    with open_marked_copy(folder) as (_connection, found):
        return found


def paid(books: Books) -> object:
    (reading,) = books.show("paid_gpu_hours")
    return reading.value


@pytest.mark.long
def test_questions_on_the_same_live_rows_share_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read and booked once, again with a new batch or a flush alone; and a process that never asked gets the same."""
    made: list[str] = []

    def count(module: ModuleType, name: str) -> None:
        work = getattr(module, name)

        def counted(*of: object, **options: object) -> object:
            made.append(name)
            return work(*of, **options)

        monkeypatch.setattr(module, name, counted)

    count(live_rows, "show_live")
    count(rebuild, "book")
    books = Books.open(tmp_path, create=True)
    with LiveLog.open(tmp_path) as log:
        seen = []
        for first in (0, 600):
            log.acknowledge([GPU, batch(600, first)])
            seen += [paid(books) for _ in range(3)]
            log.keep([ReceivedBody("remote_write", "remote_write", first, b"body")]).result()
            seen.append(paid(books))
        assert made == ["show_live", "book"] * 2
        assert seen == pytest.approx([599 / 3600] * 4 + [1199 / 3600] * 4)
        assert paid(Books.open(tmp_path)) == seen[-1]
        log.discard_through(books.flush())
        del made[:]
        assert paid(books) == pytest.approx(seen[-1])
        assert not made


def list_overlays(session: Session) -> set[str]:
    """The overlays that the engine of this process holds."""
    found = session.fetch("SELECT DISTINCT schema_name FROM duckdb_schemas() WHERE schema_name LIKE 'overlay%'")
    return set(found["schema_name"].to_pylist())


def test_a_snapshot_keeps_the_rows_it_began_with(tmp_path: Path) -> None:
    """Newer batches change nothing for it; what nobody shows any more leaves memory."""
    books = Books.open(tmp_path, create=True)
    with books.store.read() as session:
        others = list_overlays(session)  # what exceptions of other tests hold
    with LiveLog.open(tmp_path) as log:
        log.acknowledge([GPU, batch(600)])
        with books.snapshot() as before:
            log.acknowledge([batch(600, 600)])
            assert paid(books) == pytest.approx(1199 / 3600)
            (reading,) = before.show("paid_gpu_hours", by="device")
            assert reading.value == pytest.approx(599 / 3600)
        with books.store.read() as session:
            (own,) = {relation.partition(".")[0] for relation in (part.relation for part in session.live_samples)}
            assert list_overlays(session) - others == {own}


def test_rules_of_tagging_that_change_count_at_once(tmp_path: Path) -> None:
    """Live rows are tagged by the rules of now."""
    rules = [Entry(tag=lambda _table, rows: rows)]
    store = Store(tmp_path, entry=lambda: rules[-1])
    held = {"job_id": ["j"], "device_id": ["g0"], "team": ["a"], "from_utc": [START], "to_utc": [START + 1000]}

    def rename(table: str, rows: pa.Table) -> pa.Table:
        place = rows.column_names.index("team")
        return (
            rows.set_column(place, rows.schema.field(place), pa.array(["b"] * len(rows)))
            if table == "allocations"
            else rows
        )

    teams = []
    with LiveLog.open(tmp_path) as log:
        log.acknowledge([LiveBatch("s", "allocations", pa.table(held), "w")])
        for _ in range(2):
            with store.read() as session:
                session.view_table("allocations", "allocations")
                teams += session.fetch("SELECT team FROM allocations")["team"].to_pylist()
            rules.append(replace(rules[0], tag=rename))
    assert teams == ["a", "b"]


def test_every_write_is_seen(tmp_path: Path) -> None:
    """Batches, bodies, states, what is discarded, a log begun anew and one that is gone: nothing of it looks like what was read."""
    with LiveLog.open(tmp_path) as log:
        log._connection.execute("PRAGMA wal_autocheckpoint = 8")  # begins its log anew all the time
        for k in range(40):
            before = mark(tmp_path)
            assert is_as_read(tmp_path, before)
            if k % 4 == 0:
                log.acknowledge([batch(200)])
            elif k % 4 == 1:
                log.keep([ReceivedBody("o", "f", k, b"body")]).result()
            elif k % 4 == 2:
                log.book(OriginState("o", k, b"state"), k, [])
            else:
                log.discard_through(log.acknowledge([]))
            assert not is_as_read(tmp_path, before)
        before = mark(tmp_path)
        log._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert not is_as_read(tmp_path, before)
    assert mark(tmp_path) is None
    assert not is_as_read(tmp_path, None)


def test_a_commit_under_way_is_read_again(tmp_path: Path) -> None:
    """Where the log ends inside a commit, or a page of it is still to come, it is not what was read once it is whole."""
    with LiveLog.open(tmp_path / "books") as log:
        log.acknowledge([batch()])
        begun = (tmp_path / "books" / (NAME + LOG_SUFFIX)).stat().st_size
        log.acknowledge([batch(3000)])
        shutil.copytree(tmp_path / "books", tmp_path / "copy")
    path = tmp_path / "copy" / (NAME + LOG_SUFFIX)
    whole = path.read_bytes()
    for size in range(begun, len(whole), (len(whole) - begun) // 23):
        path.write_bytes(whole[:size])
        before = mark(tmp_path / "copy")
        path.write_bytes(whole)
        assert not is_as_read(tmp_path / "copy", before)
        path.write_bytes(whole[:size] + bytes(len(whole) - size))  # room for a page that is still to come
        before = mark(tmp_path / "copy")
        path.write_bytes(whole)
        assert not is_as_read(tmp_path / "copy", before)
    assert is_as_read(tmp_path / "copy", mark(tmp_path / "copy"))


def test_an_answer_is_kept_until_the_books_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same books, settings and question, in whatever session, also of books at rest; of too many the oldest go."""
    answered: list[tuple[str, ...]] = []

    def count(question: Question, fetch: Fetch) -> Readings:
        answered.append(question.by)
        return answer(question, fetch)

    monkeypatch.setattr(snapshot, "answer", count)
    books, more = Books.open(tmp_path / "books", create=True), tmp_path / "more"
    more.mkdir()
    (more / "devices.csv").write_text(f"device_id,node,from_utc,to_utc\ng0,n0,{START},{START + 3_600_000}\n")
    books.add("tables", [more])
    assert {paid(books) for _ in range(3)} == {1.0}
    assert len(books.show("paid_gpu_hours", "device")) == 1
    assert answered == [(), ("device",)]
    monkeypatch.setattr(overlay, "MOST_KEPT", 2)
    books.show("paid_gpu_hours", "node")
    assert paid(books) == paid(Books.open(tmp_path / "books"))
    (more / "devices.csv").write_text(f"device_id,node,from_utc,to_utc\ng1,n0,{START},{START + 3_600_000}\n")
    books.add("tables", [more])
    assert paid(books) == 2.0
    assert answered[2:] == [("node",), (), (), ()]
