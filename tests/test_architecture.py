"""The shape of the house: who may use whom, what pure packages may not do, and where things are."""

import ast
import re
from collections import defaultdict
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

from loadfactor.base.units import H_PER_YEAR, MS_PER_DAY, MS_PER_HOUR, S_PER_DAY, S_PER_HOUR

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "loadfactor"
FILES = sorted(SOURCE.rglob("*.py"))
PURE = (
    "base/limits",
    "base/quantities",
    "base/request",
    "base/units",
    "ledger/",
    "metrics/",
    "money/",
    "planner/",
    "tables/",
)
"""What has no files, clock, network, environment or logging; of `planner` all but `validation`, which reads measurements."""
WORLDLY = {"glob", "httpx", "io", "logging", "os", "random", "secrets", "shutil", "socket", "subprocess"}
WORLDLY |= {"sys", "tempfile", "threading", "time", "urllib", "uuid"}
FACTORS = {
    60,
    1000,
    1024,
    S_PER_HOUR,
    H_PER_YEAR,
    S_PER_DAY,
    1e6,
    1e9,
    1e12,
    1e15,
    2**20,
    2**30,
    2**40,
    MS_PER_HOUR,
    MS_PER_DAY,
}


def table_of_uses() -> dict[str, set[str]]:
    """The table of ARCHITECTURE.md: each room or sub-package with the rooms and sub-packages that it may use."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = text.split("## Who may use whom", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| `([^`]+)` \| (.*?) \|", section, flags=re.MULTILINE)
    return {package: set(re.findall(r"`([^`]+)`", used)) for package, used in rows}


USES = table_of_uses()


def folders_of(path: Path) -> list[str]:
    """The packages that a file is in, inmost first: `planner/serving/simulation`, `planner/serving`, `planner`."""
    parts = path.relative_to(SOURCE).parts[:-1]
    return ["/".join(parts[:depth]) for depth in range(len(parts), 0, -1)]


@cache
def read_tree(path: Path) -> ast.Module:
    """The syntax of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def package_of(path: Path) -> str:
    """The inmost package with a row of its own that a file belongs to; the file at the top is `loadfactor`."""
    return next((folder for folder in folders_of(path) if folder in USES), "loadfactor")


