"""Slurm's commands, run for what they write of jobs and nodes: sacct with the fields that it has, and scontrol, both in UTC."""

import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import IO, Final, NamedTuple, TypeVar

import pyarrow as pa

from loadfactor.base.errors import LoadfactorError, SourceError, say_why
from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.settings.sources import SlurmCluster
from loadfactor.sources.base import Input
from loadfactor.sources.slurm.gpus import Notes, ShardSizes, measure_gpus
from loadfactor.sources.slurm.jobs import JOBS
from loadfactor.sources.slurm.node_rows import NodeRecord
from loadfactor.sources.slurm.sacct import SacctText
from loadfactor.sources.slurm.scontrol import decode_scontrol_jobs, decode_scontrol_nodes

_READ_BYTES: Final = 1 << 16
_LOOK_EVERY_S: Final = 0.5
_COMPLAINT_BYTES: Final = 8192
_COMPLAINT_CHARACTERS: Final = 200
_NOT_THERE: Final = 127
"""Exit status of `env` and remote shells where there is no such command."""


class CommandError(LoadfactorError):
    """A command could not be run, failed, or took too long."""


class TooMuchOutputError(CommandError):
    """A command wrote more than is read of it."""


def run_command(
    words: Sequence[str], name: str, timeout_s: float, most_bytes: int, stopped: threading.Event | None = None
) -> bytes:
    """Output of a command. It and what it started are ended when time is up, or when `stopped` is set. Raises CommandError."""
    try:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
    except OSError as error:
        raise CommandError(f"{words[0]} cannot be run: {say_why(error)}") from error
    assert process.stdout
    assert process.stderr
    try:
        output, complaint = _read(
            process.stdout, process.stderr, name, time.monotonic() + timeout_s, most_bytes, stopped
        )
        code = process.wait(timeout=_LOOK_EVERY_S)
    except TimeoutError:
        raise CommandError(f"{name} did not answer within {timeout_s:g} seconds") from None
    except subprocess.TimeoutExpired:
        raise CommandError(f"{name} said everything and does not end") from None
    finally:
        _end(process)
    if code:
        reason = _pick_line(complaint) or f"it ended with {code}"
        raise CommandError(
            f"there is no command {name}: {reason}" if code == _NOT_THERE else f"{name}: {_cut(reason, name)}"
        )
    return output


def _read(
    out: IO[bytes], err: IO[bytes], name: str, end_s: float, most_bytes: int, stopped: threading.Event | None
) -> tuple[bytes, bytes]:
    """Both streams to their end. Raises TimeoutError, CommandError."""
    output, complaint = bytearray(), bytearray()
    with selectors.DefaultSelector() as selector:
        for stream, into in ((out, output), (err, complaint)):
            selector.register(stream, selectors.EVENT_READ, into)
        while selector.get_map():
            if time.monotonic() >= end_s:
                raise TimeoutError
            if stopped is not None and stopped.is_set():
                raise CommandError(f"{name} was stopped with this process")
            for key, _ in selector.select(min(_LOOK_EVERY_S, max(0.0, end_s - time.monotonic()))):
                piece = os.read(key.fd, _READ_BYTES)
                if not piece:
                    selector.unregister(key.fileobj)
                elif key.data is output:
                    output += piece
                    if len(output) > most_bytes:
                        raise TooMuchOutputError(f"{name} wrote over {most_bytes:,} bytes")
                elif len(complaint) < _COMPLAINT_BYTES:
                    complaint += piece
    return bytes(output), bytes(complaint)


def _end(process: "subprocess.Popen[bytes]") -> None:
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdout, process.stderr):
        if stream:
            stream.close()


def _cut(reason: str, name: str) -> str:
    """The reason without the name of the command, which most write themselves.

    >>> _cut("sacct: error: Invalid field", "sacct"), _cut("it ended with 1", "sacct")
    ('Invalid field', 'it ended with 1')
    """
    return reason.removeprefix(f"{name.split()[0]}: ").removeprefix("error: ")


def _pick_line(complaint: bytes) -> str:
    """The first line of what a command wrote about its failure, for a message of one line."""
    lines = (line.strip() for line in complaint.decode(errors="replace").splitlines())
    return "".join(c if c.isprintable() else "?" for c in next(filter(None, lines), ""))[:_COMPLAINT_CHARACTERS]


FIELDS: Final = (
    "JobID", "JobIDRaw", "Cluster", "User", "Account", "WCKey", "QOS", "Partition", "State", "Reason", "Submit", "Eligible",
    "Start", "End", "ElapsedRaw", "Suspended", "AllocTRES", "ReqTRES", "NodeList", "Restarts", "Reservation", "AdminComment",
    "Comment", "JobName",
)  # fmt: skip
"""Fields that are requested of sacct, of those it has; free text last."""
NEEDED: Final = ("JobID", "State", "Submit", "Start", "End", "AllocTRES")
STATES: Final = "BF,CA,CD,DL,F,NF,OOM,PD,PR,R,RQ,RS,RV,S,TO"
MOST_BYTES: Final = 64 * BYTES_PER_MIB
IDS_AT_ONCE: Final = 200
ENVIRONMENT: Final = ("TZ=UTC", "SLURM_TIME_FORMAT=%s")
"""Seconds since 1970 where a version knows them, else local times of UTC."""
_DELIMITER: Final = "\x1f"  # nobody writes it into a comment
T = TypeVar("T")


class NodeAnswer(NamedTuple):
    """Nodes that the controller knows; the rest as of `Answer`."""

    nodes: list[NodeRecord]
    unread: int = 0
    why: str = ""


