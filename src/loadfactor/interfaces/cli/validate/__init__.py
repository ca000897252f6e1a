"""`loadfactor validate …`: predictions beside published or your own measurements, one module each, listed in `VALIDATIONS`."""

import typer

from loadfactor.interfaces.cli.lazy import CommandEntry, LazyGroup, add_group

VALIDATIONS = (
    CommandEntry(
        "train",
        "loadfactor.interfaces.cli.validate.train",
        "Compare predicted training speed and memory with measured ones, of tables or of a job of the books.",
    ),
    CommandEntry(
        "memory",
        "loadfactor.interfaces.cli.validate.memory",
        "Compare predicted memory with runs that ran: whether they fit, and their published peaks.",
    ),
    CommandEntry(
        "serve",
        "loadfactor.interfaces.cli.validate.serve",
        "Compare predicted latency and throughput with measured ones.",
    ),
    CommandEntry(
        "mfu",
        "loadfactor.interfaces.cli.validate.mfu",
        "Compare the MFU that papers print with what its formula gives.",
    ),
)


class Validations(LazyGroup):
    """The validations."""

    entries = VALIDATIONS


def add_to(app: typer.Typer) -> None:
    """Add `validate` and its kinds."""
    add_group(app, "validate", Validations, "Compare predictions with measurements, published or your own.")
