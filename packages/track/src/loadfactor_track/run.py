"""A run: what its loop reports is taken by appending to a queue; a thread of its own makes records of it and writes them."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from .merging import Call, EpochCall, FlopsCall, NetworkCall, Number, SectionCall, StepCall
from .notices import say_once

if TYPE_CHECKING:
    from types import TracebackType

    from .recorder import Recorder

PLAIN: Final = frozenset({int, float, type(None)})
MOST_CALLS: Final = 1 << 17
"""So many calls may wait for the thread, which takes them 20 times a second; more are counted as dropped."""


class TrackedRun:
    """One process of a training run. Its methods return at once and raise nothing; outside of `with` they do nothing."""

    def __init__(self, settings: dict[str, Any], folder: str, counts: str) -> None:
        """`settings`: experiment and job as the user gave them. Made by `track`."""
        self.counts = counts
        self._settings, self._folder = settings, folder
        self._flops: float | None = settings.get("flops")
        self._lock = threading.RLock()  # a signal handler may call while the loop does
        self._calls: list[Call] = []
        self._tail: StepCall | None = None
        """The last call, while steps that are like it may still follow."""
        self._dropped = 0
        self._recorder: Recorder | None = None
        self._is_on = False

    def __enter__(self) -> TrackedRun:
        try:
            from .recorder import Recorder  # what writes is loaded by whoever begins a run

            self._recorder = Recorder(self._give, self._settings, self._folder, self.counts)
            self._recorder.start()
            self._is_on = True
            _RUNS.add(self)
            if self._settings.get("network"):
                self.network(**self._settings["network"])
        except Exception as error:
            say_once("start", f"progress is not kept ({type(error).__name__}: {error}); the run goes on")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end("completed" if kind is None else "failed")

    def __reduce__(self) -> tuple[Any, ...]:
        """A run that is handed to another process says nothing there, as one that nobody entered."""
        settings = {name: value for name, value in self._settings.items() if name != "network"}
        return TrackedRun, (settings, self._folder, self.counts)

    def __deepcopy__(self, memo: dict[int, Any]) -> TrackedRun:
        return self

    def step(
        self,
        step: int | None = None,
        samples: Number = None,
        tokens: Number = None,
        padded_tokens: Number = None,
        model_flops: Number = None,
        done: bool = True,
    ) -> None:
        """A step is over. `step`: its number; one that comes again later was lost the first time.

        Amounts are those of this step, over all ranks (see `track`): `tokens` without padding, `padded_tokens` with it,
        `model_flops` as the model needs them. Gradient accumulation: one call with the sums, a call with the same number for each
        micro-batch, or `done=False` for all but the last.
        """
        if model_flops is None and self._flops is not None:
            made = samples if tokens is None else tokens
            model_flops = None if made is None else self._flops * made
        amounts: Any = (samples, tokens, padded_tokens, model_flops)
        if not (
            type(samples) in PLAIN
            and type(tokens) in PLAIN
            and type(padded_tokens) in PLAIN
            and type(model_flops) in PLAIN
            and type(step) in PLAIN
        ):
            amounts, step = tuple(map(_number, amounts)), _number(step)  # type: ignore[assignment]
        at_ns = time.time_ns()
        with self._lock:
            tail = self._tail
            if tail is not None and done and tail.next == step and tail.amounts == amounts and self._is_on:
                tail.at_ns, tail.count = at_ns, tail.count + 1
                if step is not None:
                    tail.next = step + 1
                return
            tail = StepCall(at_ns, step, amounts, done)
            self._take(tail)
            self._tail = tail if done else None

    def epoch(self, epoch: int | None = None) -> None:
        """An epoch is over, the one with this number."""
        self.take(EpochCall(time.time_ns(), _number(epoch)))  # type: ignore[arg-type]

    def flops(self, amount: float) -> None:
        """Floating-point operations that the model needed since the last call, over all ranks; instead of `model_flops=`."""
        flops = _number(amount)
        if flops is not None:
            self.take(FlopsCall(time.time_ns(), flops))

    def network(self, model: Any = None, sequence_length: int | None = None, datatype: str | None = None) -> None:
        """Which network the run trains: a model of torch or transformers, tokens of one sequence, the datatype of its products.

        Where nobody gives the datatype and weights are fp32, it is seen when the model is called first.
        """
        try:
            facts: dict[str, Any] = {"sequence_length": sequence_length, "datatype": datatype}
            facts = {name: value for name, value in facts.items() if value is not None}
            if model is not None:
                from .network import describe_network, watch_datatype  # for those that have a model

                facts = {**describe_network(model), **facts}
                if "datatype" not in facts:
                    watch_datatype(model, lambda found: self.network(datatype=found))
            if facts:
                self.take(NetworkCall(time.time_ns(), facts))
        except Exception as error:
            say_once("network", f"the network is not known ({type(error).__name__}: {error}); the run goes on")

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        """Time in which no step advances: checkpoint, evaluation, compile, data_wait, start_up or generation."""
        began_ns = time.time_ns()
        try:
            yield
        finally:
            self.take(SectionCall(began_ns, time.time_ns(), str(name)))

    def lightning_callback(self) -> Any:
        """A callback for Trainers of PyTorch Lightning, which says steps, samples, epochs, evaluations and checkpoints."""
        from .callbacks import make_lightning_callback

        return make_lightning_callback(self)

    def trainer_callback(self) -> Any:
        """A callback for `transformers.Trainer`, which says steps, samples, tokens, FLOPs, epochs, evaluations and checkpoints."""
        from .callbacks import make_trainer_callback

        return make_trainer_callback(self)

    @property
    def dropped(self) -> int:
        """Count of reports that could not be kept, since the run began."""
        return self._dropped + (self._recorder.dropped if self._recorder else 0)

    def take(self, call: Call) -> None:
        """Take what the loop reported; returns at once."""
        with self._lock:
            self._tail = None
            self._take(call)

    def _take(self, call: Call) -> None:
        if not self._is_on:
            say_once(
                "off",
                "a run counts inside of its `with`, in the process that entered it; what is said elsewhere is not kept",
            )
        elif len(self._calls) >= MOST_CALLS:
            self._dropped += 1
        else:
            self._calls.append(call)
            recorder = self._recorder
            if recorder is not None and not recorder.is_awake:
                recorder.wake()

    def _give(self) -> list[Call]:
        """Take what was reported since the last call; the recorder's thread calls it."""
        with self._lock:
            self._tail = None
            calls, self._calls = self._calls, []
            return calls

    def _end(self, state: str) -> None:
        if not self._is_on:
            return
        self._is_on = False
        _RUNS.discard(self)
        try:
            assert self._recorder is not None
            self._recorder.end(state, self._dropped)
        except Exception as error:
            say_once("end", f"the end of a run was not kept ({type(error).__name__}: {error})")

    def _leave(self) -> None:
        """In a process that was forked: the run is its parent's, and another thread of it may have held the lock."""
        self._lock = threading.RLock()
        self._is_on = False
        if self._recorder is not None:
            self._recorder.leave()


