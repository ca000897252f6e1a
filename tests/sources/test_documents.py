"""Every command in the documents about imports does what it says, from the folder of the project."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from loadfactor.faces.cli import main

PROJECT = Path(__file__).resolve().parents[2]
DOCUMENTS = ("bring-your-own-data.md", "import-nvidia-smi.md", "import-dcgm.md")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_command_works(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commands of a document, one after the other, exit with 0 and say something."""
    shutil.copytree(PROJECT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(
        r"^```\n(.*?)^```", (PROJECT / "docs" / name).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    commands = [line for block in blocks for line in block.splitlines() if line.startswith("loadfactor ")]
    assert commands
    for command in commands:
        monkeypatch.setattr("sys.argv", shlex.split(command))
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code in (0, None), f"{command}: {capsys.readouterr().err}"
        assert capsys.readouterr().out.strip(), command
