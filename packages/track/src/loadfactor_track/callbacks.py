"""Callbacks for the Trainers of PyTorch Lightning and Hugging Face, which are imported when one is made."""

# ruff: noqa: ARG002 - the hooks take what Trainers hand them

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from .merging import SectionCall

if TYPE_CHECKING:
    from .run import TrackedRun

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .run import TrackedRun


def make_lightning_callback(run: TrackedRun) -> Any:
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
        """Reports what a fit does."""

        def __reduce__(self) -> tuple[Any, ...]:
            return make_lightning_callback, (run,)

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


def make_trainer_callback(run: TrackedRun) -> Any:
    """The callback. It reports what the Trainer counts over all ranks, so `run` counts globally: rank 0 reports."""
    from transformers import TrainerCallback  # type: ignore[import-not-found, unused-ignore]

    facts = _TrainerFacts(run)

    class LoadfactorCallback(TrainerCallback):  # type: ignore[misc, unused-ignore]
        """Reports what a Trainer does."""

        def __reduce__(self) -> tuple[Any, ...]:
            return make_trainer_callback, (run,)

        def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            facts.begin(args, state, others.get("train_dataloader"))

        def on_substep_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            facts.end_batch()

        def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            facts.end_step(args, state)

        def on_prediction_step(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            facts.begin_section()

        def on_evaluate(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            facts.end_section("evaluation")

        def on_predict(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            facts.end_section("evaluation")

        def on_save(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            facts.end_section("checkpoint")
            facts.log(state)  # whoever resumes from it has these FLOPs behind him

        def on_log(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            facts.log(state)

        def on_epoch_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            facts.end_epoch(state, is_broken_off=control.should_training_stop or control.should_epoch_stop)

        def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            facts.log(state)
            facts.end()

    return LoadfactorCallback()


class _TrainerFacts:
    """The last state of the Trainer, and what that makes of a step."""

    def __init__(self, run: TrackedRun) -> None:
        self._run = run
        self._is_silent = self._is_training = self._has_length = False
        self._tokens = 0
        self._flops = 0.0
        self._batch = self._lacking = self._batches = 0
        self._since_ns = 0

    def begin(self, args: Any, state: Any, loader: Any) -> None:
        """`loader`: that of this rank, as Accelerate prepared it."""
        self._is_silent = self._run.counts == "rank" and not state.is_world_process_zero
        self._tokens, self._flops = int(getattr(state, "num_input_tokens_seen", 0) or 0), float(state.total_flos or 0)
        ranks, own = int(getattr(args, "world_size", 1) or 1), getattr(state, "train_batch_size", None)
        self._batch = int(getattr(loader, "total_batch_size", None) or (own or args.train_batch_size) * ranks)
        self._batches = 0
        try:
            batches, examples = len(loader), len(loader.dataset)
            self._has_length = True
        except (TypeError, AttributeError):  # a stream
            batches = examples = 0
            self._has_length = False
        self._lacking = (
            max(0, batches * self._batch - examples) if ranks == 1 else 0
        )  # several ranks fill up their last one
        self._is_training, self._since_ns = True, time.time_ns()

    def end_batch(self) -> None:
        self._batches += 1

    def end_step(self, args: Any, state: Any) -> None:
        samples = (self._batches + 1) * self._batch - (self._lacking if _is_whole(state.epoch) else 0)
        self._batches, self._since_ns = 0, time.time_ns()
        if self._is_silent:
            return
        setting = getattr(args, "include_num_input_tokens_seen", False)
        tokens: int | None = None
        if setting not in (False, None, "no"):
            seen = int(state.num_input_tokens_seen)
            tokens, self._tokens = seen - self._tokens, seen
        counts_padding = setting != "non_padding"
        self._run.step(
            step=int(state.global_step),
            samples=samples,
            tokens=None if counts_padding else tokens,
            padded_tokens=tokens if counts_padding else None,
        )

    def begin_section(self) -> None:
        """Something goes on after the training whose begin nobody reported."""
        self._since_ns = self._since_ns or time.time_ns()

    def end_section(self, name: str) -> None:
        """The Trainer says only the end: a section began where the last step or section ended."""
        now_ns = time.time_ns()
        if self._since_ns:
            self._run.take(SectionCall(self._since_ns, now_ns, name))
        self._since_ns = now_ns if self._is_training else 0

    def log(self, state: Any) -> None:
        flops = float(state.total_flos or 0)
        if flops > self._flops and not self._is_silent:
            self._run.flops(flops - self._flops)
        self._flops = flops

    def end_epoch(self, state: Any, is_broken_off: bool) -> None:
        """Of a stream nobody knows how long it is: an epoch of it is over unless something broke it off."""
        if _is_whole(state.epoch) if self._has_length else not is_broken_off:
            self._run.epoch(math.ceil(state.epoch))

    def end(self) -> None:
        self._is_training, self._since_ns = False, 0


def _is_whole(epoch: float | None) -> bool:
    return epoch is not None and abs(epoch - round(epoch)) < 1e-9
