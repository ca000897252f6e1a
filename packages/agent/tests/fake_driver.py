"""The fake libnvidia-ml.so.1: compiled once, found by processes through LD_LIBRARY_PATH, told what to say by a file."""

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("fake_nvml.c")
COMPILER = shutil.which("cc") or shutil.which("gcc")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="needs a C compiler for the fake driver")


@functools.cache
def build_driver(old: bool = False) -> Path:
    """The folder with the library, there until this process ends; `old`: one that has fewer functions."""
    folder = Path(tempfile.mkdtemp(prefix="fake-nvml-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    assert COMPILER
    command = [COMPILER, "-shared", "-fPIC", "-O1", "-Wl,-soname,libnvidia-ml.so.1", str(SOURCE)]
    if old:
        command.append("-DOLD_DRIVER")
    subprocess.run([*command, "-o", str(folder / "libnvidia-ml.so.1")], check=True)
    return folder


class FakeDriver:
    """A driver whose state is a file; processes with its environment find it."""

    def __init__(self, folder: Path, old: bool = False) -> None:
        self._state = folder / "driver.state"
        self._lines: dict[tuple[str, str], float] = {}
        self._library = build_driver(old)
        self.set(count=2)

    def set(self, gpu: int | str = "*", **numbers: float) -> None:
        """From now on it says this of a GPU, or of all."""
        self._lines |= {(str(gpu), key): number for key, number in numbers.items()}
        new = self._state.with_suffix(".new")
        # what is said of all comes first: the last line that fits counts
        lines = sorted(self._lines.items(), key=lambda line: line[0][0] != "*")
        new.write_text("".join(f"{gpu} {key} {number:.0f}\n" if number == int(number) else f"{gpu} {key} {number}\n"
                               for (gpu, key), number in lines))  # fmt: skip
        new.replace(self._state)

    @property
    def environment(self) -> dict[str, str]:
        """For processes that shall find this driver."""
        return {**os.environ, "LD_LIBRARY_PATH": str(self._library), "FAKE_NVML_STATE": str(self._state)}

    def run(self, *command: str, timeout_s: float = 240.0) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *command],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
