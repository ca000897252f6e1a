"""The pages of docs/: listed, their links are there, every command and snippet runs; and the distributions are of one version."""

import ast
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from benchmarks.commands import OF_README
from tests.long import rest_long

from loadfactor.interfaces.cli import COMMANDS, main
from loadfactor.settings.config import settings

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.glob("*.md")])
LINK = re.compile(r"\]\(([^)#]+?)(?:#[^)]*)?\)")


def test_every_page_is_in_the_index() -> None:
    """`docs/index.md` links to each page of docs/ by question."""
    by_question = (DOCS / "index.md").read_text(encoding="utf-8").split("## By reader", 1)[0]
    assert {page.name for page in DOCS.glob("*.md")} - {"index.md"} == set(LINK.findall(by_question))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """A link of a page to a file of this project names one that is there."""
    targets = [target for target in LINK.findall(page.read_text(encoding="utf-8")) if ":" not in target]
    assert not [target for target in targets if not (page.parent / target).exists()]


def test_each_page_says_what_to_do_next() -> None:
    """Its last line names other pages; those that are written by the program are lists."""
    lists = {"index.md", "alerts.md", "configuration.md", "one-number.md", "removed.md", "sources.md"}
    last = {page.name: page.read_text(encoding="utf-8").splitlines()[-1] for page in DOCS.glob("*.md")}
    assert {name for name, line in last.items() if not line.startswith("Next: [")} == lists


def test_the_readme_is_short() -> None:
    """A newcomer reads it whole: at most 120 lines."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_each_command_of_the_readme_is_measured() -> None:
    """`make bench-quick` has a line for each, and CI sees when it becomes dearer."""
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    commands = [line.partition("#")[0].split() for line in lines if line.startswith("loadfactor ")]
    assert [" ".join(words[1:]) for words in commands] == list(OF_README.values())


RUN_PAGES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "examples" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
)
BLOCK = re.compile(r"^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
IN_TEXT = re.compile(r"`(loadfactor [^`]+)`")
REAL_TRACE = {"TRACE": "data/utilization"}
"""Words of commands that stand for real data, which is not part of the project."""
RUNS_ON = (["up"], ["serve"], ["mcp"], ["demo", "--serve"], ["agent"], ["record"], ["import", "prometheus"])
"""How commands begin that run until they are told to stop, or need a server or a driver: here it is seen that they are there."""
WITH_SETTINGS = (
    "charge-teams.md",
    "follow-budgets.md",
    "price-owned-gpus.md",
    "where-the-money-went.md",
)
"""Pages whose commands read what their TOML says, put together as loadfactor.toml."""
MAY_SAY_NO = ("plan", "validate", "check")
"""Commands whose answer may be no: exit code 1. `check` says so where Slurm's commands are installed and no Slurm runs."""


def blocks(page: Path) -> list[tuple[str, str]]:
    """The fenced blocks of a page in their order: kind and text."""
    return [(m["kind"], m["text"]) for m in BLOCK.finditer(page.read_text(encoding="utf-8"))]


def commands(page: Path) -> list[list[str]]:
    """The words of each loadfactor command in the blocks of a page, without `$` and comment."""
    lines = [line.strip() for _, text in blocks(page) for line in text.replace("\\\n", " ").splitlines()]
    typed = [line.removeprefix("$ ") for line in lines]
    return [shlex.split(line, comments=True)[1:] for line in typed if line.startswith("loadfactor ")]


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory, october: Path) -> Path:
    """A folder with the examples and books beside them."""
    folder = tmp_path_factory.mktemp("documented")
    shutil.copytree(ROOT / "examples", folder / "examples")
    shutil.copytree(october, folder / "books")
    return folder


@pytest.fixture
def here(examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that folder to work in."""
    folder = tmp_path / "here"
    shutil.copytree(examples, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "100")
    return folder


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("page", rest_long(RUN_PAGES), ids=lambda page: page.name)
def test_the_commands_of_a_page_run(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command in a fenced block works as printed, in the order of the page."""
    if page.name in WITH_SETTINGS:
        Path("loadfactor.toml").write_text("\n".join(text for kind, text in blocks(page) if kind == "toml"))
        settings.cache_clear()
    skipped = []
    for words in commands(page):
        typed = [place_real_data(word) for word in words]
        if None in typed or (skipped and "fleet" in words):  # the books of that data are not there either
            skipped.append(shlex.join(words))
            continue
        if any(words[: len(begin)] == begin for begin in RUNS_ON):
            typed = [words[0], "--help"]
        monkeypatch.setattr(sys, "argv", ["loadfactor", *(word for word in typed if word)])
        with pytest.raises(SystemExit) as left:
            main()
        said = capsys.readouterr().err
        assert left.value.code in (None, 0, *((1,) if words[0] in MAY_SAY_NO else ())), f"{shlex.join(words)}: {said}"
        assert not said, f"{shlex.join(words)}: {said}"
    if page.name in WITH_SETTINGS:
        settings.cache_clear()
    if skipped:
        pytest.skip(f"no real data beside the checkout for: {'; '.join(skipped)}")


def place_real_data(word: str) -> str | None:
    """The word with a name for real data replaced by where it is; None where it is not there."""
    if word not in REAL_TRACE:
        return word
    path = ROOT.parent / "shared" / REAL_TRACE[word]
    return str(path) if path.is_dir() else None


@pytest.mark.parametrize(
    "page", rest_long(p for p in RUN_PAGES if any(kind == "python" for kind, _ in blocks(p))), ids=lambda p: p.name
)
def test_the_python_of_a_page_runs(page: Path, here: Path) -> None:
    """The snippets of a page run one after the other."""
    names: dict[str, object] = {"__name__": page.name}
    for kind, text in blocks(page):
        if kind == "python":
            exec(compile(text, f"{page.name} in {here.name}", "exec"), names)


@pytest.mark.parametrize("page", RUN_PAGES, ids=lambda page: page.name)
def test_the_commands_named_in_the_text_exist(page: Path) -> None:
    """A command between backticks in a sentence begins with a command that there is."""
    names = {entry.name for entry in COMMANDS}
    for command in IN_TEXT.findall(page.read_text(encoding="utf-8")):
        word = command.split()[1]
        assert word in names or word in ("COMMAND", "--help", "--version", "--install-completion"), command


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
