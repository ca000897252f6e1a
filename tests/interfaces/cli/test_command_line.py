"""The command line itself: lists of commands, completion by the shell, tokens, and how a command ends."""

import json
import os
import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import duckdb
import pytest
import typer
from tests.commands import Run, make_run

from loadfactor.base.errors import DamageError, InputError, StoreError
from loadfactor.base.spelling import HIDDEN
from loadfactor.interfaces.cli import COMMANDS
from loadfactor.interfaces.cli.commands import CommandEntry, load_command
from loadfactor.interfaces.cli.leave import run_and_leave

HEAVY = ("duckdb", "ibis", "pyarrow", "numpy", "pandas", "pydantic", "rich", "jinja2", "matplotlib", "numba")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own."""
    program = "import sys; from loadfactor.interfaces.cli import main; sys.argv[0] = 'loadfactor'; main()"
    return subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "entry", [found for entry in COMMANDS for found in (entry, *entry.commands)], ids=lambda entry: entry.name
)
def test_a_list_says_of_a_command_what_the_command_says(entry: CommandEntry) -> None:
    """The sentence in the list is the first one of the command's own help; what its entry names can be imported."""
    assert " ".join(load_command(entry).help.split("\n\n")[0].split()) == entry.help
    for dotted in filter(None, (entry.build, entry.request, entry.function, *entry.formats.values())):
        module, _, name = dotted.rpartition(".")
        assert callable(getattr(import_module(module), name)), dotted


@pytest.mark.long
@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--help",),
        ("--version",),
        ("-h",),
        ("plan", "--help"),
        ("validate",),
        ("import", "-h"),
        ("validate", "serve", "-h"),
    ],
)
def test_help_imports_nothing_heavy(words: tuple[str, ...]) -> None:
    """Help and version come without the query engine, arrays, drawing or rich."""
    program = (
        "import sys; from loadfactor.interfaces.cli import main\n"
        "try: main()\n"
        f"finally: print(sorted(set({HEAVY!r}) & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "[]\n")
    assert done.stdout


def test_the_help_lists_every_command_with_its_sentence() -> None:
    """`loadfactor` alone and `loadfactor --help` show all commands."""
    shown = " ".join(run("--help").stdout.split())
    assert all(f"{entry.name} {entry.help}" in shown for entry in COMMANDS)
    assert run().stdout == run("--help").stdout


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (("shwo",), "no command called 'shwo'; did you mean 'show'?"),
        (("plan", "trian"), "no command called 'trian'; did you mean 'train'?"),
        (("show", "--formt", "json"), "no option called '--formt'; did you mean '--format'?"),
    ],
)
def test_a_mistyped_word_gets_the_nearest(words: tuple[str, ...], near: str) -> None:
    """Commands and options that nobody knows are answered with the nearest one, on one line, with exit code 2."""
    done = run(*words)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"loadfactor: {near}\n")


PROGRAM = "import sys; from loadfactor.interfaces.cli import main; sys.argv[0] = 'loadfactor'; main()"


def complete(line: str) -> list[str]:
    """What bash is offered after this line."""
    words = line.split(" ")
    env = {"_LOADFACTOR_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, env={**os.environ, **env}
    ).stdout.split()


@pytest.mark.long
@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("loadfactor val", ["validate"]),
        ("loadfactor plan tr", ["train"]),
        ("loadfactor show --fo", ["--format"]),
        ("loadfactor report --format m", ["md"]),
        ("loadfactor show idle_g", ["idle_gpu_hours"]),
        ("loadfactor show --by team,acc", ["team,accelerator"]),
        ("loadfactor show --where te", ["team=", "tenant="]),
        ("loadfactor show --basis own", ["owned"]),
        ("loadfactor catalog mo", ["models"]),
        ("loadfactor import nv", ["nvidia-smi"]),
        ("loadfactor plan train --accelerator h200", ["h200-sxm"]),
        ("loadfactor plan train --model llama-3.1-8", ["llama-3.1-8b"]),
    ],
)
def test_names_are_completed(line: str, names: list[str]) -> None:
    """Commands, options, choices and everything the catalog and the declarations know."""
    assert complete(line) == names


@pytest.mark.long
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_calls_the_program(shell: str) -> None:
    """`--show-completion` prints a script for the shell that asks the program for names."""
    env = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "--show-completion", shell], capture_output=True, text=True, check=True, env=env
    )
    assert f"_LOADFACTOR_COMPLETE=complete_{shell}" in done.stdout


def test_the_completion_can_be_installed(tmp_path: object) -> None:
    """`--install-completion` writes the script into the home folder."""
    env = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1", "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "--install-completion", "bash"],
        capture_output=True,
        text=True,
        check=True,
        env=env,
    )
    assert "completion installed" in done.stdout


