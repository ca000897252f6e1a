"""Tools of the Model Context Protocol, asked by the client of its SDK through a real process."""

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from tests.commands import Run
from tests.interfaces.server.conftest import MINE, THEIRS

from loadfactor.base.clock import now_ms
from loadfactor.books.books import Books
from loadfactor.store.tokens import create_token, revoke_token

PROGRAM = "from loadfactor.interfaces.cli import main; main()"
ASKED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("readings", {"metric": ["observed_gpu_hours", "utilization"], "by": ["team"], "without_idle": True}),
    ("jobs", {"limit": 100}),
    ("devices", {}),
    ("statements", {}),
    ("diagnosis", {"jobs": 1}),
    ("readings", {"metric": ["utl"]}),
    ("readings", {"team": MINE}),
    ("savings", {}),
    ("write", {}),
)


async def ask(store: Path, *more: str) -> tuple[list[Any], list[tuple[bool, str]]]:
    """The tools of a process, and its answers to `ASKED`: whether it refused, and the text."""
    words = ["-c", PROGRAM, "mcp", "--store", str(store), *more]
    process = StdioServerParameters(command=sys.executable, args=words, env=dict(os.environ))
    async with Client(stdio_client(process)) as client:
        tools = (await client.list_tools()).tools
        found = [await client.call_tool(name, arguments) for name, arguments in ASKED]
    return tools, [(of.is_error, of.content[0].text) for of in found]


def test_tools_answer_within_their_token(team_books: Books, tmp_path: Path, run: Run) -> None:
    """Who reads everything has every endpoint that reads; a team its own rows, and no tool that is of the fleet."""
    store = tmp_path / "books"
    shutil.copytree(team_books.store.folder, store)
    tools, answers = asyncio.run(ask(store))
    assert {tool.name for tool in tools} > {"readings", "savings", "why_changed", "seff", "bridge"}
    assert all(tool.annotations.read_only_hint and tool.description for tool in tools)
    assert [refused for refused, _ in answers] == [False] * 5 + [True, True, False, True]
    readings = json.loads(answers[0][1])["readings"]
    expected = team_books.show(["observed_gpu_hours", "utilization"], ["team"], without_idle=True)
    assert [(of["by"]["team"], of["value"]) for of in readings] == [(of.by["team"], of.value) for of in expected]
    assert "did you mean" in answers[5][1] or "loadfactor metrics" in answers[5][1]

    record, token = create_token(store, "read-team", MINE, "a model", now_ms())
    _, sends = create_token(store, "write", None, "an agent", now_ms())
    file = tmp_path / "token"
    file.write_text(f"{token}\n")
    tools, answers = asyncio.run(ask(store, "--token-file", str(file)))
    assert {"savings", "imports"}.isdisjoint(tool.name for tool in tools)
    assert [refused for refused, _ in answers] == [False] * 5 + [True] * 4
    assert MINE in answers[0][1]
    assert THEIRS not in json.dumps(answers)

    words = ["mcp", "--store", str(store)]
    assert run(*words)[::2] == (
        2,
        "loadfactor: these books ask for a token; give --token-file FILE, with a token that reads\n",
    )
    file.write_text(sends)
    assert "only sends" in run(*words, "--token-file", str(file))[2]
    revoke_token(store, record.id, now_ms())
    file.write_text(token)
    assert "revoked" in run(*words, "--token-file", str(file))[2]
    assert "cannot be read" in run(*words, "--token-file", str(tmp_path / "none"))[2]


def test_without_the_sdk_it_says_what_to_install(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an extra: who reads no books by a model has no need of it."""
    monkeypatch.delitem(sys.modules, "loadfactor.interfaces.server.mcp", raising=False)
    monkeypatch.setitem(sys.modules, "mcp_types", None)
    assert run("mcp")[::2] == (2, "loadfactor: its SDK is not installed: `pip install 'loadfactor[mcp]'`\n")
