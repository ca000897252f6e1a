"""Do the books stay whole whatever happens? Killed imports, full disks, damaged files, two writers, readers meanwhile."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.ledger.fleets import HOUR, MINUTE, Row, batch, source

import loadfactor.books.books as books_room
from loadfactor.books.books import Books
from loadfactor.errors import StoreError
from loadfactor.sources.base import ReadOptions

START = 1_767_225_600_000  # 2026-01-01
CHILD = "import sys; from tests.store.test_whole_or_nothing import main; main(*sys.argv[1:])"


def rows(day: int, devices: int = 3) -> list[object]:
    """One day of a small fleet: a GPU-hour in three is held, a sample a minute for six hours."""
    at = START + day * 24 * HOUR
    names = [f"g{k}" for k in range(devices)]
    samples: list[Row] = [
        {"device_id": n, "to_utc": at + m * MINUTE, "busy_share": (m % 10) / 10, "source": "s"}
        for n in names
        for m in range(1, 360)
    ]
    held = [
        {"job_id": f"j{day}", "device_id": n, "team": "red", "from_utc": at, "to_utc": at + 8 * HOUR} for n in names
    ]
    return [
        batch(
            "devices", [{"device_id": n, "from_utc": START, "to_utc": START + 48 * HOUR, "node": "n"} for n in names]
        ),
        batch("samples", samples),
        batch("allocations", held),
        batch("prices", [{"basis": "list", "price_per_gpu_hour": 2.0}]),
    ]


def add(books: Books, day: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Import a day through `Books.add`, its ledger included."""
    path = folder / f"day{day}"
    path.write_text(str(day))
    monkeypatch.setattr(books_room, "find_source", lambda _name: source(rows(day)))
    books.add("test", [path], ReadOptions())


def listing(store: Path) -> dict[str, bytes]:
    """Every file of the books and its bytes; the lock has none."""
    return {p.name: p.read_bytes() for p in store.iterdir() if p.is_file() and p.name != "lock"}


def totals(books: Books) -> list[object]:
    return [r.value for r in books.show(["paid_gpu_hours", "allocated_gpu_hours", "effective_gpu_hours", "cost"])]


def child(store: Path, *args: object) -> "subprocess.Popen[str]":
    """Another process that imports the second day."""
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-c", CHILD, str(store), *(str(a) for a in args)]
    return subprocess.Popen(
        command,
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    )


@pytest.fixture
def one_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    add(Books(tmp_path / "store"), 0, tmp_path, monkeypatch)
    return tmp_path / "store"


