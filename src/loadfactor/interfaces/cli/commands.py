"""How commands are made: entries of a list become Typer commands, imported only when one of them is run.

Every field of a command's request is an option, and the page that is built of the request is shown.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, get_args

import typer
from typer.core import CompletionItem, TyperGroup  # type: ignore[attr-defined]  # Typer completes with this class
from typer.main import get_group

from loadfactor.base.errors import InputError, no_such
from loadfactor.interfaces.known import KNOWN, find

if TYPE_CHECKING:
    from loadfactor.base.request import Option

NO_OPTIONS = "loadfactor.interfaces.requests.NoRequest"


class CommandEntry(NamedTuple):  # made in a tenth of the time of a dataclass, each time that a help is shown
    """A command: its name, what it does (the first paragraph is listed), and what runs it, by dotted names.

    `request` is the class of what it takes, `build` the function that makes its page of that, `formats` those that it has besides.
    A command that is no page, or takes words as they are, is a Typer `function` with its `settings`. An entry with `commands` is a
    group; `build` is then what it does without one of them. `more` is a function whose text follows in its help.
    """

    name: str
    about: str
    build: str = ""
    request: str = NO_OPTIONS
    formats: Mapping[str, str] = MappingProxyType({})
    function: str = ""
    settings: Mapping[str, Any] = MappingProxyType({})
    commands: tuple["CommandEntry", ...] = ()
    more: str = ""

    @property
    def help(self) -> str:
        """The sentence beside its name in a list of commands."""
        return self.about.partition("\n\n")[0]


class LazyGroup(TyperGroup):
    """A group that lists its commands from `entries` and imports what belongs to the one that is run."""

    entries: ClassVar[Sequence[CommandEntry]] = ()

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 (Typer's signature)
        return [entry.name for entry in self.entries]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        entry = next((entry for entry in self.entries if entry.name == cmd_name), None)
        return entry and load_command(entry)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is named first. Raises InputError suggesting the nearest."""
        name = args[0]
        if not ctx.resilient_parsing and not name.startswith("-") and name not in self.list_commands(ctx):
            _refuse_removed_command(ctx, name)
            raise no_such("command", name, self.list_commands(ctx))
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Show the help where there is no word and nothing to do without; leave the rest to the command that is named first."""
        if not args and not ctx.resilient_parsing and not self.invoke_without_command:
            typer.echo(ctx.get_help())
            ctx.exit()
        if args and not args[0].startswith("-"):  # reading options that are not there would import pydantic
            ctx._protected_args, ctx.args = args[:1], args[1:]
            return ctx.args  # type: ignore[no-any-return]
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(entry.name, entry.help) for entry in self.entries])

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        named = [CompletionItem(e.name, help=e.help) for e in self.entries if e.name.startswith(incomplete)]
        return named + super(TyperGroup, self).shell_complete(ctx, incomplete)


def _refuse_removed_command(ctx: typer.Context, name: str) -> None:
    from loadfactor.base.removed import find_removal

    group = ctx.command_path.partition(" ")[2]  # empty for the program itself
    removal = find_removal("commands", f"{group} {name}".strip())
    if removal is not None:
        raise InputError(removal.sentence)


def load_command(entry: CommandEntry) -> Any:
    """The command of an entry; its request is imported now, what builds its page when it runs."""
    from loadfactor.interfaces.cli.arrow_alone import leave_pandas_out  # a list of commands does without

    leave_pandas_out()
    app = typer.Typer(rich_markup_mode=None)
    about = f"{entry.about}\n\n{find(entry.more)()}" if entry.more else entry.about
    if entry.commands:
        group = type("Commands", (LazyGroup,), {"entries": entry.commands})
        commands = typer.Typer(cls=group, help=about)
        run = _run_alone(_make_command(entry)) if entry.build else lambda: None
        commands.callback(invoke_without_command=bool(entry.build))(run)
        app.add_typer(commands, name=entry.name)
    elif entry.function:
        app.command(entry.name, help=about, **entry.settings)(find(entry.function))
    else:
        app.command(entry.name, help=about)(_make_command(entry))
    return get_group(app).commands[entry.name]


def _make_command(entry: CommandEntry) -> Callable[..., None]:
    from loadfactor.base.request import make_request, options_of
    from loadfactor.interfaces.render.present import present

    request = find(entry.request)
    own = options_of(request)
    shared = _make_shared(entry.formats)
    for item in own:  # one that is called as a shared option takes its place
        shared.pop(item.field, None)

    def run(**given: Any) -> None:
        show = {name: given.pop(name) for name in shared}
        fields = {name: value for name, value in given.items() if value is not None}
        try:
            page = find(entry.build)(make_request(request, fields))
        except InputError:
            _refuse_removed_values(entry.name, own, fields)
            raise
        output_format = "json" if show.get("json") else show.get("output_format", "terminal")
        formats = {name: find(dotted) for name, dotted in entry.formats.items()}
        present(page, output_format, show.get("output"), show.get("brief", False), formats)

    _sign(run, [*map(_make_parameter, own), *shared.values()])
    return run


def _refuse_removed_values(command: str, options: Sequence["Option"], fields: Mapping[str, Any]) -> None:
    """Raise InputError if an option was given a value that it had once; only asked when the input was refused anyway."""
    from loadfactor.base.removed import find_removed_value

    for item in options:
        removal = find_removed_value(command, item.flag, str(fields.get(item.field, "")))
        if removal is not None:
            raise InputError(removal.sentence)


def _run_alone(command: Callable[..., None]) -> Callable[..., None]:
    """The function of a group, which does what the command does where no command of the group is named."""
    signature = inspect.signature(command)

    def run(ctx: typer.Context, **given: Any) -> None:
        if ctx.invoked_subcommand is None:
            command(**given)
        elif any(value != signature.parameters[field].default for field, value in given.items()):
            raise InputError(f"options stand behind the command: loadfactor {ctx.info_name} {ctx.invoked_subcommand} …")

    first = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    _sign(run, [first, *signature.parameters.values()])
    return run


def _sign(function: Any, parameters: Sequence[inspect.Parameter]) -> None:
    function.__signature__ = inspect.Signature(parameters)
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}


# -- options -----------------------------------------------------------------------------------------------------------


def name_formats(besides: Iterable[str] = ()) -> Any:
    """The option of formats, those that one command has besides among them."""
    from loadfactor.interfaces.render.present import Format as Formats

    known = (*get_args(Formats), *besides)
    shown: dict[str, Any] = {"metavar": "|".join(known), "autocompletion": complete(lambda: known)}
    annotated: Any = Annotated  # made at run time
    return annotated[str, typer.Option("--format", help="How to show the answer.", **shown)]


Json = Annotated[bool, typer.Option("--json", help="Short for --format json.")]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="Write the answer to a file: .html, .pdf, .xlsx, .md, .json, .csv, .txt, or its pictures: .png, .svg.",
    ),
]
Brief = Annotated[bool, typer.Option("--brief", help="The sentence and the main table alone.")]


def _make_shared(formats: Iterable[str]) -> dict[str, inspect.Parameter]:
    kinds: dict[str, tuple[Any, Any]] = {
        "output_format": (name_formats(formats), "terminal"),
        "json": (Json, False),
        "output": (Output, None),
        "brief": (Brief, False),
    }
    return {
        name: inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in kinds.items()
    }


def _make_parameter(item: "Option") -> inspect.Parameter:
    """One option of a request (`base.request.Option`). Values stay text: the request reads and checks them."""
    shown: dict[str, Any] = {"help": _help(item), "metavar": _metavar(item), "show_default": False}
    if item.choices or item.field in KNOWN:
        shown["autocompletion"] = complete(KNOWN.get(item.field, lambda: item.choices))
    kind: Any = (
        list[str]
        if item.many
        else list[Path]
        if item.is_store
        else bool
        if item.kind is bool
        else Path
        if item.kind is Path
        else str
    )
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


def _help(item: "Option") -> str:
    return f"{item.help} [default: {item.shown_default}]" if item.shown_default else item.help


def _metavar(item: "Option") -> str:
    if item.is_argument and not item.choices:
        return item.flag
    if item.choices:
        return "|".join(item.choices)
    name = {int: "N", float: "NUMBER", Path: "PATH"}.get(item.kind, "TEXT")
    if item.kind is Path:  # a comma may be part of its name: the option is repeated
        return f"{name} …" if item.many else name
    return f"{name},…" if item.many else name


# -- completion by the shell -------------------------------------------------------------------------------------------


def complete(known: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """A completion for Typer: the names that begin with what was typed, after the last comma of a list."""

    def names(incomplete: str) -> list[str]:
        before, comma, typed = incomplete.rpartition(",")
        return [before + comma + name for name in known() if name.startswith(typed)]

    return names
