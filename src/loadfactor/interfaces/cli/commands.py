"""Commands made from requests: every field of the request is an option, and the page it builds is shown."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import typer

from loadfactor.base.errors import InputError
from loadfactor.base.request import Option, RequestT, make_request, options_of
from loadfactor.interfaces.cli.completion import KNOWN, complete
from loadfactor.interfaces.cli.invocation import as_typed
from loadfactor.interfaces.cli.options import Brief, Format, Json, Output, name_formats
from loadfactor.interfaces.document import Document
from loadfactor.interfaces.render.present import present

SHARED = {
    "output_format": (Format, "terminal"),
    "json": (Json, False),
    "output": (Output, None),
    "brief": (Brief, False),
}
"""What every such command takes besides."""


def add_command(
    app: typer.Typer,
    name: str,
    request: Callable[..., RequestT],
    build: Callable[[RequestT], Document],
    about: str,
    besides: Mapping[str, Callable[[Document], str]] = MappingProxyType({}),
) -> None:
    """Add a command that makes the request, builds its page and shows it. `besides` are formats that only it has.

    A field of the request that is called as a shared option takes its place.
    """
    app.command(name, help=about)(_make_command(request, build, besides))


def add_commands(
    app: typer.Typer,
    name: str,
    about: str,
    *commands: tuple[str, Any, Any, str],
    alone: tuple[Any, Any] | None = None,
) -> None:
    """Add a command that has commands of its own, each as `add_command` takes it.

    `alone` is the request and what builds the page where none of them is named; without it that shows the help.
    """
    group = typer.Typer(help=about, no_args_is_help=alone is None)
    if alone is not None:
        group.callback(invoke_without_command=True)(_run_alone(_make_command(*alone, {})))
    for command in commands:
        add_command(group, *command)
    app.add_typer(group, name=name)


def _make_command(
    request: Callable[..., RequestT],
    build: Callable[[RequestT], Document],
    besides: Mapping[str, Callable[[Document], str]],
) -> Callable[..., None]:
    """The function of a command, with the options of the request as its parameters."""
    taken = {item.field for item in options_of(request)}

    def run(**given: Any) -> None:
        shared: dict[str, Any] = {
            field: default if field in taken else given.pop(field) for field, (_, default) in SHARED.items()
        }
        asked = make_request(request, {field: value for field, value in given.items() if value is not None})
        page = as_typed(build(asked))
        output_format = "json" if shared["json"] else shared["output_format"]
        present(page, output_format, shared["output"], shared["brief"], besides)

    own = [_parameter(item) for item in options_of(request)]
    kinds = {field: kind for field, (kind, _) in SHARED.items()} | {"output_format": name_formats(besides)}
    shared = [
        inspect.Parameter(field, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kinds[field])
        for field, (_, default) in SHARED.items()
        if field not in taken
    ]
    run.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in (*own, *shared)}
    return run


def _run_alone(command: Callable[..., None]) -> Callable[..., None]:
    """The function of a group, which does what the command does where no command of the group is named."""
    signature = inspect.signature(command)

    def run(ctx: typer.Context, **given: Any) -> None:
        if ctx.invoked_subcommand is None:
            command(**given)
        elif any(value != signature.parameters[field].default for field, value in given.items()):
            raise InputError(f"options stand behind the command: loadfactor {ctx.info_name} {ctx.invoked_subcommand} …")

    first = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    run.__signature__ = inspect.Signature([first, *signature.parameters.values()])  # type: ignore[attr-defined]
    run.__annotations__ = {"ctx": typer.Context, **command.__annotations__}
    return run


def _parameter(item: Option) -> inspect.Parameter:
    """One option of the command line. Values stay text: the request reads and checks them."""
    shown: dict[str, Any] = {"help": _help(item), "metavar": _metavar(item), "show_default": False}
    if item.choices or item.field in KNOWN:
        known = KNOWN.get(item.field, lambda: item.choices)
        shown["autocompletion"] = complete(known)
    kind: Any = list[str] if item.many else bool if item.kind is bool else Path if item.kind is Path else str
    if item.is_argument:
        declared: Any = typer.Argument(**shown)
    elif item.kind is bool:
        off = f"/--no-{item.flag.removeprefix('--')}" if item.default is not False else ""
        declared = typer.Option(item.flag + off, help=_help(item), show_default=False)
    else:
        declared = typer.Option(item.flag, *([item.short] if item.short else []), **shown)
    annotated: Any = Annotated  # made at run time, from the request
    annotation = annotated[kind if item.required else kind | None, declared]
    default = inspect.Parameter.empty if item.required else None
    return inspect.Parameter(item.field, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _help(item: Option) -> str:
    """What the option says, with its default as a person would type it."""
    if item.required or item.default in (None, (), ""):
        return item.help
    default = item.default
    if isinstance(default, bool):
        return f"{item.help} [default: yes]" if default else item.help
    if isinstance(default, tuple):
        default = ",".join(str(part) for part in default)
    return f"{item.help} [default: {default:g}]" if isinstance(default, float) else f"{item.help} [default: {default}]"


def _metavar(item: Option) -> str:
    if item.is_argument and not item.choices:
        return item.flag
    if item.choices:
        return "|".join(item.choices)
    name = {int: "N", float: "NUMBER", Path: "PATH"}.get(item.kind, "TEXT")
    if item.kind is Path:  # a comma may be part of its name: the option is repeated
        return f"{name} …" if item.many else name
    return f"{name},…" if item.many else name
