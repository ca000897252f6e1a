"""Measurements of serving replicas that ship with the package: some sweeps of a published sample."""

from importlib.resources import as_file, files
from pathlib import Path

SOURCE = "aiconfigurator silicon sample (Apache-2.0), one sweep per network, engine and accelerator"


def published_sweeps() -> Path:
    """The CSV of these sweeps, in the layout `loadfactor validate serve --rows` reads."""
    with as_file(files(__name__).joinpath("published_sweeps.csv")) as path:
        return path
