"""Do the books stay whole whatever happens? Killed imports, full disks, damaged files, two writers, readers meanwhile."""

import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.ledger.fleets import HOUR, MINUTE, Row, batch, source
from tests.long import rest_long
from tests.waiting import LONGEST_S

import loadfactor.books.writing as writing_room
from loadfactor.base.errors import DamageError, StoreError
from loadfactor.books.books import Books
from loadfactor.sources.base import ReadOptions
from loadfactor.store import disk, folder, manifest
from loadfactor.store.live import LiveLog
from loadfactor.store.tokens import create_token

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
    monkeypatch.setattr(writing_room, "find_source", lambda _name: source(rows(day)))
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
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])},
    )


@pytest.fixture
def one_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    add(Books(tmp_path / "store"), 0, tmp_path, monkeypatch)
    return tmp_path / "store"


@pytest.mark.parametrize("moment", rest_long(["rename", "sync_file", "link", "sync_folder"]))
def test_a_killed_import_leaves_the_books_as_they_were(
    one_day: Path, moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kill -9 at a durable step: the same files answer the same, the next import works and sweeps what was left."""
    before, said = json.loads((one_day / "manifest.json").read_text()), totals(Books(one_day))
    process = child(one_day, "die", moment)
    process.communicate(timeout=LONGEST_S)
    assert process.returncode == -signal.SIGKILL
    assert json.loads((one_day / "manifest.json").read_text()) == before
    assert totals(Books(one_day)) == said
    books = Books(one_day)
    add(books, 1, tmp_path, monkeypatch)
    named = {f.name for f in books.store.manifest.files}
    copy = folder.name_numbered(books.store.manifest.generation)
    assert {p.name for p in one_day.iterdir()} - named == {"lock", "manifest.json", copy}
    assert totals(books)[1] == pytest.approx(2 * said[1])


def test_a_disk_that_fills_up_is_one_line_and_changes_nothing(one_day: Path) -> None:
    """When a file cannot grow, the import ends with a StoreError of one line and the books answer as before."""
    before, said = listing(one_day), totals(Books(one_day))
    process = child(one_day, "full")
    out, err = process.communicate(timeout=LONGEST_S)
    assert process.returncode == 0, err
    assert out.startswith("StoreError writing to ")
    assert "the books are as before" in out
    assert len(out.strip().splitlines()) == 1
    assert {k: v for k, v in listing(one_day).items() if k in before} == before
    assert totals(Books(one_day)) == said


@pytest.mark.parametrize("damage", rest_long(["flipped", "truncated", "gone"]))
@pytest.mark.parametrize("table", ["samples", "ledger", "allocations", "prices"])
def test_damage_is_said_until_it_is_repaired(
    one_day: Path, table: str, damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No answer stands on a damaged file; after a repair the rest answers, says what it lacks, and the same import heals it."""
    whole = totals(Books(one_day))
    file = Books(one_day).store.manifest.of(table)[0]
    path = one_day / file.name
    content = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    elif damage == "truncated":
        path.write_bytes(content[: len(content) // 2])
    else:
        content[len(content) // 2] ^= 0xFF
        path.write_bytes(content)
    books = Books(one_day)
    with pytest.raises(DamageError, match="run `loadfactor repair"):
        books.check()
    if table in ("samples", "allocations"):  # the ledger answers without them
        assert totals(books) == whole
    else:
        with pytest.raises(DamageError, match="run `loadfactor repair"):
            totals(books)
    losses = books.repair()
    assert (one_day / "quarantine" / file.name).exists() == (damage != "gone")
    if table != "samples":  # made anew: the ledger from the tables, tables from what was logged
        assert losses == ()
        assert totals(books) == pytest.approx(whole, rel=1e-12)
        assert books.check().is_sound
        return
    assert [loss.name for loss in losses] == [file.name]
    assert totals(books)[2] is None
    assert not books.check().is_sound
    add(books, 0, tmp_path, monkeypatch)
    assert totals(Books(one_day)) == pytest.approx(whole, rel=1e-12)
    assert books.check().is_sound


@pytest.mark.parametrize("what", rest_long(["gone", "cut", "of another size"]))
def test_a_lost_manifest_is_rebuilt_from_the_files(
    one_day: Path, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its manifest a store answers nothing and loses nothing; `repair` finds everything again."""
    add(Books(one_day), 1, tmp_path, monkeypatch)
    whole = totals(Books(one_day))
    path = one_day / "manifest.json"
    for copy in one_day.glob("manifest-*.json"):
        copy.unlink()
    files = listing(one_day)
    if what == "gone":
        path.unlink()
    else:
        text = path.read_text()
        path.write_text(text[: len(text) // 2] if what == "cut" else text.replace('"rows": 3', '"rows": 4', 1))
    for ask in (totals, lambda books: books.check(), lambda books: add(books, 2, tmp_path, monkeypatch)):
        with pytest.raises(DamageError, match="run `loadfactor repair"):
            ask(Books(one_day))
    assert {name: files[name] for name in files if name != "manifest.json"}.items() <= listing(one_day).items()
    assert Books(one_day).repair() == ()
    assert totals(Books(one_day)) == pytest.approx(whole, rel=1e-12)
    assert len(Books(one_day).imports) == 2
    assert Books(one_day).check().is_sound
    named = {file.name for file in Books(one_day).store.manifest.files}
    assert {path.name for path in one_day.glob("*.parquet")} == named  # also those that the tables folded anew replace
    (copy,) = one_day.glob("manifest-*.json")
    assert copy.read_bytes() == (one_day / "manifest.json").read_bytes()


def test_a_second_import_meanwhile_is_refused_in_one_line(
    one_day: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes importing at once: the second is told to wait; a reader sees whole imports only, and then the new one."""
    reader, said = Books(one_day), totals(Books(one_day))
    flag = tmp_path / "go"
    process = child(one_day, "wait", flag)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "booking"
    monkeypatch.setattr(folder, "LONGEST_WAIT_S", 0.2)
    with pytest.raises(StoreError, match=rf"another import is writing to .* \(process {process.pid}\)"):
        add(Books(one_day), 2, tmp_path, monkeypatch)
    (one_day / "lock").unlink()  # the folder itself is locked as well
    with pytest.raises(StoreError, match="another import is writing to"):
        add(Books(one_day), 2, tmp_path, monkeypatch)
    assert totals(reader) == said
    assert totals(Books(one_day)) == said
    flag.write_text("go")
    _, err = process.communicate(timeout=LONGEST_S)
    assert process.returncode == 0, err
    assert totals(reader)[1] == 2 * float(str(said[1]))


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"format": 5}', '{"format": 99}', '{"format": 5, "generation": 1, "files": [{}]}']
)
def test_a_damaged_manifest_is_one_line(one_day: Path, content: str) -> None:
    """What cannot be understood is a StoreError that says what to do."""
    (one_day / "manifest.json").write_text(content)
    with pytest.raises(StoreError, match=r"loadfactor repair|install the newest version") as caught:
        totals(Books(one_day))
    assert len(str(caught.value).splitlines()) == 1


def test_a_manifest_names_nothing_outside_its_folder(one_day: Path, tmp_path: Path) -> None:
    """A manifest that came from elsewhere, its checksum correct, is refused and moves or deletes nothing."""
    victim = tmp_path / "victim.parquet"
    victim.write_text("precious")
    store = Books(one_day).store
    file = replace(store.manifest.files[0], name="../victim.parquet")
    crafted = replace(store.manifest, files=(*store.manifest.files, file))
    (one_day / "manifest.json").write_bytes(manifest.write_down(crafted))
    (one_day / "manifest-0.json").write_bytes(manifest.write_down(crafted))
    with pytest.raises(DamageError, match="which no store wrote"):
        totals(Books(one_day))
    Books(one_day).repair()
    assert victim.read_text() == "precious"


def test_a_folder_that_is_no_folder_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that cannot be written says so."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError) as caught:
        add(Books(tmp_path / "file"), 0, tmp_path, monkeypatch)
    assert len(str(caught.value).splitlines()) == 1


def test_a_file_system_without_locks_is_refused(one_day: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where locking fails as on NFS without lockd, writing, reading and tokens end with one line that says what to do."""

    def refuse(_handle: int, _how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    before = listing(one_day)
    monkeypatch.setattr(disk.fcntl, "flock", refuse)
    for work in (
        lambda: add(Books(one_day), 1, tmp_path, monkeypatch),
        lambda: totals(Books(one_day)),
        lambda: create_token(one_day, "read", None, "", 0),
        lambda: LiveLog.open(one_day),
    ):
        with pytest.raises(
            StoreError, match=r"without locks \(No locks available\).* choose a folder of a local disk"
        ) as caught:
            work()
        assert len(str(caught.value).splitlines()) == 1
    assert {name: content for name, content in listing(one_day).items() if name in before} == before


def test_an_error_without_words_is_one_line(one_day: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fails with an error of no text is reported by the kind of the error; the books are as before."""
    said = totals(Books(one_day))

    def fail(_path: Path) -> None:
        raise OSError

    with monkeypatch.context() as patched:
        patched.setattr(disk, "sync_file", fail)
        with pytest.raises(StoreError, match=r"failed \(OSError\); the books are as before"):
            add(Books(one_day), 1, tmp_path, monkeypatch)
    assert totals(Books(one_day)) == said


def main(folder: str, what: str, *args: str) -> None:
    """What the other process does."""
    store = Path(folder)
    from loadfactor.store import disk
    from loadfactor.store.writer import Writer

    def die(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def wait(*_: object, **__: object) -> None:
        print("booking", flush=True)
        while not Path(args[0]).exists():
            time.sleep(0.02)

    if what == "die":
        setattr(disk, args[0], die)
    if what == "wait":
        published = Writer.publish

        def publish(self: Writer) -> object:
            wait()
            return published(self)

        Writer.publish = publish  # type: ignore[method-assign,assignment]
    if what == "full":
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))
    writing_room.find_source = lambda _name: source(rows(1))  # type: ignore[attr-defined]
    path = store.parent / "day1-of-a-child"
    if what != "full":
        path.write_text("1")
    else:
        path = Path(__file__)
    try:
        Books(store).add("test", [path], ReadOptions())
    except StoreError as error:
        print(f"StoreError {error}")


def test_the_list_of_what_goes_is_certain_before_the_manifest_is_swapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second name of the manifest is synced before the new one takes its place: a power loss leaves no file unnamed."""
    books = Books(tmp_path / "store")
    add(books, 0, tmp_path, monkeypatch)
    steps: list[tuple[str, str]] = []

    def note(name: str) -> None:
        do = getattr(disk, name)

        def step(*paths: Path) -> None:
            steps.append((name, paths[-1].name))
            do(*paths)

        monkeypatch.setattr(disk, name, step)

    for name in ("link", "sync_folder", "rename"):
        note(name)
    add(books, 1, tmp_path, monkeypatch)
    linked = [at for at, (name, _) in enumerate(steps) if name == "link"]
    assert linked
    for at in linked:
        assert steps[at + 1 : at + 4] == [("sync_folder", "store"), ("rename", manifest.NAME), ("sync_folder", "store")]


@pytest.mark.skipif(shutil.which("unshare") is None or os.geteuid() != 0, reason="needs a mount namespace of its own")
def test_books_on_a_read_only_mount_are_read_and_not_written(tmp_path: Path) -> None:
    """EROFS from a real mount: an import is one line, a question is answered, and nothing changes."""
    folder, more = tmp_path / "books", tmp_path / "allocations.csv"
    more.write_text("job_id,gpus,from_utc,to_utc\nj,8,2026-01-01T00:00:00Z,2026-01-02T00:00:00Z\n")
    Books(folder).add("tables", [more])
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    more.write_text("job_id,gpus,from_utc,to_utc\nk,8,2026-01-02T00:00:00Z,2026-01-03T00:00:00Z\n")
    commands = {"import": f"import tables {more}", "show": "show paid_gpu_hours"}
    mounted = f"mount --bind {folder} {folder} && mount -o remount,bind,ro {folder} || exit 99; exec "
    run = "import sys; from loadfactor.interfaces.cli import main; main()"
    done = {}
    for name, command in commands.items():
        words = f"{mounted}{sys.executable} -c '{run}' {command} --store {folder}"
        done[name] = subprocess.run(
            ["unshare", "-m", "sh", "-c", words], check=False, capture_output=True, text=True, timeout=LONGEST_S
        )
    if done["show"].returncode == 99:
        pytest.skip("mounts are not allowed here")
    assert done["import"].returncode == 1
    why = "cannot be written (Read-only file system); choose another folder with --store"
    assert done["import"].stderr == f"loadfactor: {folder} {why}\n"
    assert "192" in done["show"].stdout
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
