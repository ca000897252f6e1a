"""Files that commands write are whole or as they were, and stand where a link points."""

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.interfaces.render.test_document import ANSWER

from loadfactor.base.errors import InputError, LoadfactorError
from loadfactor.interfaces.pages.lists import build_tables_page as build_page
from loadfactor.interfaces.render.present import SUFFIXES, replacing, write_document
from loadfactor.interfaces.requests import TablesRequest


@contextmanager
def small_files(most_bytes: int) -> Iterator[None]:
    """No file of this process may grow over so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 16 KiB."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k", "none", folder], check=False, capture_output=True
    ).returncode:
        pytest.skip("no tmpfs may be mounted here")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_may_not_grow_leaves_the_old_one(suffix: str, tmp_path: Path) -> None:
    """Where writing fails in the middle, the file of before is as it was, nothing lies beside it, and one line says so."""
    write_document(ANSWER, tmp_path / f"once{suffix}")  # what drawing caches is written now
    path = tmp_path / f"answer{suffix}"
    path.write_text("the old one")
    with small_files(40), pytest.raises(LoadfactorError, match=r"File too large.*as it was") as said:
        write_document(ANSWER, path)
    assert not isinstance(said.value, InputError)
    assert path.read_text() == "the old one"
    assert {file.name for file in tmp_path.iterdir()} == {f"once{suffix}", f"answer{suffix}"}


def test_a_full_disk_leaves_the_old_file(tiny_disk: Path) -> None:
    """The same on a disk that is full."""
    path = tiny_disk / "answer.html"
    path.write_text("the old one")
    with pytest.raises(LoadfactorError, match="No space left on device"):
        write_document(ANSWER, path)
    assert path.read_text() == "the old one"
    assert [file.name for file in tiny_disk.iterdir()] == ["answer.html"]


def test_templates_are_whole_or_not_there(tmp_path: Path) -> None:
    """Templates on a full disk: none of them is half there."""
    folder = tmp_path / "new"
    with small_files(300), pytest.raises(LoadfactorError, match=r"--write .*File too large"):
        build_page(TablesRequest(write=folder))
    whole = build_page(TablesRequest(write=tmp_path / "whole")).data
    lengths = {path.name: path.stat().st_size for path in whole}
    assert all(path.stat().st_size == lengths[path.name] for path in folder.iterdir())


def test_a_link_stays_and_its_target_is_written(tmp_path: Path) -> None:
    """An output that is a symbolic link to a file, there or not yet, is written where it points, with the rights of before."""
    (tmp_path / "there").mkdir()
    target, link, dangling = tmp_path / "there" / "real.md", tmp_path / "link.md", tmp_path / "later.md"
    target.write_text("the old one")
    target.chmod(0o640)
    link.symlink_to(target)
    dangling.symlink_to("there/new.md")
    write_document(ANSWER, link)
    write_document(ANSWER, dangling)
    assert link.is_symlink()
    assert dangling.is_symlink()
    assert target.read_text() == (tmp_path / "there" / "new.md").read_text() != "the old one"
    assert target.stat().st_mode & 0o777 == 0o640
    assert len(list(tmp_path.rglob("*"))) == 5


def test_a_tilde_in_an_output_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--output ~/x.md is written in the home folder, and the path that is told is that one."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert write_document(ANSWER, Path("~/x.md")) == tmp_path / "x.md"
    assert (tmp_path / "x.md").is_file()


def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    """What is no plain file is written to, not replaced."""
    pipe = tmp_path / "pipe.md"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with replacing(pipe) as beside:
        beside.write_text("said")
    assert os.read(reading, 100) == b"said"
    os.close(reading)
    assert pipe.is_fifo()