@pytest.mark.parametrize("moment", ["staging", "renamed", "publishing"])
def test_a_killed_import_leaves_the_books_as_they_were(
    one_day: Path, moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kill -9 at any moment: the same files answer the same, the next import works and sweeps what was left."""
    before, said = json.loads((one_day / "manifest.json").read_text()), totals(Books(one_day))
    process = child(one_day, "die", moment)
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    assert json.loads((one_day / "manifest.json").read_text()) == before
    assert totals(Books(one_day)) == said
    books = Books(one_day)
    add(books, 1, tmp_path, monkeypatch)
    named = {f.name for f in books.store.manifest.files} | set(books.store.manifest.retired)
    left = {p.name for p in one_day.iterdir()} - named - {"lock", "manifest.json"}
    assert {n for n in left if not n.startswith("spill-")} == set()
    assert totals(books)[1] == pytest.approx(2 * said[1])


def test_a_disk_that_fills_up_is_one_line_and_changes_nothing(one_day: Path) -> None:
    """When a file cannot grow, the import ends with a StoreError of one line and the books answer as before."""
    before, said = listing(one_day), totals(Books(one_day))
    process = child(one_day, "full")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert out.startswith("StoreError writing to ")
    assert "the books are as before" in out
    assert len(out.strip().splitlines()) == 1
    assert {k: v for k, v in listing(one_day).items() if k in before} == before
    assert totals(Books(one_day)) == said


@pytest.mark.parametrize(
    ("table", "damage"),
    [
        ("samples", "flipped"),
        ("samples", "truncated"),
        ("ledger", "flipped"),
        ("allocations", "flipped"),
        ("prices", "gone"),
    ],
)
def test_a_damaged_file_is_set_aside_and_the_rest_still_answers(
    one_day: Path, table: str, damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named and kept apart, the rest answers (unknown, not zero), and importing again heals it."""
    whole = totals(Books(one_day))
    file = Books(one_day).store.manifest.of(table)[0]
    path = one_day / file.name
    content = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    elif damage == "truncated":
        path.write_bytes(content[: len(content) // 2])
    else:
        middle = len(content) // 2
        content[middle : middle + 8] = bytes(b ^ 0xFF for b in content[middle : middle + 8])
        path.write_bytes(content)
    books = Books(one_day)
    if damage == "flipped" and table != "ledger":  # the ledger answers without them; `doctor` looks at every file
        assert totals(books) == whole
        books.store.quarantine_damage()
    paid, held, effective, cost = totals(books)
    assert [name for name, _ in books.store.manifest.quarantined] == [file.name]
    assert (one_day / "quarantine" / file.name).exists() == (damage != "gone")
    assert paid == pytest.approx(whole[0], rel=1e-12)
    assert held == (0.0 if table == "allocations" else pytest.approx(whole[1], rel=1e-12))
    if table != "ledger":
        assert (effective is None) == (table == "samples")
        assert (cost is None) == (table == "prices")
    add(books, 0, tmp_path, monkeypatch)
    assert totals(Books(one_day)) == pytest.approx(whole, rel=1e-12)


def test_flipped_bytes_are_seen_by_the_next_import(
    one_day: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damage that an import comes upon is set aside, and the import goes on."""
    books = Books(one_day)
    (file,) = books.store.manifest.of("allocations")
    content = bytearray((one_day / file.name).read_bytes())
    content[len(content) // 2] ^= 0xFF
    (one_day / file.name).write_bytes(content)
    books = Books(one_day)
    add(books, 1, tmp_path, monkeypatch)
    assert [name for name, _ in books.store.manifest.quarantined] == [file.name]
    assert totals(books)[1] == 24.0


def test_a_second_import_meanwhile_is_refused_in_one_line(
    one_day: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes importing at once: the second is told to wait; a reader sees whole imports only, and then the new one."""
    reader, said = Books(one_day), totals(Books(one_day))
    flag = tmp_path / "go"
    process = child(one_day, "wait", flag)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "booking"
    with pytest.raises(StoreError, match="another import is writing to"):
        add(Books(one_day), 2, tmp_path, monkeypatch)
    assert totals(reader) == said
    assert totals(Books(one_day)) == said
    flag.write_text("go")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert totals(reader)[1] == 2 * float(str(said[1]))


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"format": 1}', '{"format": 99}', '{"format": 1, "generation": 1, "files": [{}]}']
)
def test_a_damaged_manifest_is_one_line(one_day: Path, content: str) -> None:
    """What cannot be understood is a StoreError that says what to do."""
    (one_day / "manifest.json").write_text(content)
    with pytest.raises(StoreError, match=r"restore it from a backup|install the newest version") as caught:
        Books(one_day)
    assert len(str(caught.value).splitlines()) == 1


def test_a_folder_that_is_no_folder_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that cannot be written says so."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError) as caught:
        add(Books(tmp_path / "file"), 0, tmp_path, monkeypatch)
    assert len(str(caught.value).splitlines()) == 1


def main(folder: str, what: str, *args: str) -> None:
    """What the other process does."""
    store = Path(folder)
    import loadfactor.store.manifest as manifest_room
    from loadfactor.store.staging import Staging
    from loadfactor.store.store import Store

    def die(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def wait(*_: object, **__: object) -> None:
        print("booking", flush=True)
        while not Path(args[0]).exists():
            time.sleep(0.02)

    if what == "die":
        room, name = {
            "staging": (Staging, "finish"),
            "renamed": (manifest_room, "fsync_folder"),
            "publishing": (manifest_room, "publish"),
        }[args[0]]
        setattr(room, name, die)
    if what == "wait":
        booked = Store.publish_ledger

        def publish(self: Store, *rest: object) -> None:
            wait()
            booked(self, *rest)  # type: ignore[arg-type]

        Store.publish_ledger = publish  # type: ignore[method-assign]
    if what == "full":
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))
    books_room.find_source = lambda _name: source(rows(1))  # type: ignore[attr-defined]
    path = store.parent / "day1-of-a-child"
    if what != "full":
        path.write_text("1")
    else:
        path = Path(__file__)
    try:
        Books(store).add("test", [path], ReadOptions())
    except StoreError as error:
        print(f"StoreError {error}")
