"""Backups on a schedule: one a period, each whole, of what the one before has not; old ones go, and books come back of them."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.commands import Run
from tests.object_stores.servers import BUCKET, serve_s3
from tests.store.live_batches import batch

from loadfactor.base.errors import InputError, StoreError
from loadfactor.books.books import Books
from loadfactor.store import scheduled_backups
from loadfactor.store.backup import find_damage
from loadfactor.store.folder import Folder
from loadfactor.store.live import LiveLog
from loadfactor.store.objects import Objects
from loadfactor.store.scheduled_backups import back_up_when_due, restore
from loadfactor.store.tokens import create_token, read_tokens

ROOT = Path(__file__).parents[2]
MONDAY = datetime(2026, 11, 23, 3, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    """An S3 server of its own."""
    with serve_s3() as names:
        yield names


@pytest.fixture(params=["folder", "bucket"])
def target(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where backups lie."""
    if request.param == "folder":
        return str(tmp_path / "copies")
    for name, value in request.getfixturevalue("s3").items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{tmp_path.name}"


def add(books: Books, folder: Path, day: int) -> None:
    """Import a day of samples of a GPU."""
    folder.mkdir()
    rows = (f"g,2026-11-{day}T{hour:02}:00:00Z,s,0.{hour}" for hour in range(1, 9))
    (folder / "samples.csv").write_text("\n".join(["device_id,to_utc,source,busy_share", *rows]))
    books.add("tables", [folder])


