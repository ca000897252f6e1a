"""Two lines in a training loop: what a run made, written beside it; nothing here slows the run or ends it.

    with loadfactor.track(experiment="ft-42") as run:
        for step, batch in enumerate(loader):
            ...
            run.step(step=step, samples=32, tokens=32 * 1024)

It stands alone: the standard library of Python 3.9 and later, nothing of `loadfactor`, which depends on it. Files name each other
relatively.
docs/track-training.md describes the files it writes.
"""

from .run import TrackedRun, track

__all__ = ["TrackedRun", "track"]
__version__ = "0.1.0"
