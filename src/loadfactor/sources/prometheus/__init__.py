"""What Prometheus and its kin say: requests of remote_write and answers to queries, as points, and points as rows."""

from pathlib import Path

from loadfactor.errors import SourceError
from loadfactor.sources.base import Source
from loadfactor.sources.parsing.steps import EXPORTER_STEP_S


def _refuse_files(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    raise SourceError(
        f"{paths[0] if paths else 'prometheus'} is no file to read: `loadfactor import prometheus URL` asks a server by its URL"
    )


SOURCE = Source("prometheus", _refuse_files, lambda _paths, _options: iter(()), EXPORTER_STEP_S, watches=True)
"""Imports of this name bring what exporters measured: their rows name them."""
