"""The command line of the agent: `loadfactor agent` and `loadfactor-agent`."""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

from .errors import AgentError
from .kubelet import SOCKET
from .notices import Notices, write_to_stderr
from .run import AgentOptions, run

_WRONG_USE: Final = 2
_EVERY: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m)?")
_VARIABLE: Final = re.compile(r"[A-Z][A-Z0-9_]*")
_SECRET: Final = re.compile(r"SECRET|PASS|TOKEN|CREDENTIAL|KEY|COOKIE")
_SECONDS: Final = {"s": 1, "m": 60, None: 1}
_ABOUT: Final = (
    "Sample the GPUs of this machine and what it does besides, and send it to `loadfactor up`, or show it as /metrics"
    " under the names dcgm-exporter and node-exporter use."
)


class _OneLineParser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        write_to_stderr(f"{message}; see {self.prog} --help")
        sys.exit(_WRONG_USE)


def main(arguments: Sequence[str] | None = None, called: str = "loadfactor-agent") -> None:
    """Run the agent. Exits with 2 where it cannot begin, in one line."""
    options = _make_parser(called).parse_args(arguments)
    try:
        run(_read(options), Notices(), lambda page: print(page, end=""))
    except AgentError as error:
        write_to_stderr(str(error))
        sys.exit(_WRONG_USE)


def _make_parser(called: str) -> argparse.ArgumentParser:
    default = AgentOptions()
    parser = _OneLineParser(prog=called, description=_ABOUT, allow_abbrev=False)
    parser.add_argument("--server", default="", metavar="URL", help="Where `loadfactor up` listens: http://HOST:9417.")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="File with the token that the server asks for.")
    parser.add_argument("--every", default="10s", metavar="TIME", help="How often, 1s to 60s. [default: 10s]")
    parser.add_argument(
        "--spool",
        type=Path,
        default=default.spool,
        metavar="DIR",
        help=f"Folder for what the server has not taken yet. [default: {default.spool}]",
    )
    parser.add_argument(
        "--spool-mib",
        type=int,
        default=default.spool_mib,
        metavar="N",
        help=f"Most that is kept there; the oldest is dropped and counted. [default: {default.spool_mib}]",
    )
    parser.add_argument(
        "--listen",
        nargs="?",
        const="127.0.0.1:9418",
        default="",
        metavar="HOST:PORT",
        help="Show /metrics here. [without an address: 127.0.0.1:9418]",
    )
    parser.add_argument(
        "--kubelet-socket",
        type=Path,
        metavar="FILE",
        help=f"Where the kubelet says which pod was given which GPU (extra [kubernetes]). [default: {SOCKET}]",
    )
    parser.add_argument(
        "--variable",
        action="append",
        default=[],
        metavar="NAME",
        help="A variable of jobs' environments to send as well, for rules of tagging: env.NAME. May be repeated.",
    )
    parser.add_argument("--once", action="store_true", help="Look once, print it and end.")
    return parser


def _read(given: argparse.Namespace) -> AgentOptions:
    every = _EVERY.fullmatch(given.every)
    if every is None:
        raise AgentError(f"--every {given.every} is no time; write 10s")
    if given.spool_mib < 1:
        raise AgentError(f"--spool-mib {given.spool_mib} is no room; write 1024")
    for name in given.variable:
        if not _VARIABLE.fullmatch(name):
            raise AgentError(f"--variable {name} is no name of a variable in capitals; write SWEEP")
        if _SECRET.search(name):
            raise AgentError(f"--variable {name} may be a secret; it would be sent to the server as a label")
    every_s = float(every[1]) * _SECONDS[every[2]]
    return AgentOptions(
        given.server,
        given.token_file,
        every_s,
        given.spool,
        given.spool_mib,
        given.listen,
        given.once,
        given.kubelet_socket,
        tuple(given.variable),
    )