@dataclass
class Answer:
    """Jobs that somebody knows, and how many lines could not be read, with why the first of them could not."""

    jobs: pa.Table = field(default_factory=JOBS.empty_table)
    unread: int = 0
    why: str = ""

    def join(self, other: "Answer") -> "Answer":
        """Both as one."""
        return Answer(pa.concat_tables([self.jobs, other.jobs]), self.unread + other.unread, self.why or other.why)


class SlurmCommands:
    """Asks one cluster. Its methods raise CommandError in one line."""

    def __init__(self, cluster: SlurmCluster, stopped: threading.Event | None = None) -> None:
        self._cluster = cluster
        self._stopped = stopped
        self._fields: tuple[str, ...] = ()
        self._one_a_task: tuple[str, ...] = ()

    def list_fields(self) -> tuple[str, ...]:
        """Of FIELDS those that sacct has. Raises CommandError where those are missing that nothing goes without."""
        if not self._fields:
            known = set(self.run("sacct", "--helpformat").decode(errors="replace").lower().split())
            found = tuple(name for name in FIELDS if name.lower() in known)
            missing = [name for name in NEEDED if name not in found]
            if missing:
                raise CommandError(f"sacct has no fields {', '.join(missing)}; see `sacct --helpformat`")
            is_known = b"--array" in self.run("sacct", "--help")
            self._fields, self._one_a_task = found, (("--array",) if is_known else ())
        return self._fields

    def list_accounting(self, from_s: int, to_s: int) -> Answer:
        """The GPU jobs that were in any state between two instants, every run of them."""
        return self._ask_sacct("--starttime", _write_time(from_s), "--endtime", _write_time(to_s), "--state", STATES)

    def find_jobs(self, ids: Sequence[str]) -> Answer:
        """These jobs in accounting, whenever they were."""
        found = Answer()
        for first in range(0, len(ids), IDS_AT_ONCE):
            found = found.join(self._ask_sacct("--jobs", ",".join(ids[first : first + IDS_AT_ONCE])))
        return found

    def list_queue(self) -> Answer:
        """The GPU jobs that the controller knows: waiting, running, and some minutes after their end."""

        def decode(data: bytes) -> pa.Table:
            jobs = decode_scontrol_jobs(Input("scontrol show job", [data]), UTC, Notes())
            return jobs.filter(hold_gpus(jobs))

        tables, unread, why = read_leniently(self.run("scontrol", "show", "job", "-d", "-o"), b"", decode)
        return Answer(pa.concat_tables([JOBS.empty_table(), *tables]), unread, why)

    def list_nodes(self) -> NodeAnswer:
        """The nodes, as the controller knows them."""

        def decode(data: bytes) -> list[NodeRecord]:
            return list(decode_scontrol_nodes(Input("scontrol show node", [data]), UTC, Notes()))

        parts, unread, why = read_leniently(self.run("scontrol", "show", "node", "-d", "-o"), b"", decode)
        return NodeAnswer([node for part in parts for node in part], unread, why)

    def run(self, name: str, *arguments: str) -> bytes:
        """Output of a command of Slurm."""
        path = str(PurePosixPath(self._cluster.bin) / name) if self._cluster.bin else name
        words = [*self._cluster.command, "env", *ENVIRONMENT, path, *arguments]
        shown = " ".join((name, *arguments[:2])) if name == "scontrol" else name
        return run_command(words, shown, self._cluster.timeout.s, MOST_BYTES, self._stopped)

    def _ask_sacct(self, *which: str) -> Answer:
        shape = ("--parsable2", f"--delimiter={_DELIMITER}", "--format", ",".join(self.list_fields()))
        output = self.run("sacct", "--allusers", "--duplicates", "--allocations", *self._one_a_task, *shape, *which)
        heading, _, rest = output.partition(b"\n")
        if b"jobid" not in heading.lower():
            raise CommandError("sacct wrote nothing, not even a heading")

        def decode(data: bytes) -> pa.Table:
            return pa.concat_tables(
                [JOBS.empty_table(), *SacctText(Input("sacct", [data + b"\n"]), UTC).decode(Notes())]
            )

        tables, unread, why = read_leniently(rest, heading + b"\n", decode)
        return Answer(pa.concat_tables([JOBS.empty_table(), *tables]), unread, why)


def read_leniently(data: bytes, heading: bytes, decode: Callable[[bytes], T]) -> tuple[list[T], int, str]:
    """Decode lines, those left out that `decode` refuses; how many these are, and why the first one was refused."""
    lines = data.split(b"\n")
    try:
        return [decode(heading + data)] if data.strip() else [], 0, ""
    except SourceError as error:
        if len(lines) <= 1 or not b"".join(lines[1:]).strip():
            return [], 1, str(error)
    half = len(lines) // 2
    first, second = (read_leniently(b"\n".join(part), heading, decode) for part in (lines[:half], lines[half:]))
    return first[0] + second[0], first[1] + second[1], first[2] or second[2]


def hold_gpus(jobs: pa.Table) -> pa.Array:
    """Which jobs hold or ask for GPUs, or parts of them. Raises SourceError where a text counts none."""
    gpus = measure_gpus(jobs, ShardSizes(), "its jobs")
    return pa.array(~((gpus.held == 0) & (gpus.requested == 0)))


def _write_time(at_s: int) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%dT%H:%M:%S}"


def to_ids(names: Iterable[str]) -> list[str]:
    """Job ids as sacct takes them: of waiting tasks that share a line their array.

    >>> to_ids(["7", "2_[3-5%2]", "2_1", "200+1"])
    ['2', '200+1', '2_1', '7']
    """
    return sorted({name.partition("_[")[0] for name in names})
