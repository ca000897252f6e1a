"""`loadfactor init`: looks around and writes a first loadfactor.toml."""

from dataclasses import dataclass

import typer

from loadfactor.base.request import Request, option
from loadfactor.interfaces.cli.commands import add_command
from loadfactor.interfaces.document import Document

ABOUT = (
    "Look around and write a first loadfactor.toml.\n\n"
    "Looks for an NVIDIA driver, dcgm-exporter (port 9400), Prometheus (port 9090), Slurm and Kubernetes, for a second at most."
)


@dataclass(frozen=True, kw_only=True)
class InitRequest(Request):
    """Whether a file that is there may be replaced."""

    force: bool = option("Replace a loadfactor.toml that is there.", False)


def add_to(app: typer.Typer) -> None:
    """Add `init`."""
    add_command(app, "init", InitRequest, build_page, ABOUT)


def build_page(request: InitRequest) -> Document:
    """Write the file; what was found, and the next step."""
    from pathlib import Path

    from loadfactor.collect.discovery.surroundings import ProbedPlaces
    from loadfactor.interfaces.pages.first_configuration import write_first_configuration
    from loadfactor.settings.file import FILE

    return write_first_configuration(ProbedPlaces(), Path(FILE), request.force)
