"""Groups of commands whose modules are imported only when one of them is run."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import CompletionItem, TyperGroup  # type: ignore[attr-defined]  # Typer completes with this class
from typer.main import get_group

from loadfactor.base.errors import no_such


@dataclass(frozen=True)
class CommandEntry:
    """A command in a list of commands: its name, the module whose `add_to` adds it to an app, and what it does."""

    name: str
    module: str
    help: str


class LazyGroup(TyperGroup):
    """A group that lists its commands from `entries` and imports the module of the one that is run."""

    entries: ClassVar[Sequence[CommandEntry]] = ()

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 (Typer's signature)
        """The names in the order of the entries."""
        return [entry.name for entry in self.entries]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """The command of that name, imported now; None where there is none."""
        entry = next((entry for entry in self.entries if entry.name == cmd_name), None)
        return entry and load_command(entry)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is named first. Raises InputError suggesting the nearest."""
        name = args[0]
        if not ctx.resilient_parsing and not name.startswith("-") and name not in self.list_commands(ctx):
            raise no_such("command", name, self.list_commands(ctx))
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Show the help where there is no word; leave the rest to the command that is named first."""
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help())
            ctx.exit()
        if args and not args[0].startswith("-"):  # reading options that are not there would import pydantic
            ctx._protected_args, ctx.args = args[:1], args[1:]
            return ctx.args  # type: ignore[no-any-return]
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Write a line a command, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(entry.name, entry.help) for entry in self.entries])

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """The names and options that begin with what was typed, without importing any command."""
        named = [CompletionItem(e.name, help=e.help) for e in self.entries if e.name.startswith(incomplete)]
        return named + super(TyperGroup, self).shell_complete(ctx, incomplete)


def add_group(app: typer.Typer, name: str, group: type[LazyGroup], about: str) -> None:
    """Add a group that takes no options of its own."""
    commands = typer.Typer(cls=group, help=about)
    commands.callback()(lambda: None)
    app.add_typer(commands, name=name)


def load_command(entry: CommandEntry) -> Any:
    """The command of an entry, its module imported."""
    app = typer.Typer(rich_markup_mode=None)
    import_module(entry.module).add_to(app)
    return get_group(app).commands[entry.name]
