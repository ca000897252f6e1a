"""The agent: its command line, and its life: sample on time, keep, send or show, until a signal."""

import argparse
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from .kubelet import SOCKET, Kubelet
from .notices import AgentError, Notices, write_to_stderr
from .page_server import PageServer, write_page
from .sampler import ANSWER_WITHIN_S, Sampler
from .sender import Sender
from .spool import Spool
from .units import BYTES_PER_MIB, MS_PER_S
from .write_request import AGENT_PREFIX, Labels, SeriesValues, pack_readings

SHORTEST_S: Final = 1.0
LONGEST_S: Final = 60.0
BODY_EVERY_S: Final = 5.0
"""Samples taken more often than this are kept and sent together."""
STOP_WITHIN_S: Final = 5.0


@dataclass(frozen=True)
class AgentOptions:
    """The options of the agent."""

    server: str = ""
    token_file: Path | None = None
    every_s: float = 10.0
    spool: Path = Path("/var/lib/loadfactor-agent")
    spool_mib: int = 1024
    listen: str = ""
    once: bool = False
    kubelet_socket: Path | None = None
    variables: tuple[str, ...] = ()


def run(options: AgentOptions, notices: Notices, print_page: Callable[[str], object]) -> None:
    """Sample until SIGTERM or SIGINT, or once. Raises AgentError where it cannot begin."""
    if not SHORTEST_S <= options.every_s <= LONGEST_S:
        raise AgentError(f"--every takes {SHORTEST_S:.0f}s to {LONGEST_S:.0f}s")
    if not (options.once or options.server or options.listen):
        raise AgentError("nothing to do with what is read; give --server URL, --listen HOST:PORT or --once")
    kubelet = Kubelet(options.kubelet_socket or SOCKET, options.kubelet_socket is not None, notices)
    agent = Agent(options, Sampler(notices, kubelet=kubelet, variables=options.variables), notices)
    if options.once:
        print_page(agent.look_once())
        return
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    agent.run(stop)


class Agent:
    """One running agent."""

    def __init__(self, options: AgentOptions, sampler: Sampler, notices: Notices) -> None:
        self._options, self._sampler, self._notices = options, sampler, notices
        self._labels = Labels({"instance": sampler.node, "job": "loadfactor-agent"})
        self._last: list[SeriesValues] = []
        self._kept: list[SeriesValues] = []
        self._spool: Spool | None = None
        self._sender: Sender | None = None
        self._page: PageServer | None = None
        if options.once:
            return
        if options.server:
            self._spool = Spool(options.spool, options.spool_mib * BYTES_PER_MIB)
            self._sender = Sender(options.server, options.token_file, self._spool, notices)
        if options.listen:
            self._page = PageServer(options.listen, lambda: write_page(self._last))

    def look_once(self) -> str:
        """The page after two looks, so that what is measured between them is there."""
        self._sampler.sample()
        time.sleep(SHORTEST_S)
        return write_page(self._sampler.sample())

    def run(self, stop: threading.Event) -> None:
        """Sample until `stop` is set."""
        every_s = self._options.every_s
        self._greet()
        if self._sender:
            self._sender.start()
        if self._page:
            self._page.start()
        kept_s = time.monotonic()
        while True:
            self._last = [*self._sampler.sample(min(ANSWER_WITHIN_S, every_s / 2)), self._count()]
            self._kept += self._last
            now = time.monotonic()
            if now + every_s / 2 - kept_s >= BODY_EVERY_S or every_s >= BODY_EVERY_S:
                self._keep()
                kept_s = now
            if stop.wait(
                every_s - time.time() % every_s
            ):  # on whole steps of the clock, so that nodes are read together
                break
        self._keep()
        if self._page:
            self._page.shutdown()
        if self._sender and self._spool:
            self._sender.stop(STOP_WITHIN_S)
            self._spool.close()

    def _keep(self) -> None:
        readings, self._kept = self._kept, []
        if self._spool is None or not readings:
            return
        samples = sum(len(reading.values) for reading in readings)
        if not self._spool.add(pack_readings(readings), samples):
            self._notices.say("disk", "the disk is full: samples cannot be kept and are counted as dropped")
        else:
            self._notices.end("disk", "the disk has room again")
        try:
            self._spool.sync()
        except OSError as error:
            self._notices.say("sync", f"the spool cannot be synced: {error}")

    def _count(self) -> SeriesValues:
        values: dict[str, float] = {"gpus": self._sampler.gpus}
        if self._spool and self._sender:
            kept, sent = self._spool.counts, self._sender.counts
            values |= {
                "spool_bytes": self._spool.size_bytes,
                "dropped_samples_total": kept.dropped_samples,
                "dropped_bodies_total": kept.dropped_bodies,
                "damaged_segments_total": kept.damaged_segments,
                "sent_bodies_total": sent.sent_bodies,
                "refused_bodies_total": sent.refused_bodies,
                "send_failures_total": sent.failures,
            }
        return SeriesValues(
            self._labels, int(time.time() * MS_PER_S), {AGENT_PREFIX + name: float(v) for name, v in values.items()}
        )

    def _greet(self) -> None:
        ways = [f"sends to {self._options.server}"] if self._options.server else []
        ways += [f"shows http://{self._page.address}/metrics"] if self._page else []
        self._notices.say(
            "start",
            f"{self._sampler.gpus} GPUs of {self._sampler.node} every {self._options.every_s:g} s; {', '.join(ways)}",
        )


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
    """Writes what is wrong in one line."""

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
