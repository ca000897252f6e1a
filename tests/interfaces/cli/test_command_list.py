"""The lists of commands, and how quickly and quietly the command line answers about itself."""

import subprocess
import sys
from importlib import import_module

import pytest

from loadfactor.interfaces.cli import COMMANDS
from loadfactor.interfaces.cli.commands import CommandEntry, load_command

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
