"""Build the documentation as pages for a browser: `make_site.py MKDOCS FOLDER`, with the mkdocs of an environment of its own.

The pages are docs/ as it is, ARCHITECTURE.md, CHANGELOG.md, and a reference that is written here from what the program itself says:
commands, metrics, tables, levers, the HTTP API. A link that leads nowhere is an error.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import typer
import yaml
from starlette.testclient import TestClient

from loadfactor import __version__
from loadfactor.books.books import Books
from loadfactor.insight.levers import LEVERS
from loadfactor.interfaces.cli import COMMANDS
from loadfactor.interfaces.cli.commands import CommandEntry, load_command
from loadfactor.interfaces.pages.lists import build_metrics, build_tables_page
from loadfactor.interfaces.render.markdown import render_markdown
from loadfactor.interfaces.requests import NoRequest, TablesRequest
from loadfactor.interfaces.server.app import make_app
from loadfactor.interfaces.server.guard import Guard
from loadfactor.interfaces.server.run import AtRest
from loadfactor.store.tokens import TokenFile

ROOT: Final = Path(__file__).resolve().parents[2]
QUESTION: Final = re.compile(r"^\*\*(?P<question>[^*]+\?)\*\*(?P<links>.+?)(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)
LINK: Final = re.compile(r"\[([^\]]+)\]\(([^)#]+\.md)\)")
WIDTH: Final = 100


def list_commands(entries: Sequence[CommandEntry] = COMMANDS, before: str = "loadfactor") -> Iterator[str]:
    """A section for each command: its help, as the terminal shows it."""
    for entry in entries:
        words, command = f"{before} {entry.name}", load_command(entry)
        context = typer.Context(command, info_name=words, max_content_width=WIDTH, terminal_width=WIDTH)
        if command.add_help_option:
            yield f"## {words}\n\n```text\n{command.get_help(context)}\n```\n"
        yield from list_commands(entry.commands, words)


def list_levers() -> Iterator[str]:
    """A row for each lever, in the order in which they are applied."""
    yield "| lever | what to change | effort | risk | of what |\n|---|---|---|---|---|"
    for lever in LEVERS:
        yield f"| {lever.name} | {lever.title} | {lever.effort} | {lever.risk} | {lever.risk_of} |"


def list_endpoints(document: dict[str, Any]) -> Iterator[str]:
    """A section for each endpoint: what it is, and its parameters."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            about = operation.get("description") or operation.get("summary", "")
            yield f"## {method.upper()} {path}\n\n{escape(about)}\n"
            if parameters := operation.get("parameters"):
                yield "| parameter | in | meaning |\n|---|---|---|"
                for one in parameters:
                    meaning = escape(" ".join(one.get("description", "").split())).replace("|", "\\|")
                    yield f"| `{one['name']}` | {one['in']} | {meaning} |"
                yield ""


def escape(text: str) -> str:
    """Text that holds `<` as Markdown that shows it."""
    return text.replace("<", "&lt;")


def describe_api(folder: Path) -> dict[str, Any]:
    """The OpenAPI document of a server over empty books."""
    store = folder / "books"
    app = make_app(Books(store), AtRest(), Guard(TokenFile(store)))
    with TestClient(app, "http://127.0.0.1", client=("127.0.0.1", 1)) as client:
        document: dict[str, Any] = client.get("/openapi.json").json()
    return document


def write_reference(folder: Path) -> dict[str, str]:
    """Write the pages of the reference; title and address of each."""
    folder.mkdir()
    with TemporaryDirectory() as work:
        api = describe_api(Path(work))
    (folder / "openapi.json").write_text(json.dumps(api, indent=1), encoding="utf-8")
    api_words = "What a running server says of itself, [as OpenAPI](openapi.json); [how to use it](../http-api.md)."
    pages = {
        "Commands": ("commands", "\n".join(list_commands())),
        "Metrics": ("metrics", render_markdown(build_metrics(NoRequest())).partition("\n")[2]),
        "Tables": ("tables", render_markdown(build_tables_page(TablesRequest())).partition("\n")[2]),
        "Levers": (
            "levers",
            "\n".join(["[What they save](../savings.md), in the order of application.\n", *list_levers()]),
        ),
        "HTTP API": ("api", "\n".join([f"{api_words}\n", *list_endpoints(api)])),
    }
    for title, (name, text) in pages.items():
        (folder / f"{name}.md").write_text(f"# {title}\n\n{text}\n", encoding="utf-8")
    settings = {"Settings": "configuration.md", "Rules of alerts": "alerts.md"}
    return {title: f"reference/{name}.md" for title, (name, _) in pages.items()} | settings


def read_navigation(index: str, reference: dict[str, str]) -> list[dict[str, Any]]:
    """Sections by question as docs/index.md has them, each page once, the reference and the project behind them."""
    seen = {*reference.values()}
    sections: list[dict[str, Any]] = [{"Pages by question": "index.md"}]
    for found in QUESTION.finditer(index):
        pages = []
        for title, page in LINK.findall(found["links"]):
            if page not in seen:
                seen.add(page)
                pages.append({title[:1].upper() + title[1:]: page})
        if pages:
            sections.append({found["question"]: pages})
    sections.append({"Reference": [{title: page} for title, page in reference.items()]})
    sections.append({"The project": [{"Changes": "CHANGELOG.md"}, {"Architecture": "ARCHITECTURE.md"}]})
    return sections


def build_site(mkdocs: Path, site: Path) -> None:
    """Build the pages. Raises SystemExit where a link leads nowhere."""
    os.environ |= {"COLUMNS": str(WIDTH), "NO_MKDOCS_2_WARNING": "1"}
    with TemporaryDirectory() as work:
        docs = Path(work) / "docs"
        shutil.copytree(ROOT / "docs", docs)
        for name in ("CHANGELOG.md", "ARCHITECTURE.md"):
            text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
            (docs / name).write_text(text, encoding="utf-8")
        settings = yaml.safe_load((Path(__file__).parent / "mkdocs.yml").read_text(encoding="utf-8"))
        settings["site_name"] += f" {__version__}"
        settings["nav"] = read_navigation(
            (docs / "index.md").read_text(encoding="utf-8"), write_reference(docs / "reference")
        )
        settings["docs_dir"], settings["site_dir"] = str(docs), str(site.resolve())
        (Path(work) / "mkdocs.yml").write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
        done = subprocess.run([mkdocs, "build", "--strict", "-f", Path(work) / "mkdocs.yml"], check=False)
    if done.returncode:
        sys.exit("site: see above")
    print(f"{len(list(site.rglob('*.html')))} pages in {site}; open {site}/index.html")


if __name__ == "__main__":
    build_site(Path(sys.argv[1]), Path(sys.argv[2]))
