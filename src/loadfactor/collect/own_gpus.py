"""The GPUs of this machine, sampled by the agent's own code: all the time by the server, or beside a command that is recorded."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa

from loadfactor.base.errors import InputError, LoadfactorError, say_why
from loadfactor.base.units import BYTES_PER_GIB, MS_PER_S
from loadfactor.sources.base import Gap, Rows
from loadfactor.sources.prometheus.decoder import PrometheusDecoder
from loadfactor.sources.prometheus.remote_write import NOT_UNDERSTOOD, Others, RemoteWriteScanner, WriteLimits
from loadfactor_agent.holder import EXPERIMENT
from loadfactor_agent.notices import AgentError, Notices
from loadfactor_agent.sampler import Sampler
from loadfactor_agent.spool import Spool
from loadfactor_agent.write_request import SeriesValues, pack_readings

OWN_STREAM: Final = "agent"
OWN_EVERY_S: Final = 10.0


async def sample_own_gpus(keep: Callable[[bytes], Awaitable[object]], note: Callable[[str], None]) -> None:
    """Sample until cancelled, and hand each payload to `keep`; returns at once where this machine has no driver or no GPU.

    What `keep` refuses is noted and lost: the next sample follows soon.
    """
    notices = Notices(note)
    try:
        sampler = await asyncio.to_thread(Sampler, notices)
    except AgentError:
        return
    if not sampler.gpus:
        return
    note(f"samples the {sampler.gpus} GPUs of this machine every {OWN_EVERY_S:g} s")
    while True:
        readings = await asyncio.to_thread(sampler.sample)
        try:
            await keep(pack_readings(readings))
            notices.end("take", "samples of this machine are stored again")
        except LoadfactorError as error:
            notices.say("take", f"samples of this machine cannot be stored: {error}")
        await asyncio.sleep(OWN_EVERY_S - time.time() % OWN_EVERY_S)


LONGEST_NAME: Final = 60
BODIES_AT_ONCE: Final = 1000
"""Decoded together: from the first ones the step is learnt, and with it where the first interval begins."""
MOST_BYTES: Final = 16 * BYTES_PER_GIB
_UTILIZATION: Final = "DCGM_FI_DEV_GPU_UTIL"
_HOLDERS: Final = ("hpc_job", "pod", "namespace", "user", "experiment")
_SIGNALLED: Final = 128
JOB: Final = "LOADFACTOR_JOB"
"""The variable by which a loop that tracks itself learns its job: what it makes is of the job that is recorded."""


@dataclass(frozen=True)
class Recording:
    """A command that ended. `gpus` are those it used; of `there` GPUs the machine has."""

    job: str
    experiment: str
    exit_code: int
    from_ms: int
    to_ms: int
    gpus: tuple[str, ...]
    there: int
    spool: Path

    def read_rows(self, price_per_gpu_hour: float | None) -> Iterator[Rows | Gap]:
        """Samples of its GPUs and the node. Its GPUs were its own from beginning to end, where no other job was seen on them."""
        decoder = PrometheusDecoder(is_live=False)

        def identify(name: str, others: Others) -> int:
            labels = dict(zip(others[::2], others[1::2], strict=True))
            if "UUID" in labels:
                if labels["UUID"] not in self.gpus:
                    return NOT_UNDERSTOOD
                if labels.get("experiment") == self.experiment or not any(labels.get(holder) for holder in _HOLDERS):
                    labels = {k: v for k, v in labels.items() if k not in _HOLDERS} | {"hpc_job": self.job}
            return decoder.identify_series(name, tuple(text for pair in sorted(labels.items()) for text in pair))

        scanner = RemoteWriteScanner(identify, WriteLimits())
        spool = Spool(self.spool, MOST_BYTES)
        number = 0
        while (waiting := spool.take(0.0)) is not None:
            number += 1
            decoder.feed(scanner.scan(waiting.body), number, 0.0)
            spool.confirm(waiting)
            if number % BODIES_AT_ONCE == 0:
                yield from decoder.drain(None)
        yield from decoder.drain(None)
        yield from decoder.end()
        if price_per_gpu_hour is not None:
            price = {
                "from_utc": self.from_ms,
                "to_utc": self.to_ms,
                "basis": "contracted",
                "price_per_gpu_hour": price_per_gpu_hour,
                "source": "the price given to `loadfactor record`",
            }
            yield Rows("prices", pa.Table.from_pylist([{"device_id": gpu, **price} for gpu in self.gpus]))


def record_command(command: Sequence[str], every_s: float, spool: Path) -> Recording:
    """Run a command to its end, sampling; signals reach it. Raises InputError where it or the driver does not start."""
    began = datetime.now(UTC)
    words = " ".join(word.rpartition("/")[2] for word in command)[:LONGEST_NAME].strip()
    job = f"{words} {began:%Y-%m-%d %H:%M:%S}"
    experiment = os.environ.get(EXPERIMENT) or job
    notices = Notices()
    try:
        sampler = Sampler(notices)
        kept = Spool(spool, MOST_BYTES)
    except AgentError as error:
        raise InputError(f"{error}") from error
    readings = sampler.sample()
    from_ms = int(time.time() * MS_PER_S)
    try:
        process = subprocess.Popen(command, env={**os.environ, EXPERIMENT: experiment, JOB: job})
    except OSError as error:
        raise InputError(f"cannot run {command[0]}: {say_why(error)}") from error
    before = (
        signal.signal(signal.SIGINT, lambda *_: None),
        signal.signal(  # the terminal sends it to the command as well
            signal.SIGTERM, lambda *_: process.terminate()
        ),
    )
    used: set[str] = set()
    busy: set[str] = set()
    try:
        is_over = False
        while True:
            _see(readings, experiment, used, busy)
            kept.add(pack_readings(readings), sum(len(reading.values) for reading in readings))
            if is_over:
                break
            try:
                process.wait(every_s - time.time() % every_s)
                is_over = True  # once more, so that its last step is there
            except subprocess.TimeoutExpired:
                pass
            readings = sampler.sample()
    finally:
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGTERM, before[1])
    kept.close()
    code = process.returncode if process.returncode >= 0 else _SIGNALLED - process.returncode
    to_ms = int(time.time() * MS_PER_S)
    return Recording(job, experiment, code, from_ms, to_ms, tuple(sorted(used or busy)), sampler.gpus, spool)


def _see(readings: Sequence[SeriesValues], experiment: str, used: set[str], busy: set[str]) -> None:
    """Notes GPUs that the command was seen on, and those at work of which nobody can be seen."""
    for labels, _, values in readings:
        known = dict(labels.pairs)
        if "UUID" not in known:
            continue
        if known.get("experiment") == experiment:
            used.add(known["UUID"])
        elif values.get(_UTILIZATION, 0) > 0 and not any(holder in known for holder in _HOLDERS):
            busy.add(known["UUID"])
