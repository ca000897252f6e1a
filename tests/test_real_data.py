"""Tests without their real data skip here, and fail where it is asked for."""

from pathlib import Path

import pytest
from tests import real_data
from tests.real_data import find_shared


def test_missing_data_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout on its own has no ../shared: what needs it is skipped."""
    monkeypatch.setattr(real_data, "SHARED", tmp_path / "shared")
    monkeypatch.delenv("LOADFACTOR_REQUIRE_SHARED", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"at \.\./shared/data"):
        find_shared("data")


@pytest.mark.parametrize("name", ["", "data", "truth/test_vectors.json"])
def test_missing_data_fails_where_it_is_required(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """CI sets LOADFACTOR_REQUIRE_SHARED=1: a folder that is not there, or only in part, is no silent pass."""
    monkeypatch.setattr(real_data, "SHARED", tmp_path / "shared")
    monkeypatch.setenv("LOADFACTOR_REQUIRE_SHARED", "1")
    with pytest.raises(pytest.fail.Exception, match="LOADFACTOR_REQUIRE_SHARED asks for it"):
        find_shared(name)


def test_only_one_module_looks_for_the_data() -> None:
    """Every other test asks for the fixture `shared` or `find_shared`: one that looked by itself would skip in silence."""
    folder = Path(__file__).parent
    others = {*folder.rglob("*.py"), *folder.parent.glob("packages/*/tests/**/*.py")} - {folder / "real_data.py"}
    looking = [path.name for path in others if '/ "shared"' in path.read_text(encoding="utf-8")]
    assert looking == [Path(__file__).name]
