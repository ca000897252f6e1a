"""How a command ends: one line where something is wrong, quiet pipes, readable in ASCII, hints that can be typed."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
import typer

from loadfactor.base.errors import DamageError, InputError, StoreError
from loadfactor.base.spelling import HIDDEN
from loadfactor.interfaces.cli import leave
from loadfactor.interfaces.cli.leave import run_and_leave
from loadfactor.interfaces.document import Document, Section, Suggestion

PROGRAM = "import sys; from loadfactor.interfaces.cli import main; sys.argv[0] = {name!r}; main()"


def run(*words: str, folder: Path, name: str = "loadfactor", **env: str) -> subprocess.CompletedProcess[bytes]:
    """The command line in a process of its own."""
    command = [sys.executable, "-c", PROGRAM.format(name=name), *words]
    return subprocess.run(command, capture_output=True, check=False, cwd=folder, env={**os.environ, **env})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("store = \n", "loadfactor.toml: invalid value (at line 1, column 9)"),
        ('stor = "x"', "loadfactor.toml: no setting called 'stor'; did you mean 'store'?"),
        ('idle_below = "much"', "setting 'idle_below' in loadfactor.toml"),
        ('timezone = "Mars/Olympus"', "no time zone called 'Mars/Olympus'"),
    ],
)
def test_broken_settings_are_one_line(text: str, said: str, tmp_path: Path) -> None:
    """A loadfactor.toml that cannot be read is exit code 2 and one line that says where it is wrong."""
    (tmp_path / "loadfactor.toml").write_text(text)
    done = run("doctor", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.decode().count("\n") == 1
    assert said in done.stderr.decode()


@pytest.mark.parametrize(
    "words",
    [
        *((), ("metrics",), ("tables",)),
        *(("catalog", part) for part in ("prices", "models", "accelerators", "instances")),
    ],
)
def test_an_ascii_terminal_gets_ascii(words: tuple[str, ...], tmp_path: Path) -> None:
    """What the terminal's encoding cannot write is replaced, never a traceback."""
    done = run(*words, folder=tmp_path, PYTHONIOENCODING="ascii", LC_ALL="C")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.isascii()


def test_hints_name_a_command_that_works_as_typed(tmp_path: Path) -> None:
    """Called by a path that is not on the PATH, the program prints that path in what to type next."""
    done = run("doctor", folder=tmp_path, name=".venv/bin/loadfactor")
    assert b"`.venv/bin/loadfactor demo`" in done.stderr


def test_the_hints_of_a_page_are_rewritten_and_its_names_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Suggestions and commands between backticks are rewritten; other words stay."""
    monkeypatch.setattr(leave, "program", lambda: "bin/loadfactor")
    page = Document(
        "loadfactor keeps books; see `loadfactor doctor`.",
        (Section(suggestions=(Suggestion("loadfactor report --store s", "why"),)),),
        data={"hint": "`loadfactor doctor`"},
    )
    typed = leave.as_typed(page)
    assert typed.headline == "loadfactor keeps books; see `bin/loadfactor doctor`."
    assert typed.sections[0].suggestions[0].command == "bin/loadfactor report --store s"
    assert typed.data == page.data


def failing(error: BaseException) -> typer.Typer:
    """An app whose command raises this."""
    app = typer.Typer()

    @app.command()
    def fail() -> None:
        raise error

    return app


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "stopped; the books are as they were"),
        (ZeroDivisionError("what"), 1, "an error in loadfactor itself (ZeroDivisionError: what)"),
        (OSError(28, "No space left on device", "x.csv"), 1, "No space left on device: x.csv"),
        (MemoryError(), 1, "not enough memory; give it more with LOADFACTOR_MEMORY=4GB"),
        (duckdb.OutOfMemoryException("Out of Memory Error: 1 of 2 used\n\nhints"), 1, "1 of 2 used; give it more with"),
        (DamageError("samples-1.parquet is damaged"), 1, "samples-1.parquet is damaged"),
        (StoreError("another import is writing"), 1, "another import is writing"),
        (InputError("no team called 'a\x1b[31m\u202e'"), 2, r"no team called 'a\x1b[31m\u202e'"),
    ],
)
def test_whatever_happens_is_one_line(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C, a full disk, damage, too little memory, hostile names and a mistake of the program itself end in one line."""
    monkeypatch.setattr(sys, "argv", ["loadfactor"])
    with pytest.raises(SystemExit) as left:
        run_and_leave(failing(error))
    assert left.value.code == code
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert said in shown


def test_debugging_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """With LOADFACTOR_DEBUG=1 a mistake of the program itself is raised."""
    monkeypatch.setattr(sys, "argv", ["loadfactor"])
    monkeypatch.setenv("LOADFACTOR_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        run_and_leave(failing(ZeroDivisionError()))


def test_a_closed_pipe_is_quiet(tmp_path: Path) -> None:
    """A reader that has seen enough (head) is no error."""
    command = [sys.executable, "-c", PROGRAM.format(name="loadfactor"), "tables", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("closing", "code", "said"),
    [
        (">&-", 0, ""),
        ("2>&-", 0, ""),
        (">/dev/full", 1, "loadfactor: No space left on device\n"),
        ("--format json >/dev/full", 1, "loadfactor: No space left on device\n"),
        ("| true", 0, ""),
    ],
)
def test_a_stdout_that_takes_nothing_is_one_line_at_most(closing: str, code: int, said: str, tmp_path: Path) -> None:
    """A closed or full standard output, or a closed standard error, ends without a traceback."""
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(PROGRAM.format(name='loadfactor'))} tables {closing}"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr.decode()) == (code, said)


def test_words_typed_reach_no_terminal_as_escapes(tmp_path: Path) -> None:
    """Escapes in commands, options and values come back spelled out in what is said of them."""
    evil = "\x1b]0;x\x07\u202e\x9b2J"
    for words in (
        [evil],
        ["show", f"--{evil}"],
        ["show", evil],
        ["catalog", evil],
        ["plan", evil],
        ["import", "x", evil],
    ):
        done = run(*words, "--store", evil, folder=tmp_path, PYTHONIOENCODING="utf-8")
        said = done.stderr.decode()
        assert done.returncode == 2
        assert said.count("\n") == 1
        assert not HIDDEN.search(said[:-1])