_RUNS: Final[weakref.WeakSet[TrackedRun]] = weakref.WeakSet()


def _end_all() -> None:
    for run in list(_RUNS):
        run._end("unknown")  # nobody left its `with`


def _leave_all() -> None:
    for run in list(_RUNS):
        run._leave()
    _RUNS.clear()


def _number(value: Any) -> Number:
    """A number as Python has it, of a tensor or an array of one value too; None where it is none."""
    if value is None or type(value) in PLAIN:
        return value  # type: ignore[no-any-return]
    try:
        value = value.item() if hasattr(value, "item") else value
        return int(value) if int(value) == value else float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        say_once("number", f"{type(value).__name__} is no number; it counts as unknown")
        return None


atexit.register(_end_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_all)


COUNTS: Final = ("global", "rank")


def track(
    experiment: str | None = None,
    job: str | None = None,
    directory: str | os.PathLike[str] | None = None,
    *,
    counts: str = "global",
    model: Any = None,
    sequence_length: int | None = None,
    datatype: str | None = None,
    flops: float | None = None,
) -> TrackedRun:
    """A run, for `with`: what `run.step` and its sisters say is kept under `directory`, or sent to `LOADFACTOR_URL`.

    `experiment`: else `LOADFACTOR_EXPERIMENT`. `job`: else `LOADFACTOR_JOB`, the job of Slurm, the pod of Kubernetes, the user
    and the experiment. `directory`: else `LOADFACTOR_PROGRESS`, else ~/.loadfactor/progress. `counts`: "global" where the loop says
    what all ranks did together (rank 0 reports, the others write nothing); "rank" where every rank says what it did itself (their
    sum counts; steps and epochs count once).

    `model`: that of torch or transformers which is trained, so that MFU is known; `sequence_length` (else tokens ÷ samples) and
    `datatype` (bf16, fp8, …; else as torch has it) go with it. `flops`: instead, the model FLOPs of one token, or of one sample
    where steps report no tokens. Raises nothing.
    """
    if counts not in COUNTS:
        say_once("counts", f"counts={counts!r} is neither 'global' nor 'rank'; it counts as 'global'")
        counts = "global"
    folder = directory or os.environ.get("LOADFACTOR_PROGRESS") or os.path.join("~", ".loadfactor", "progress")
    given = {"model": model, "sequence_length": sequence_length, "datatype": datatype}
    network = {name: value for name, value in given.items() if value is not None}
    settings = {"experiment": experiment, "job": job, "network": network, "flops": _number(flops)}
    return TrackedRun(settings, os.path.expanduser(os.fspath(folder)), counts)
