"""How a command ends: its exit code, and one line on stderr where something is wrong."""

import os
import re
import sys
from typing import Any, NoReturn

import typer
from typer.exceptions import TyperException

from loadfactor.base.errors import InputError, LoadfactorError, no_such, say_why
from loadfactor.interfaces.render.ascii import write_ascii_where_needed

DONE, NO, MISTAKE, STOPPED = 0, 1, 2, 130
MORE_MEMORY = "give it more with LOADFACTOR_MEMORY=4GB or `memory` in loadfactor.toml, or ask for less"


def run_and_leave(app: typer.Typer) -> NoReturn:
    """Run an app and exit: 0 done, 1 the answer is no or the books are damaged, 2 the user's mistake, 130 stopped."""
    _open_closed_streams()
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
        _drop_stdout()
        code = DONE
    except SystemExit as left:  # Typer and rich answer a broken pipe with this
        if not isinstance(left.__context__, BrokenPipeError):
            raise
        _drop_stdout()
        code = DONE
    except MemoryError as error:
        _leave(f"not enough memory{f' ({error})' if str(error) else ''}; {MORE_MEMORY}", NO)
    except OSError as error:
        _leave(f"{say_why(error)}{f': {error.filename}' if error.filename else ''}", NO)
    except UnicodeEncodeError as error:  # bytes of an argument that are no text: Python reads them as surrogates
        before = re.split(r"[\s'\"]", str(error.object)[: error.start])[-1]
        behind = re.split(r"[\s'\"]", str(error.object)[error.start :])[0]
        _leave(f"'{before}{behind}' is not UTF-8; write it in UTF-8", MISTAKE)
    except Exception as error:
        if _is_out_of_memory(error):
            _leave(f"{str(error).splitlines()[0]}; {MORE_MEMORY}", NO)
        _leave_unexpected(error)
    if code == STOPPED:  # Typer turns Ctrl-C into this code
        _leave("stopped; the books are as they were before this command", STOPPED)
    sys.exit(code)


def _open_closed_streams() -> None:
    """Give stdout and stderr that were closed (`>&-`) somewhere to go, before another file gets their number."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (open until the end)


def _drop_stdout() -> None:
    """Forget what could not be written to stdout; Python would try again at the end, and say so in several lines."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_out_of_memory(error: Exception) -> bool:
    """True when the query engine says that its memory is used up. It is imported only where a command used it."""
    engine = sys.modules.get("duckdb")
    return engine is not None and isinstance(error, engine.OutOfMemoryException)


def _leave(message: str, code: int) -> NoReturn:
    from loadfactor.interfaces.notices import write_notice  # its pattern is compiled where something is wrong

    try:
        sys.stdout.flush()
    except OSError:
        _drop_stdout()
    write_notice(re.sub(r"[ \r\n]+", " ", message).strip())
    sys.exit(code)


def _leave_unexpected(error: Exception) -> NoReturn:
    """Say where to report a mistake of this program; with LOADFACTOR_DEBUG=1 show where it happened."""
    from loadfactor.settings.config import is_debugging

    if is_debugging():
        raise error
    _leave(
        f"an error in loadfactor itself ({type(error).__name__}: {error}); run it again with LOADFACTOR_DEBUG=1"
        " and report what it prints as CONTRIBUTING.md says",
        NO,
    )


def _words_of(error: Any) -> str:
    """The mistake in the words typed, and where to read what can be typed."""
    ctx = getattr(error, "ctx", None)
    path = ctx.command_path if ctx else "loadfactor"
    see = f"see `{path} --help`"
    if ctx and hasattr(error, "option_name") and hasattr(error, "possibilities"):
        from loadfactor.base.removed import find_removal

        removal = find_removal("options", f"{path.partition(' ')[2]} {error.option_name}")
        if removal is not None:
            return removal.sentence
        known = [name for param in ctx.command.get_params(ctx) for name in param.opts if name.startswith("--")]
        return str(no_such("option", error.option_name, known, see))
    message: str = error.format_message()
    return f"{message[:1].lower()}{message[1:].rstrip('.')}; {see}"
