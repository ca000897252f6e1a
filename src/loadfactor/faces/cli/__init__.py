"""What can be asked at the terminal? One module a command; `COMMANDS` lists them in the order a newcomer reads them."""

import sys
from typing import Annotated

import typer

from loadfactor import __version__
from loadfactor.errors import InputError, LoadfactorError
from loadfactor.faces.cli import demo, doctor, import_, metrics, plan, report, show, tables, validate

COMMANDS = (demo, import_, report, show, metrics, tables, doctor, plan, validate)

app = typer.Typer(
    name="loadfactor",
    help="Keeps the books of a GPU fleet: how full, at what cost, why not fuller, and should you scale at all.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in COMMANDS:
    command.add_to(app)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"loadfactor {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Options that stand before a command."""


def main() -> None:
    """Run the command line. Exit code 2 and one line on stderr for a user's mistake, 1 for damaged books, never a traceback."""
    try:
        app()
    except InputError as error:
        sys.stderr.write(f"loadfactor: {error}\n")
        sys.exit(2)
    except LoadfactorError as error:
        sys.stderr.write(f"loadfactor: {error}\n")
        sys.exit(1)
    except BrokenPipeError:  # the reader (head, less) has seen enough
        sys.stderr.close()
