"""What a training script counts itself, in a plain text file, a line a micro-batch."""

import os
import sys
from pathlib import Path

import torch.distributed as dist


class StepCounts:
    """The counts of one rank in one attempt; a line is in the file when the call returns."""

    def __init__(self, folder: str | Path, attempt: int, rank: int) -> None:
        self._path = Path(folder, f"counted-{attempt}-{rank}.txt")

    def add(self, step: int, done: bool, **amounts: float) -> None:
        """A micro-batch of this rank; `done`: the optimizer made its step."""
        said = {"step": step, "done": int(done), **amounts}
        self.say(" ".join(f"{name}={value}" for name, value in said.items()))

    def say(self, word: str) -> None:
        """Where the script stands: epoch, checkpoint, evaluation, waiting."""
        with self._path.open("a") as file:
            file.write(f"{word}\n")


def leave_together() -> None:
    """End a rank when all have come here, without the interpreter's shutdown: a thread of Gloo that lets go of its last work in it
    aborts the process (PyTorch 2.x, seen once in twelve runs)."""
    if dist.is_initialized():
        dist.barrier()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
