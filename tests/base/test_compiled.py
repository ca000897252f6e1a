"""What Numba compiles is kept for the user, by its text."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

TEXT = """
from loadfactor.base.compiled import entry, inner

@inner
def double(x):
    return 2 * x

@entry
def quadruple(x):
    return double(double(x))
"""


def load(folder: Path, text: str) -> ModuleType:
    """A module of this text in a folder, as an environment of its own has it."""
    folder.mkdir()
    (folder / "doubled.py").write_text(text)
    spec = spec_from_file_location("doubled", folder / "doubled.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_environments_share_what_one_of_them_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same text elsewhere compiles nothing; another text does, and says something else."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = {}
    for name, text in (("one", TEXT), ("two", TEXT), ("three", TEXT.replace("2 * x", "3 * x"))):
        quadruple = load(tmp_path / name, text).quadruple
        found[name] = quadruple(5), sum(quadruple.stats.cache_hits.values()), sum(quadruple.stats.cache_misses.values())
    assert found == {"one": (20, 0, 1), "two": (20, 1, 0), "three": (45, 0, 1)}
    assert not list(tmp_path.glob("*/__pycache__/compiled-*"))


def test_an_inner_function_is_compiled_once_for_whole_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Constants, variables that begin as one, and arguments take the same code, of which only the entry is kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    text = TEXT.replace("double(double(x))", "double(1) * double(double(x))")
    module = load(tmp_path / "one", text)
    assert module.quadruple(5) == 40
    assert len(module.double.signatures) == 1
    assert [path.name.partition("-")[0] for path in tmp_path.glob("cache/*/compiled-*/*.nbc")] == ["doubled.quadruple"]
