"""The reading API as tools of the Model Context Protocol, over standard input and output.

A tool is an endpoint that reads: its words and arguments come from the OpenAPI document, and a call is a request of the same
application in this process, so that reach, bounds and answers are those of the server.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import anyio
import httpx
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from loadfactor import __version__
from loadfactor.base.errors import InputError
from loadfactor.base.units import BYTES_PER_KIB
from loadfactor.books.books import Books
from loadfactor.interfaces.server.app import NEEDS, make_app
from loadfactor.interfaces.server.gate import Gate
from loadfactor.interfaces.server.guard import GRANTS, Guard
from loadfactor.interfaces.server.run import AtRest
from loadfactor.settings.config import Settings
from loadfactor.store.tokens import TokenFile

ROOT: Final = "/api/v1/"
OPEN: Final = "open"
FORMAT: Final = "format"
MOST_BYTES: Final = 512 * BYTES_PER_KIB
"""Of one answer: more is of no use to a model."""
ABOUT: Final = (
    "The books of a GPU fleet: how full it is, what a job, team, token or epoch costs, why it is not fuller and what to change. "
    "`metrics` lists what can be asked; `readings` answers it, split by dimensions and windows. Unknown is null, never zero, and "
    "coverage says how much was known."
)


def serve_tools(folder: Path, token: str | None, settings: Settings) -> None:
    """Offer the books as tools until standard input ends; `token` decides what may be read, None where the books ask for none.

    Raises InputError where the token is not known or is missing, StoreError where the books cannot be read.
    """
    books = Books.open(folder, idle_below=settings.idle_below)
    tokens = TokenFile(books.store.folder)
    right = _find_right(tokens, token)
    app = make_app(books, AtRest(), Guard(tokens, is_read_only=True), is_live=False)
    anyio.run(_serve, app, right, token)


def _find_right(tokens: TokenFile, token: str | None) -> str:
    if token is None:
        if tokens.list():
            raise InputError("these books ask for a token; give --token-file FILE, with a token that reads")
        return OPEN
    record = tokens.find(token)
    if record is None:
        raise InputError("this token is not known or was revoked; `loadfactor token create --read` makes another")
    if "read" not in GRANTS[record.right]:
        raise InputError("this token only sends; give one that reads")
    return record.right


async def _serve(app: Gate, right: str, token: str | None) -> None:
    headers = {"Accept": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
        document = (await client.get("/openapi.json")).raise_for_status().json()
        tools = {tool.name: (path, tool) for path, tool in _list_tools(document, right)}

        async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
            return types.ListToolsResult(tools=[tool for _, tool in tools.values()])

        async def call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
            if params.name not in tools:
                return _refuse(f"no tool called {params.name!r}; there are {', '.join(tools)}")
            path, tool = tools[params.name]
            return await _call(client, path, tool.input_schema["properties"], params.arguments or {})

        server: Server[Any] = Server(
            "loadfactor", version=__version__, instructions=ABOUT, on_list_tools=list_tools, on_call_tool=call_tool
        )
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())


def _list_tools(document: dict[str, Any], right: str) -> Iterator[tuple[str, types.Tool]]:
    """The endpoints that read and that this right admits, each with the address it asks."""
    for path, methods in document["paths"].items():
        if path.startswith(ROOT) and "get" in methods and NEEDS["GET", path] in GRANTS[right]:
            taken = [of for of in methods["get"].get("parameters", ()) if of["name"] != FORMAT]
            schema = {
                "type": "object",
                "properties": {of["name"]: _describe(of) for of in taken},
                "required": [of["name"] for of in taken if of["required"]],
                "additionalProperties": False,
            }
            name = path.removeprefix(ROOT).replace("-", "_")
            hints = types.ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
            about = methods["get"]["description"]
            yield path, types.Tool(name=name, description=about, input_schema=schema, annotations=hints)


def _describe(parameter: dict[str, Any]) -> dict[str, Any]:
    about = parameter.get("description")
    return {**parameter["schema"], **({"description": about} if about else {})}


async def _call(
    client: httpx.AsyncClient, path: str, known: dict[str, Any], arguments: dict[str, Any]
) -> types.CallToolResult:
    unknown = sorted(set(arguments) - set(known))
    if unknown:
        return _refuse(f"no argument called {unknown[0]!r}; there are {', '.join(known) or 'none'}")
    given = {name: _write(value) for name, value in arguments.items() if value is not None}
    answer = await client.get(path, params=given)
    if answer.status_code != httpx.codes.OK:
        return _refuse(answer.json()["error"])
    if len(answer.content) > MOST_BYTES:
        return _refuse(
            f"the answer has {len(answer.content):,} bytes, at most {MOST_BYTES:,} are sent; ask for fewer groups, metrics or "
            "rows, or for a shorter window"
        )
    content: list[Any] = [types.TextContent(type="text", text=answer.text)]
    found = json.loads(answer.content)
    return types.CallToolResult(content=content, structured_content=found if isinstance(found, dict) else None)


def _write(value: Any) -> Any:
    """A value of JSON as an address has it."""
    if isinstance(value, list):
        return [_write(item) for item in value]
    return json.dumps(value) if isinstance(value, bool) else value


def _refuse(line: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=line)], is_error=True)
