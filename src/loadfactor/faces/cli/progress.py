"""The progress bar of a command, on standard error."""

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn


class ProgressBar:
    """A progress bar shown only to a person. Use it as a context; call it with what is done and the share."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("reading", total=None)

    def __enter__(self) -> "ProgressBar":
        self._progress.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._progress.stop()

    def __call__(self, what: str, share: float) -> None:
        """Tell what is being done; a share of zero means nobody knows how long it takes."""
        self._progress.update(self._task, description=what, completed=share, total=1.0 if share else None)