def imports_of(path: Path) -> set[Path]:
    """The files of this project that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(read_tree(path)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            if name == "loadfactor" or name.startswith("loadfactor."):
                inside = SOURCE.joinpath(*name.split(".")[1:])
                for candidate in (inside.with_suffix(".py"), inside / "__init__.py"):
                    if candidate.is_file():
                        found.add(candidate)
    return found


def test_every_package_is_in_the_table() -> None:
    """Each room and each of its sub-packages has a row in the table of ARCHITECTURE.md, and no row is of another."""
    packages = {folder for path in FILES for folder in folders_of(path)}
    assert {package for package in packages if package.count("/") < 2} <= set(USES) <= packages
    assert (
        len({path.relative_to(SOURCE).parts[0] for path in FILES} - {"__init__.py", "__main__.py", "warm_up.py"}) <= 15
    )


def test_imports_follow_the_table() -> None:
    """A package uses its own files and what its row lists: rooms with all that is in them, or sub-packages alone."""
    wrong = set()
    for path in FILES:
        own = package_of(path)
        for used in imports_of(path):
            other = package_of(used)
            if other not in {own, "loadfactor"} and own != "loadfactor" and not USES[own] & set(folders_of(used)):
                wrong.add(f"{own} uses {other}: {path.relative_to(SOURCE)} imports {used.relative_to(SOURCE)}")
    assert not wrong


def test_no_circles() -> None:
    """No file or package imports a neighbour in its folder that imports it, directly or through others, not even for types."""
    neighbours: defaultdict[str, set[str]] = defaultdict(set)
    for path in FILES:
        own = path.relative_to(SOURCE).with_suffix("").parts
        for used in imports_of(path):
            other = used.relative_to(SOURCE).with_suffix("").parts
            shared = next((i for i, (a, b) in enumerate(zip(own, other, strict=False)) if a != b), None)
            if shared is not None and "__init__" not in (own[shared], other[shared]):
                neighbours["/".join(own[: shared + 1])].add("/".join(other[: shared + 1]))
    assert list(TopologicalSorter(neighbours).static_order())  # raises CycleError, which names the circle


def test_pure_packages_touch_nothing() -> None:
    """Pure packages import nothing that reads files, the clock, the environment or the network, and log nothing."""
    wrong = []
    for path in FILES:
        name = path.relative_to(SOURCE).as_posix()
        if not name.startswith(PURE) or name.startswith("planner/validation/"):
            continue
        for node in ast.walk(read_tree(path)):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            elif isinstance(node, ast.Call):
                called = node.func
                name = (
                    called.id
                    if isinstance(called, ast.Name)
                    else called.attr
                    if isinstance(called, ast.Attribute)
                    else ""
                )
                if name in (
                    "open",
                    "now",
                    "today",
                    "read_text",
                    "read_bytes",
                    "write_text",
                    "print",
                    "exists",
                    "is_file",
                ):
                    wrong.append(f"{path.relative_to(SOURCE)}:{node.lineno} calls {name}")
            wrong += [f"{path.relative_to(SOURCE)} imports {name}" for name in names if name.split(".")[0] in WORLDLY]
    assert not wrong


def test_conversion_factors_live_in_units() -> None:
    """No file but units.py multiplies or divides by a conversion factor."""
    wrong = []
    for path in FILES:
        if path.name == "units.py":
            continue
        for node in ast.walk(read_tree(path)):
            if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div, ast.FloorDiv, ast.Mod)):
                for side in (node.left, node.right):
                    if isinstance(side, ast.Constant) and type(side.value) in (int, float) and side.value in FACTORS:
                        wrong.append(f"{path.relative_to(SOURCE)}:{node.lineno} {side.value:g}")
    assert not wrong


def test_files_say_what_they_hold() -> None:
    """Every file opens with a sentence that says what it holds; none opens with a question."""
    wrong = []
    for path in FILES:
        first = (ast.get_docstring(read_tree(path)) or "").split("\n", 1)[0]
        if not first or "?" in first:
            wrong.append(f"{path.relative_to(SOURCE)}: {first!r}")
    assert not wrong


def test_no_file_is_looking_for_its_noun() -> None:
    """Files are named by what they hold."""
    assert not [p for p in FILES if p.stem in ("utils", "util", "common", "helpers", "helper", "manager", "misc")]


def test_every_section_of_the_report_is_listed() -> None:
    """Every builder of a section stands in the report's visible tuple."""
    home = import_module("loadfactor.interfaces.reports.sections")
    built = {
        made for name, made in vars(home).items() if name.startswith("build_") and made.__module__ == home.__name__
    }
    assert built <= set(import_module("loadfactor.interfaces.reports.page").SECTIONS)


def test_every_source_is_listed() -> None:
    """Every module that defines a source is in SOURCES, under the source's name."""
    from loadfactor.sources import SOURCES

    listed = {f"loadfactor.sources.{entry.module}": entry.name for entry in SOURCES}
    for path in sorted((SOURCE / "sources").rglob("*.py")):
        names = path.relative_to(SOURCE).with_suffix("").parts
        names = names[:-1] if names[-1] == "__init__" else names
        module = import_module(".".join(("loadfactor", *names)))
        if hasattr(module, "SOURCE"):
            assert listed.get(module.__name__) == module.SOURCE.name


def test_every_metric_is_listed() -> None:
    """Every declaration of a metric is in METRICS, and no name is declared twice."""
    from loadfactor.metrics import METRICS
    from loadfactor.metrics.metric import Metric

    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for path in (SOURCE / "metrics").glob("*.py"):
        module = import_module(f"loadfactor.metrics.{path.stem}" if path.stem != "__init__" else "loadfactor.metrics")
        for value in vars(module).values():
            found = value if isinstance(value, tuple) else (value,)
            assert all(item in METRICS for item in found if isinstance(item, Metric)), path.stem
