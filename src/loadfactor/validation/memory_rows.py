"""What does a row of measured memory say? Published parts of a rank's memory beside the equations' parts."""

from dataclasses import replace

from loadfactor.catalog.measurements import read_published_rows
from loadfactor.planner.training.job import TrainingJob
from loadfactor.planner.training.layout import NONE, SELECTIVE, TrainingLayout
from loadfactor.planner.training.memory import estimate_memory
from loadfactor.units import BYTES_PER_GIB
from loadfactor.validation.training_errors import Comparison
from loadfactor.validation.training_rows import MeasuredRun, Row, RowRefused, read_row

STATE = ("weights_bytes", "gradients_bytes", "optimizer_bytes")
COLUMNS = ("params_and_optimizer_gib", "activations_none_gib", "activations_seqpar_selective_gib")


def has_memory(row: Row) -> bool:
    """True for a row of memory parts rather than of speed."""
    return any(name in row for name in COLUMNS)


def read_published_job(name: str) -> tuple[TrainingJob, TrainingLayout]:
    """The job and layout of this name in arXiv:2205.05198 Table 5, without recomputation or sequence parallelism.

    >>> read_published_job("175B")[1].gpus
    64
    """
    one = read_row(next(r for r in read_published_rows("korthikanti2022_table5.csv") if r["model"] == name))
    return one.job, replace(one.layout, recompute=NONE, sequence_parallel=False)


def compare_memory(number: int, row: Row) -> list[Comparison]:
    """Each part the row gives beside its prediction, for the layout of that name in arXiv:2205.05198 Table 5.

    Raises RowRefused when the name is not one of that table.
    """
    name = (row.get("model") or "").strip()
    known = [r for r in read_published_rows("korthikanti2022_table5.csv") if r["model"] == name]
    if not known:
        raise RowRefused(f"no layout is known for the memory of {name!r}")
    one = read_row(known[0])
    _, plain = read_published_job(name)
    lean = replace(one.layout, recompute=SELECTIVE, sequence_parallel=True)
    parts = (
        (COLUMNS[0], plain, STATE),
        (COLUMNS[1], plain, ("activations_bytes",)),
        (COLUMNS[2], lean, ("activations_bytes",)),
    )
    results = []
    for column, layout, wanted in parts:
        try:
            value = float(row.get(column) or "")
        except ValueError:
            continue
        results.append(_compared(number, name, one, column, layout, wanted, value))
    return results


def _compared(
    number: int, name: str, one: MeasuredRun, column: str, layout: TrainingLayout, wanted: tuple[str, ...], value: float
) -> Comparison:
    needs = estimate_memory(one.job, layout)
    predicted = sum(float(needs.parts[p][0]) for p in wanted) / BYTES_PER_GIB
    measured = replace(one, label=name, layout=layout, quantity=column, value=value, free=())
    return Comparison(number, measured, layout, predicted, bool(needs.fits[0]))
