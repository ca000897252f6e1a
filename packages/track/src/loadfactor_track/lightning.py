"""A callback for PyTorch Lightning's `Trainer`. Lightning is imported when one is made."""

# ruff: noqa: ARG002 - the hooks take what Trainers hand them

from __future__ import annotations

import sys
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .merging import SectionCall

if TYPE_CHECKING:
    from .run import TrackedRun


def make_callback(run: TrackedRun) -> Any:
    """The callback, for whichever of `lightning` and `pytorch_lightning` the script has imported."""
    name = (
        "pytorch_lightning"
        if "pytorch_lightning" in sys.modules and "lightning" not in sys.modules
        else "lightning.pytorch"
    )
    try:
        base = import_module(name).Callback
    except ImportError:
        base = import_module("pytorch_lightning").Callback
    facts = _FitFacts(run)

    class LoadfactorCallback(base):  # type: ignore[misc, valid-type]
        """Says what a fit does."""

        def __reduce__(self) -> tuple[Any, ...]:
            return make_callback, (run,)

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            facts.begin(trainer)

        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
            facts.end_save()

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            facts.end_batch(trainer, batch)

        def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
            facts.end_save()
            facts.begin_evaluation()

        def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
            facts.end_evaluation()

        def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:
            facts.begin_save()

        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            facts.end_save()
            if trainer.is_last_batch:  # a fit that is over in the middle of an epoch calls this, too
                run.epoch(int(trainer.current_epoch))

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            facts.end_save()

    return LoadfactorCallback()


class _FitFacts:
    """The step reached, and since when something else than training goes on."""

    def __init__(self, run: TrackedRun) -> None:
        self._run = run
        self._step = 0
        self._saving_ns = self._evaluating_ns = 0

    def begin(self, trainer: Any) -> None:
        self._step = int(trainer.global_step)

    def end_batch(self, trainer: Any, batch: Any) -> None:
        """A micro-batch: its step is over where the optimizer made one."""
        reached = int(trainer.global_step)
        done = reached > self._step
        samples = count_samples(batch)
        if samples is not None and self._run.counts == "global":
            samples *= int(trainer.world_size)
        self._run.step(step=reached if done else self._step + 1, samples=samples, done=done)
        self._step = reached

    def begin_save(self) -> None:
        self._saving_ns = time.time_ns()

    def end_save(self) -> None:
        """Lightning says when it begins to save; it has ended when the next thing begins."""
        self._saving_ns = self._end("checkpoint", self._saving_ns)

    def begin_evaluation(self) -> None:
        self._evaluating_ns = time.time_ns()

    def end_evaluation(self) -> None:
        self._evaluating_ns = self._end("evaluation", self._evaluating_ns)

    def _end(self, name: str, since_ns: int) -> int:
        if since_ns:
            self._run.take(SectionCall(since_ns, time.time_ns(), name))
        return 0


def count_samples(batch: Any) -> int | None:
    """How many samples a batch has: the first dimension of the first tensor in it; None where there is none.

    >>> class Tensor: shape = (8, 3)
    >>> count_samples({"x": Tensor(), "y": 1}), count_samples([[Tensor()], 2]), count_samples("text")
    (8, 8, None)
    """
    shape = getattr(batch, "shape", None)
    if shape is not None and len(shape):
        return int(shape[0])
    inner = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, (list, tuple)) else ()
    return next((found for one in inner if (found := count_samples(one)) is not None), None)
