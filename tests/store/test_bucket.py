"""Books in a bucket: the same answers as in a folder, conflicts done again, and what a bucket has to keep."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from obstore.exceptions import GenericError
from tests.object_stores.servers import BUCKET, serve_careless, serve_s3
from tests.store.live_batches import batch

from loadfactor.base.errors import DamageError, InputError, StoreError
from loadfactor.books.books import Books
from loadfactor.interfaces.engines.worker import book_task, name_books
from loadfactor.interfaces.pages.ledger_tasks import list_planned, publish
from loadfactor.sources.base import Rows, Source
from loadfactor.store import bucket
from loadfactor.store.bucket import Bucket
from loadfactor.store.live import LiveLog
from loadfactor.store.manifest import NAME
from loadfactor.store.objects import Objects
from loadfactor.store.place import ConflictError, UnsureError
from loadfactor.store.store import Store
from loadfactor.store.writer import Writer

SOURCE = Source("scheduler", lambda paths: paths, lambda _paths, _options: iter(()))


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    """An S3 server of its own."""
    with serve_s3() as names:
        yield names


@pytest.fixture
def url(s3: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A prefix of its own, with a cache of its own."""
    for name, value in {**s3, "XDG_STATE_HOME": str(tmp_path / "state")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(bucket, "cache_folder", lambda: tmp_path / "cache")
    return f"s3://{BUCKET}/{request.node.name}"


def add(books: Books, name: str) -> None:
    """Import a row of its own."""
    row = pa.table({"at_utc": [1_700_000_000_000], "device_id": ["gpu"], "kind": ["reset"], "detail": [name]})
    books.add_rows(SOURCE, [Rows("device_events", row)], name)


def names_of(books: Books) -> list[str]:
    """The imports, and each of their rows."""
    with books.store.read() as session:
        session.view_table("device_events", "device_events")
        rows = session.raw.execute("SELECT detail FROM device_events ORDER BY 1").fetchall()
    assert sorted(record.digest for record in books.imports) == [name for (name,) in rows]
    return [name for (name,) in rows]


def listed(url: str) -> list[str]:
    """The objects of a store, without what a file's name adds to its table."""
    return sorted(name.partition("-")[0] for name, _ in Objects(url).list())


@pytest.mark.long
def test_books_in_a_bucket_are_those_of_a_folder(url: str, tmp_path: Path) -> None:
    """Import, tasks, a closed copy and a question give what the same rows give in a folder; nothing is left of writing."""
    log = tmp_path / "gpus.csv"
    log.write_text(
        "device_id,from_utc,to_utc,busy_share\n"
        + "".join(f"a,2026-05-01T{h:02}:00:00Z,2026-05-01T{h + 1:02}:00:00Z,0.{h}\n" for h in range(1, 9)),
        encoding="utf-8",
    )
    folder = tmp_path / "tables"
    folder.mkdir()
    log.rename(folder / "samples.csv")
    (folder / "devices.csv").write_text(
        "device_id,node,accelerator,from_utc\na,n,H100-SXM-80GB,2026-05-01T00:00:00Z\n", encoding="utf-8"
    )
    there, here = Books(url), Books(tmp_path / "books")
    for books in (there, here):
        books.add("tables", [folder])
        assert books.add("tables", [folder]).already
    values = [(r.metric, r.value) for r in here.show()]
    assert [(r.metric, r.value) for r in there.show()] == values
    planned = list_planned(there, is_all=True)
    assert [task.store for task in planned] == [url]
    for task in planned:
        book_task(name_books(Path(url)), task.task)
    assert all(task.is_booked for task in list_planned(there, is_all=True))
    assert publish(there).tasks == len(planned)
    assert [(r.metric, r.value) for r in there.show()] == values
    there.forget(1)
    assert not there.imports
    assert {"arriving/staging", "tasks/2026", "probe", "turn.json"}.isdisjoint(listed(url))


def test_who_was_slower_begins_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another import is published while one is ready to be: it is done again from the newest books, and both are there once."""
    quicker, waited = Books(url), []
    published = Writer.publish

    def publish_slowly(self: Writer) -> object:
        if not waited:
            waited.append(True)
            add(quicker, "quicker")
        return published(self)

    add(quicker, "first")
    monkeypatch.setattr(Writer, "publish", publish_slowly)
    add(Books(url), "slower")
    assert names_of(quicker) == ["first", "quicker", "slower"]
    assert listed(url).count("turn.json") == listed(url).count("arriving/staging") == 0

    def once(writer: Writer) -> None:
        writer.mark_stale([(0, 1)])
        add(quicker, "third")

    with pytest.raises(ConflictError, match="run it again"):
        quicker.store.change(once, is_repeatable=False)
    assert names_of(quicker) == ["first", "quicker", "slower", "third"]


def test_an_answer_that_is_lost_is_found_out(url: str) -> None:
    """Put and not answered: it counts. Neither put nor answered: that is reported, and done again it is there once."""
    books = Books(url)
    place = books.store.place
    assert isinstance(place, Bucket)
    objects = place._objects.client
    add(books, "first")
    place._objects.client = Unanswered(objects, puts=True)  # type: ignore[assignment]
    add(books, "second")
    place._objects.client = Unanswered(objects, puts=False)  # type: ignore[assignment]
    with pytest.raises(UnsureError, match="is not known: run it again"):
        add(books, "third")
    place._objects.client = objects
    assert names_of(books) == ["first", "second"]
    assert "arriving/staging" in listed(url)
    add(books, "third")
    add(books, "third")
    assert names_of(Books(url)) == ["first", "second", "third"]


class Unanswered:
    """The client of an object store whose answers to puts of the manifest are lost."""

    def __init__(self, objects: Any, puts: bool) -> None:
        self._objects, self._puts = objects, puts

    def put(self, name: str, content: object, **options: object) -> object:
        """As the client; the manifest once, without an answer."""
        if name != NAME:
            return self._objects.put(name, content, **options)
        if self._puts:
            self._objects.put(name, content, **options)
        raise GenericError("the connection was closed")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._objects, name)


def test_a_copy_that_is_damaged_is_fetched_again(url: str, tmp_path: Path) -> None:
    """What lies in the cache is checked; only where the bucket has other bytes too the file is damaged, which names it."""
    books = Books(url)
    add(books, "first")
    (file,) = books.store.manifest.of("device_events")
    copy = tmp_path / "cache" / "files" / file.name
    copy.write_bytes(bytes(file.bytes))
    assert names_of(books) == ["first"]
    copy.unlink()
    Objects(url).put(file.name, bytes(file.bytes))
    with pytest.raises(DamageError, match=f"{url}/{file.name} is not what was written"):
        names_of(books)


def test_the_cache_keeps_to_its_size(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not used for longest goes when more is fetched than fits; what is used now stays."""
    books = Books(url)
    for name in ("first", "second"):
        add(books, name)
    there = set((tmp_path / "cache" / "files").glob("*.parquet"))
    files, place = books.store.manifest.files, Bucket(url, cache_gb=0)
    (tmp_path / "cache" / "files" / files[0].name).unlink()
    place.locate(files[:1])
    assert len(there) > len(files)
    assert set((tmp_path / "cache" / "files").glob("*.parquet")) == there
    monkeypatch.setattr(bucket, "USED_S", -1)
    (tmp_path / "cache" / "files" / files[0].name).unlink()
    place.locate(files[:1])
    assert [path.name for path in (tmp_path / "cache" / "files").glob("*.parquet")] == [files[0].name]


def test_what_nobody_reads_goes_by_its_age(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier generations and what died on its way stay for an hour; then they go, and all that counts is there."""
    books, died = Books(url), f"devices-{32 * 'a'}.parquet"
    for name in ("first", "second"):
        add(books, name)
    Objects(url).put(died, b"of a writer that died")
    Objects(url).put(f"arriving/staging-{32 * 'b'}", died.encode())
    add(books, "third")
    named = {file.name for file in books.store.manifest.files}
    assert {died, "earlier/1.json", "earlier/3.json"} < {name for name, _ in Objects(url).list()}
    monkeypatch.setattr(bucket, "KEPT_S", -10)
    add(books, "fourth")
    left = {name for name, _ in Objects(url).list()}
    assert left == {"manifest.json", *(file.name for file in books.store.manifest.files)}
    assert not named <= left
    assert names_of(books) == ["first", "fourth", "second", "third"]


def test_a_turn_is_waited_for_no_longer_than_it_says(url: str) -> None:
    """A writer that lost asks the others to wait; one that died holds nobody up."""
    place = Bucket(url)
    Objects(url).put("turn.json", b'{"by": "one that died", "for_s": 0.2}')
    add(Books(url), "first")
    assert "turn.json" not in listed(url)
    place.take_turn(0.0)
    assert "turn.json" in listed(url)
    with place.writing():
        pass
    assert "turn.json" not in listed(url)


def test_a_store_that_ignores_conditions_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written where two writers could lose each other's imports."""
    with serve_careless() as names:
        for name, value in names.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        with pytest.raises(StoreError, match=r"ignores conditions .* take one that keeps them"):
            add(Books(f"s3://{BUCKET}/any"), "first")


def test_live_rows_wait_on_a_disk_that_was_named(url: str, tmp_path: Path) -> None:
    """Without a folder there is no log of them; the folder of one server is the only one that flushes."""
    with pytest.raises(InputError, match=r"no write-ahead log.*local_folder"):
        Bucket(url).claim_live()
    Bucket(url, tmp_path / "one").claim_live()
    Bucket(url, tmp_path / "one").claim_live()
    with pytest.raises(StoreError, match=f"are kept in {tmp_path}/one on .* remove {url}/live-rows.json"):
        Bucket(url, tmp_path / "other").claim_live()


def test_live_rows_are_seen_beside_their_log_and_flushed_into_the_bucket(url: str, tmp_path: Path) -> None:
    """What was acknowledged counts at once where its folder is named, and elsewhere once it is files: then once in both."""
    here, elsewhere = Books(url), Books(url)
    here.store = Store(Path(url), local=tmp_path / "one")
    here.store.place.claim_live()

    def count(books: Books) -> int:
        with books.store.read() as session:
            session.view_table("samples", "samples")
            return int(session.fetch_one("SELECT count(*) FROM samples")[0])

    with LiveLog.open(here.store.folder, here.store.manifest.live_through) as log:
        log.acknowledge([batch(rows=20)])
        assert (count(here), count(elsewhere)) == (20, 0)
        log.discard_through(here.flush())
        assert (count(here), count(elsewhere)) == (20, 20)
        log.acknowledge([batch(rows=5, first=20)])
        assert (count(here), count(elsewhere)) == (25, 20)
    with LiveLog.open(tmp_path / "new disk", here.store.manifest.live_through) as log:  # the old one is lost
        assert log.acknowledge([batch(rows=5, first=30)]) == here.store.manifest.live_through + 1
