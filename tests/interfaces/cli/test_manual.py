"""`loadfactor generate man`: a page of every command, with its options, that roff sets without a warning."""

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.commands import Run

from loadfactor.interfaces.cli import COMMANDS


@pytest.fixture
def pages(run: Run, tmp_path: Path) -> dict[str, Path]:
    """The pages by name."""
    code, out, err = run("generate", "man", "--output", tmp_path / "man1")
    assert (code, err) == (0, "")
    assert "pages" in out
    return {path.stem: path for path in (tmp_path / "man1").iterdir()}


def test_every_command_has_a_page_with_its_options(pages: dict[str, Path]) -> None:
    """Commands of groups too; the first page lists all."""
    top = pages["loadfactor"].read_text()
    for entry in COMMANDS:
        assert f"\n.B {entry.name.replace('-', chr(92) + '-')}\n" in top
        assert f"loadfactor-{entry.name}" in pages
        for under in entry.commands:
            assert f"loadfactor-{entry.name}-{under.name}" in pages
    assert "\\-\\-global\\-batch" in pages["loadfactor-plan-train"].read_text()


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed; .ci/run installs it")
def test_roff_takes_them_without_a_warning(pages: dict[str, Path]) -> None:
    """All at once: `man` would show each as it is."""
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", *map(str, pages.values())], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "Sequences in a step" in done.stdout


def test_a_folder_that_cannot_be_is_a_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, _, err = run("generate", "man", "--output", tmp_path / "file" / "man1")
    assert (code, err.count("\n")) == (2, 1)