@pytest.fixture
def run_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a token command on books of its own."""
    run_command = make_run(capsys, monkeypatch, "--store", tmp_path / "books")
    return lambda *words: run_command("token", *words)


def test_a_token_is_created_listed_and_revoked(run_token: Run, tmp_path: Path) -> None:
    """The token is in the answer of `create` alone; the list has its id and what it may do."""
    code, out, _ = run_token("create", "--read-team", "vision", "--name", "dashboard", "--format", "json")
    made = json.loads(out)
    assert (code, made["right"], made["team"], made["name"]) == (0, "read-team", "vision", "dashboard")
    code, shown, _ = run_token("create", "--write")
    assert "lf_" in shown
    code, out, _ = run_token("list", "--format", "json")
    listed = json.loads(out)["tokens"]
    assert [token["right"] for token in listed] == ["read-team", "write"]
    assert made["token"] not in out + (tmp_path / "books" / "audit.log").read_text()
    assert run_token("revoke", made["id"])[0] == 0
    assert json.loads(run_token("list", "--format", "json")[1])["tokens"][0]["revoked"]
    actions = [json.loads(line)["action"] for line in (tmp_path / "books" / "audit.log").read_text().splitlines()]
    assert actions == ["token create", "token create", "token revoke"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("create",), "give --write, --read, both of them, or --read-team NAME"),
        (("create", "--write", "--read-team", "vision"), "both of them, or --read-team NAME"),
        (("create", "--read-team", "unknown holder"), "is no team"),
        (("revoke", "cafe"), "no token 'cafe'"),
    ],
)
def test_what_cannot_be_is_one_line(run_token: Run, words: tuple[str, ...], said: str) -> None:
    """A mistake is one line and exit code 2."""
    code, _, err = run_token(*words)
    assert code == 2
    assert said in err
    assert err.count("\n") == 1


NAMED_PROGRAM = "import sys; from loadfactor.interfaces.cli import main; sys.argv[0] = {name!r}; main()"


def run_in(*words: str, folder: Path, name: str = "loadfactor", **env: str) -> subprocess.CompletedProcess[bytes]:
    """The command line in a process of its own."""
    command = [sys.executable, "-c", NAMED_PROGRAM.format(name=name), *words]
    return subprocess.run(command, capture_output=True, check=False, cwd=folder, env={**os.environ, **env})


@pytest.mark.long
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
    done = run_in("doctor", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.decode().count("\n") == 1
    assert said in done.stderr.decode()


@pytest.mark.long
@pytest.mark.parametrize(
    "words",
    [
        *((), ("metrics",), ("tables",)),
        *(("catalog", part) for part in ("prices", "models", "accelerators", "instances")),
    ],
)
def test_an_ascii_terminal_gets_ascii(words: tuple[str, ...], tmp_path: Path) -> None:
    """What the terminal's encoding cannot write is replaced, never a traceback."""
    done = run_in(*words, folder=tmp_path, PYTHONIOENCODING="ascii", LC_ALL="C")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.isascii()


@pytest.mark.long
def test_hints_name_the_program_and_no_path(tmp_path: Path) -> None:
    """Called by whatever path, what to type next begins with `loadfactor`."""
    done = run_in("doctor", folder=tmp_path, name=".venv/bin/loadfactor")
    assert b"`loadfactor demo`" in done.stderr


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


@pytest.mark.long
def test_a_closed_pipe_is_quiet(tmp_path: Path) -> None:
    """A reader that has seen enough (head) is no error."""
    command = [sys.executable, "-c", NAMED_PROGRAM.format(name="loadfactor"), "tables", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


@pytest.mark.long
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
    command = (
        f"{shlex.quote(sys.executable)} -c {shlex.quote(NAMED_PROGRAM.format(name='loadfactor'))} tables {closing}"
    )
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr.decode()) == (code, said)


@pytest.mark.long
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
        done = run_in(*words, "--store", evil, folder=tmp_path, PYTHONIOENCODING="utf-8")
        said = done.stderr.decode()
        assert done.returncode == 2
        assert said.count("\n") == 1
        assert not HIDDEN.search(said[:-1])


def warm_up() -> tuple[int, int]:
    """Compile ahead: how many are new, and in all."""
    done = subprocess.run([sys.executable, "-m", "loadfactor.warm_up"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    new, in_all = re.findall(r"(\d+) (?:loops and queries|in all)", done.stdout.splitlines()[-1])
    return int(new), int(in_all)


@pytest.mark.long
def test_warm_up_compiles_what_first_commands_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After it, plans and questions find everything compiled, and so does a second one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    new, in_all = warm_up()
    assert new == in_all > 0
    for words in (("plan", "serve", "--users", "50"), ("diagnose", "examples/trace.json")):
        assert run(*words).returncode in (0, 1)  # the answer may be no
    assert warm_up() == (0, in_all)
