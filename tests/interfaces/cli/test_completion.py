"""What the shell completes, and the script that makes it do so."""

import os
import subprocess
import sys

import pytest

PROGRAM = "import sys; from loadfactor.interfaces.cli import main; sys.argv[0] = 'loadfactor'; main()"


def complete(line: str) -> list[str]:
    """What bash is offered after this line."""
    words = line.split(" ")
    env = {"_LOADFACTOR_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, env={**os.environ, **env}
    ).stdout.split()


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("loadfactor val", ["validate"]),
        ("loadfactor plan tr", ["train"]),
        ("loadfactor show --fo", ["--format"]),
        ("loadfactor report --format m", ["md"]),
        ("loadfactor show idle_g", ["idle_gpu_hours"]),
        ("loadfactor show --by team,acc", ["team,accelerator"]),
        ("loadfactor show --where te", ["team="]),
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
