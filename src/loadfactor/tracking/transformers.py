"""A callback for Hugging Face's `Trainer`. transformers is imported when one is made."""

# ruff: noqa: ARG002 - the hooks take what Trainers hand them

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from .merging import SectionCall

if TYPE_CHECKING:
    from .run import TrackedRun


def make_callback(run: TrackedRun) -> Any:
    """The callback. It says what the Trainer counts over all ranks, so `run` counts globally: rank 0 reports."""
    from transformers import TrainerCallback  # type: ignore[import-not-found, unused-ignore]

    facts = _TrainerFacts(run)

    class LoadfactorCallback(TrainerCallback):  # type: ignore[misc, unused-ignore]
        """Says what a Trainer does."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            facts.begin(args, state, others.get("train_dataloader"))

        def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            facts.end_step(args, state)

        def on_evaluate(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            facts.end_section("evaluation")

        def on_save(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            facts.end_section("checkpoint")

        def on_log(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            facts.log(state)

        def on_epoch_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            facts.end_epoch(state)

        def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            facts.log(state)

    return LoadfactorCallback()


class _TrainerFacts:
    """What the Trainer's state said last, and what that makes of a step."""

    def __init__(self, run: TrackedRun) -> None:
        self._run = run
        self._tokens = 0
        self._flops = 0.0
        self._examples: int | None = None
        self._batch = 0
        self._steps_per_epoch = 0
        self._since_ns = 0

    def begin(self, args: Any, state: Any, loader: Any) -> None:
        self._tokens, self._flops = int(getattr(state, "num_input_tokens_seen", 0) or 0), float(state.total_flos or 0)
        ranks = int(getattr(args, "world_size", 1) or 1)
        self._batch = int(args.train_batch_size) * int(args.gradient_accumulation_steps) * ranks
        try:
            self._examples = None if args.dataloader_drop_last else len(loader.dataset)
        except (TypeError, AttributeError):  # a stream
            self._examples = None
        self._steps_per_epoch = math.ceil(self._examples / self._batch) if self._examples else 0

    def end_step(self, args: Any, state: Any) -> None:
        said = getattr(args, "include_num_input_tokens_seen", False)
        tokens: int | None = None
        if said not in (False, None, "no"):
            seen = int(state.num_input_tokens_seen)
            tokens, self._tokens = seen - self._tokens, seen
        counts_padding = said != "non_padding"
        self._run.step(
            step=int(state.global_step),
            samples=self._count_samples(int(state.global_step)),
            tokens=None if counts_padding else tokens,
            padded_tokens=tokens if counts_padding else None,
        )
        self._since_ns = time.time_ns()

    def _count_samples(self, step: int) -> int:
        """Those of a step; the last step of an epoch takes what is left."""
        if self._examples and step % self._steps_per_epoch == 0:
            return self._examples - (self._steps_per_epoch - 1) * self._batch
        return self._batch

    def end_section(self, name: str) -> None:
        """The Trainer says only the end: a section began where the last step or section ended."""
        now_ns = time.time_ns()
        if self._since_ns:
            self._run.take(SectionCall(self._since_ns, now_ns, name))
        self._since_ns = now_ns

    def log(self, state: Any) -> None:
        flops = float(state.total_flos or 0)
        if flops > self._flops:
            self._run.flops(flops - self._flops)
            self._flops = flops

    def end_epoch(self, state: Any) -> None:
        epoch = state.epoch
        whole = epoch is not None and abs(epoch - round(epoch)) < 0.5 / max(1, self._steps_per_epoch)
        self._run.epoch(round(epoch) if whole else None)
