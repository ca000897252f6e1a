"""The distributions beside the main one: of one version with it, and importing nothing that they do not bring with them."""

import ast
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def read_version(path: str) -> str:
    """The version that a package gives itself."""
    found = re.search(r'^__version__ = "(.+)"$', (ROOT / path).read_text(), re.MULTILINE)
    assert found
    return found[1]


def test_one_version() -> None:
    """All three are released together: the main one depends on the others of just its own version."""
    version = read_version("src/loadfactor/__init__.py")
    project = (ROOT / "pyproject.toml").read_text()
    for name in ("agent", "track"):
        assert read_version(f"packages/{name}/src/loadfactor_{name}/__init__.py") == version
        assert f'"loadfactor-{name}=={version}"' in project


@pytest.mark.parametrize(
    ("name", "brought", "oldest"), [("agent", {"pynvml", "grpc"}, (3, 11)), ("track", {"transformers"}, (3, 9))]
)
def test_it_stands_alone(name: str, brought: set[str], oldest: tuple[int, int]) -> None:
    """It imports the standard library, what it brings and its own files, relatively; of Trainers what a callback is made of."""
    allowed = {*sys.stdlib_module_names, *brought}
    files = sorted((ROOT / "packages" / name / "src").rglob("*.py"))
    assert files
    for path in files:
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text, feature_version=oldest)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level != 1:
                names.append("." * node.level + (node.module or ""))
            assert {name.split(".")[0] for name in names} <= allowed, path
