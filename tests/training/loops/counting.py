"""What a training script counts itself, in a plain text file, a line a micro-batch."""

from pathlib import Path


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
