"""What tests of the books share: a loadfactor.toml of their own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loadfactor.settings.config import settings

Write = Callable[[str], None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes loadfactor.toml in the working folder, and has it read anew."""
    monkeypatch.chdir(tmp_path)

    def _write(text: str) -> None:
        (tmp_path / "loadfactor.toml").write_text(text)
        settings.cache_clear()

    yield _write
    monkeypatch.undo()
    settings.cache_clear()
