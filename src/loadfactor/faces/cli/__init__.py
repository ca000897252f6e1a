"""What can be asked at the terminal? One module a command; `COMMANDS` lists them in the order a newcomer reads them."""

import sys
from typing import Annotated

import typer
from typer.exceptions import TyperException

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
        sys.exit(app(standalone_mode=False))
    except TyperException as error:  # words on the command line that mean nothing
        _leave(f"{error.format_message().rstrip('.')}; see `loadfactor --help`", 2)
    except InputError as error:
        _leave(str(error), 2)
    except LoadfactorError as error:
        _leave(str(error), 1)
    except (KeyboardInterrupt, typer.Abort):
        _leave("stopped; the books are as they were before this command", 130)
    except BrokenPipeError:  # the reader (head, less) has seen enough
        sys.stderr.close()


def _leave(message: str, code: int) -> None:
    """Say what is wrong in one line, and go."""
    sys.stderr.write(f"loadfactor: {' '.join(message.split())}\n")
    sys.exit(code)
