"""How a command ends: its exit code, and one line on stderr where something is wrong."""

import os
import re
import sys
from typing import Any, NoReturn

import typer
from typer.exceptions import TyperException

from loadfactor.errors import InputError, LoadfactorError, no_such
from loadfactor.faces.cli.invocation import as_typed
from loadfactor.faces.render.ascii import write_ascii_where_needed
from loadfactor.faces.visible import spell_out

DONE, NO, MISTAKE, STOPPED = 0, 1, 2, 130


def run_and_leave(app: typer.Typer) -> NoReturn:
    """Run an app and exit: 0 done, 1 the answer is no or the books are damaged, 2 the user's mistake, 130 stopped."""
    write_ascii_where_needed()
    try:
        code = app(standalone_mode=False, prog_name="loadfactor")
        sys.stdout.flush()
    except TyperException as error:
        _leave(_words_of(error), MISTAKE)
    except InputError as error:
        _leave(str(error), MISTAKE)
    except LoadfactorError as error:
        _leave(str(error), NO)
    except (KeyboardInterrupt, typer.Abort):
        code = STOPPED
    except BrokenPipeError:  # the reader (head, less) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = DONE
    except OSError as error:
        _leave(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}", NO)
    except Exception as error:
        _leave_unexpected(error)
    if code == STOPPED:  # Typer turns Ctrl-C into this code
        _leave("stopped; the books are as they were before this command", STOPPED)
    sys.exit(code)


def _leave(message: str, code: int) -> NoReturn:
    """Say what is wrong in one line, and exit."""
    line = re.sub(r"[ \r\n]+", " ", as_typed(message)).strip()
    sys.stderr.write(f"loadfactor: {spell_out(line)}\n")
    sys.exit(code)


def _leave_unexpected(error: Exception) -> NoReturn:
    """Say where to report a mistake of this program; with LOADFACTOR_DEBUG=1 show where it happened."""
    from loadfactor.config import is_debugging

    if is_debugging():
        raise error
    _leave(
        f"an error in loadfactor itself ({type(error).__name__}: {error}); run it again with LOADFACTOR_DEBUG=1"
        " and report what it prints as CONTRIBUTING.md says",
        NO,
    )


def _words_of(error: Any) -> str:
    """What is wrong with the words typed, and where to read what can be typed."""
    ctx = getattr(error, "ctx", None)
    path = ctx.command_path if ctx else "loadfactor"
    see = f"see `{path} --help`"
    if ctx and hasattr(error, "option_name") and hasattr(error, "possibilities"):
        known = [name for param in ctx.command.get_params(ctx) for name in param.opts if name.startswith("--")]
        return str(no_such("option", error.option_name, known, see))
    message: str = error.format_message()
    return f"{message[:1].lower()}{message[1:].rstrip('.')}; {see}"