@pytest.mark.long
def test_backups_of_days(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second one of a day is not made; that of the next copies what is new; live rows and tokens are in it; two are kept."""
    books = Books(tmp_path / "books")
    place, sums = books.store.place, {}
    for number in range(3):
        add(books, tmp_path / str(number), 23 + number)
        if number == 1:
            create_token(tmp_path / "books", "read", None, "grafana", 1)
            with LiveLog.open(tmp_path / "books") as log:
                log.acknowledge([batch()])
        made = back_up_when_due(place, target, "daily", 2, MONDAY + number * DAY)
        assert (made.made, made.newest_at, made.kept) == (True, MONDAY + number * DAY, min(number + 1, 2))
        assert 0 < made.new_files <= made.files
        assert made.new_files == made.files if number == 0 else made.new_files < made.files
        again = back_up_when_due(place, target, "daily", 2, MONDAY + number * DAY + timedelta(hours=20))
        assert (again.made, again.newest, again.kept) == (False, made.newest, made.kept)
        sums[made.newest] = books.show("observed_gpu_hours")[0].value
    assert made.removed == ("2026-11-23T030000Z",)
    for name, hours in list(sums.items())[1:]:
        folder = tmp_path / f"restored{hours}"
        restore(name, folder)
        assert Books(folder).show("observed_gpu_hours")[0].value == hours
        assert Books(folder).check().is_sound
        assert [token.name for token in read_tokens(folder)] == ["grafana"]
        assert (folder / "tokens.json").stat().st_mode & 0o777 == 0o600
    restore(target, tmp_path / "newest")
    assert Books(tmp_path / "newest").show("observed_gpu_hours")[0].value == hours
    with pytest.raises(InputError, match="there is no backup"):
        restore(next(iter(sums)), tmp_path / "gone")
    with pytest.raises(InputError, match="is there already"):
        restore(target, tmp_path / "newest")
    if target.startswith("s3"):
        books.compact()
        monkeypatch.setattr(scheduled_backups, "LATE", -DAY)
        back_up_when_due(place, target, "hourly", 1, MONDAY + 3 * DAY)
        assert Objects(target).list_sizes("files").keys() == {
            f"files/{file.name}" for file in books.store.manifest.files
        }


def test_a_damaged_file_is_copied_again(tmp_path: Path) -> None:
    """What the backup before has is linked where it is whole; a backup that is not whole is none, and those before stay."""
    books, copies = Books(tmp_path / "books"), tmp_path / "copies"
    add(books, tmp_path / "one", 20)
    first, second = (Path(back_up_when_due(books.store.place, copies, "hourly", 9, MONDAY).newest) for _ in range(2))
    assert first == second
    damaged, linked = next(first.glob("samples-*")), next(first.glob("imports-*"))
    damaged.write_bytes(b"damaged")
    (copies / "2026-11-23T010000Z.part").mkdir()  # of a process that died
    later = back_up_when_due(books.store.place, copies, "hourly", 9, MONDAY + DAY / 24)
    second = Path(later.newest)
    assert (later.new_files, later.kept) == (1, 2)
    assert (second / linked.name).stat().st_ino == linked.stat().st_ino
    assert find_damage(second, Folder(second).read_newest()) == []
    with pytest.raises(StoreError, match="is damaged"):
        restore(first, tmp_path / "restored")
    assert not (tmp_path / "restored").exists()
    source = next((tmp_path / "books").glob("samples-*"))
    source.write_bytes(source.read_bytes()[:-1] + b"x")
    (second / source.name).unlink()
    with pytest.raises(StoreError, match="is damaged"):
        back_up_when_due(Folder(tmp_path / "books"), copies, "hourly", 1, MONDAY + DAY)
    assert {path.name for path in copies.iterdir() if not path.name.endswith(".part")} == {
        "lock",
        first.name,
        second.name,
    }


def test_restore_takes_the_newest_of_a_schedule(tmp_path: Path, run: Run) -> None:
    """Of the folder that [backup] names, the newest; of a folder without backups, nothing."""
    add(Books(tmp_path / "books"), tmp_path / "one", 20)
    back_up_when_due(Folder(tmp_path / "books"), tmp_path / "copies", "daily", 3, MONDAY)
    code, said, _ = run("restore", tmp_path / "copies", "--store", tmp_path / "again")
    assert (code, "generation 2" in said) == (0, True), said
    hours = Books(tmp_path / "books").show("observed_gpu_hours")
    assert list(Books(tmp_path / "again").show("observed_gpu_hours")) == list(hours)
    code, _, said = run("restore", tmp_path / "none", "--store", tmp_path / "more")
    assert (code, "there is no backup in" in said) == (2, True), said
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"name another folder in \[backup\] to"):
        back_up_when_due(Folder(tmp_path / "books"), tmp_path / "file", "daily", 3, MONDAY)


@pytest.mark.long
def test_a_backup_dated_ahead_counts_for_nothing(target: str, tmp_path: Path) -> None:
    """A clock two years ahead makes one and removes none; the right clock makes that of today, keeps two, restores the newest."""
    books = Books(tmp_path / "books")
    place = books.store.place
    for number in range(2):
        add(books, tmp_path / str(number), 23 + number)
        back_up_when_due(place, target, "daily", 2, MONDAY + number * DAY)
    wrong = back_up_when_due(place, target, "daily", 1, MONDAY + 730 * DAY)
    assert (wrong.made, wrong.kept, wrong.removed) == (True, 3, ())
    add(books, tmp_path / "2", 25)
    made = back_up_when_due(place, target, "daily", 2, MONDAY + 2 * DAY)
    assert (made.made, made.kept, made.newest_at) == (True, 2, MONDAY + 2 * DAY)
    assert made.removed == ("2026-11-23T030000Z",)
    again = back_up_when_due(place, target, "daily", 2, MONDAY + 2 * DAY + timedelta(hours=1))
    assert (again.made, again.newest) == (False, made.newest)
    restore(target, tmp_path / "newest")
    assert Books(tmp_path / "newest").show("observed_gpu_hours")[0].value == books.show("observed_gpu_hours")[0].value


@pytest.mark.long
def test_a_clock_that_is_behind_removes_no_backup(target: str, tmp_path: Path) -> None:
    """By a clock a year behind, one more is made and the two true ones stay; the right clock removes the one dated behind first."""
    books = Books(tmp_path / "books")
    place = books.store.place
    for number in range(2):
        add(books, tmp_path / str(number), 23 + number)
        back_up_when_due(place, target, "daily", 2, MONDAY + number * DAY)
    behind = back_up_when_due(place, target, "daily", 1, MONDAY - 365 * DAY)
    assert (behind.made, behind.removed) == (True, ())
    made = back_up_when_due(place, target, "daily", 2, MONDAY + DAY)
    assert (made.made, made.removed) == (False, ("2025-11-23T030000Z",))


@pytest.mark.long
def test_unit_of_systemd_makes_a_backup_that_restore_takes(tmp_path: Path, run: Run) -> None:
    """The commands of loadfactor-backup.service copy the books under a name of the time and keep the newest 14 of 17 copies."""
    add(Books(tmp_path / "books"), tmp_path / "one", 20)
    copies = tmp_path / "copies"
    for day in range(1, 17):
        (copies / f"2026-01-{day:02}T000000Z").mkdir(parents=True)
    program = tmp_path / "loadfactor"
    program.write_text(
        f"#!/bin/sh\nexec {sys.executable} -c 'from loadfactor.interfaces.cli import main; main()' \"$@\"\n"
    )
    program.chmod(0o755)
    unit = (ROOT / "packaging/systemd/loadfactor-backup.service").read_text()
    for line in re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE):
        command = line.replace("$$", "$").replace("%%", "%").replace("/opt/loadfactor/bin/loadfactor", str(program))
        command = command.replace("/var/lib/loadfactor/books", str(tmp_path / "books"))
        subprocess.run(["/bin/sh", "-euc", command], check=True, env={**os.environ, "BACKUP_TO": str(copies)})
    *older, made = sorted(path.name for path in copies.iterdir())
    assert (len(older), older[0]) == (13, "2026-01-04T000000Z")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d{6}Z", made)
    assert run("restore", copies, "--store", tmp_path / "again")[0] == 0
