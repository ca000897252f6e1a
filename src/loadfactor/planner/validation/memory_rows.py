"""Measured memory of training ranks, part by part, beside the equations' parts."""

from dataclasses import replace

from loadfactor.base.units import BYTES_PER_GIB
from loadfactor.catalog.measurements import read_published_rows
from loadfactor.planner.training.layout import NONE, SELECTIVE
from loadfactor.planner.training.memory import estimate_memory
from loadfactor.planner.validation.row_cells import Row, RowRefused, read_number
from loadfactor.planner.validation.training_errors import Comparison
from loadfactor.planner.validation.training_rows import read_row

STATE = ("weights_bytes", "gradients_bytes", "optimizer_bytes")
ACTIVATIONS = ("activations_bytes",)
COLUMNS = ("params_and_optimizer_gib", "activations_none_gib", "activations_seqpar_selective_gib")


def has_memory(row: Row) -> bool:
    """True for a row of memory parts rather than of speed."""
    return any(name in row for name in COLUMNS)


def compare_memory(number: int, row: Row, file: str = "") -> list[Comparison]:
    """Each part the row gives beside its prediction, for the layout of that name in arXiv:2205.05198 Table 5.

    Raises RowRefused when the name is not one of that table.
    """
    name = (row.get("model") or "").strip()
    known = [r for r in read_published_rows("korthikanti2022_table5.csv") if r["model"] == name]
    if not known:
        raise RowRefused(f"no layout is known for the memory of {name!r}")
    run = read_row(known[0])
    plain = replace(run.layout, recompute=NONE, sequence_parallel=False)
    lean = replace(run.layout, recompute=SELECTIVE, sequence_parallel=True)
    results = []
    for column, layout, parts in zip(COLUMNS, (plain, plain, lean), (STATE, ACTIVATIONS, ACTIVATIONS), strict=True):
        value = read_number(row, column)
        if value is None:
            continue
        needs = estimate_memory(run.job, layout)
        predicted = sum(float(needs.parts[p][0]) for p in parts) / BYTES_PER_GIB
        measured = replace(run, label=name, layout=layout, quantity=column, value=value, free=())
        results.append(Comparison(file, number, measured, layout, predicted, bool(needs.fits[0])))
    return results
