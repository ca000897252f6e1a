"""Plans made in a process beside a server: one that takes too long is ended, and questions of the books wait for none."""

import os
import resource
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, Final

from loadfactor.base.errors import InputError, LoadfactorError
from loadfactor.base.request import Request, make_request
from loadfactor.base.units import BYTES_PER_GIB
from loadfactor.interfaces.document import Document
from loadfactor.interfaces.formats import duration
from loadfactor.planner.economics.request import BreakEvenRequest, OwnRequest
from loadfactor.planner.reinforcement.request import RlRequest
from loadfactor.planner.serving.request import ServingRequest
from loadfactor.planner.sizing.request import SizeRequest
from loadfactor.planner.training.request import TrainingRequest
from loadfactor.settings.config import CHOSEN, choose_file

IDLE_S: Final = 600
"""A process that nobody asks for so long leaves."""
MOST_BYTES: Final = 4 * BYTES_PER_GIB
NICE: Final = 5
WALL_TO_CPU: Final = 5
"""So many times as long a plan may take, as a server with much else to do needs."""
LEAVES_S: Final = 5
TOO_LARGE: Final = "this plan takes more memory than a page may; ask for less, or ask the command line"
START: Final = f"from {__name__} import run; run()"


@dataclass(frozen=True)
class PlanKind:
    """One of the plans: its name, its question, what it takes, and the query of an `example` that has an answer."""

    name: str
    question: str
    request: type[Request]
    example: str = ""


PLANS: Final = (
    PlanKind(
        "train",
        "How long does training take, and what does it cost?",
        TrainingRequest,
        "model=llama-3.1-70b&gpus=64,256,1024",
    ),
    PlanKind(
        "rl",
        "How long does a step of reinforcement learning take, and which part waits?",
        RlRequest,
        "model=qwen3-8b&gpus=64",
    ),
    PlanKind("serve", "How many GPUs does serving take, and what does it cost?", ServingRequest),
    PlanKind("size", "How large should the cluster be?", SizeRequest, "users=20k"),
    PlanKind("own", "Own GPUs, or rent them?", OwnRequest, "demand_gpus=20x6,40x6,60x4,80x8"),
    PlanKind("breakeven", "From how many tokens on is an own replica cheaper than an API?", BreakEvenRequest),
)
"""In the order of their commands."""


def build_plan(name: str, given: Mapping[str, Any]) -> Document:
    """The page of a plan. Raises InputError as its command does."""
    kind = next(kind for kind in PLANS if kind.name == name)
    build = import_module(f"loadfactor.interfaces.plans.{name}").build_document
    document: Document = build(make_request(kind.request, given))
    return document


@dataclass(frozen=True)
class _Answer:
    document: Document | None = None
    refused: str = ""
    failed: str = ""


class PlanProcess:
    """The process, begun with the first plan. Its methods may be called in any thread; one plan is made at a time."""

    def __init__(self, longest_s: float) -> None:
        """`longest_s`: of processor time, of one plan."""
        self._longest_s = longest_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._line: Connection[Any, Any] | None = None
        self._is_closed = False

    def ask(self, name: str, given: Mapping[str, Any]) -> Document:
        """The page of a plan. Raises InputError as its command does, and where it takes too long or too much memory."""
        with self._lock:
            try:
                answer = self._exchange((name, dict(given)))
            except (EOFError, OSError) as error:
                code = self._end(LEAVES_S)
                if code == -signal.SIGPROF:
                    raise self._refuse_long() from error
                if code:
                    raise InputError(TOO_LARGE) from error
                answer = self._exchange((name, dict(given)))  # it had left: nobody asked for long
        if answer.failed:
            raise RuntimeError(answer.failed)
        if answer.document is None:
            raise InputError(answer.refused)
        return answer.document

    def close(self) -> None:
        """End the process, whatever it does, and begin no other."""
        self._is_closed = True
        self._end()

    def _exchange(self, question: tuple[str, dict[str, Any]]) -> _Answer:
        line = self._line or self._begin()
        line.send(question)
        if not line.poll(self._longest_s * WALL_TO_CPU):
            self._end()
            raise self._refuse_long()
        answer: _Answer = line.recv()
        return answer

    def _refuse_long(self) -> InputError:
        return InputError(
            f"this plan takes more than {duration(self._longest_s)} of processor time; ask for less, or ask the command line, "
            "which has no such limit"
        )

    def _begin(self) -> "Connection[Any, Any]":
        line, theirs = Pipe()
        if self._is_closed:
            raise InputError("the server ends; ask it again when it is back")
        words = [sys.executable, "-c", START, str(theirs.fileno()), str(CHOSEN.path.absolute()), str(self._longest_s)]
        with theirs:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self._line = line
        return line

    def _end(self, leaves_s: float = 0) -> int:
        """End the process, after so long in which it may leave by itself; its exit code."""
        line, process, self._line, self._process = self._line, self._process, None, None
        if line is not None:
            line.close()
        if process is None:
            return 0
        with suppress(subprocess.TimeoutExpired):
            return process.wait(leaves_s)
        process.kill()
        return process.wait()


def _serve(line: "Connection[Any, Any]", longest_s: float) -> None:
    """Answer plans until the server is gone or asks nothing for long. One that takes longer of processor time ends the process."""
    while line.poll(IDLE_S):
        name, given = line.recv()
        signal.setitimer(signal.ITIMER_PROF, longest_s)
        try:
            answer = _Answer(build_plan(name, given))
        except LoadfactorError as refused:
            answer = _Answer(refused=str(refused))
        except MemoryError:
            answer = _Answer(refused=TOO_LARGE)
        except Exception as failure:
            answer = _Answer(failed="".join(traceback.format_exception(failure)))
        signal.setitimer(signal.ITIMER_PROF, 0)
        line.send(answer)


def run() -> None:
    """The process: answers on the connection whose number is its first word, with the settings of the file that is its second.

    The third is how many seconds of processor time a plan may take.
    """
    os.nice(NICE)
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    choose_file(Path(sys.argv[2]))
    with suppress(EOFError, OSError):
        _serve(Connection(int(sys.argv[1])), float(sys.argv[3]))
