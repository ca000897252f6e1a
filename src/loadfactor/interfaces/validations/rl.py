"""The page of `validate rl`: published steps of reinforcement learning beside predicted ones."""

from loadfactor.catalog.constants import read_framework_factors
from loadfactor.interfaces.document import Assumption, DataTable, Document, Section
from loadfactor.interfaces.formats import counted, number, percent
from loadfactor.interfaces.tables import col, table
from loadfactor.planner.validation.reinforcement import ComparedStep, RlValidation, validate_reinforcement
from loadfactor.planner.validation.request import RlValidationRequest


def build_document(_request: RlValidationRequest) -> Document:
    """Errors by source, each row, and those that cannot be planned."""
    v = validate_reinforcement()
    rows = table(
        v.rows,
        col("network", "model"),
        col("accelerator", "accelerator"),
        col("GPUs", "gpus", "number"),
        col("way", _say_way),
        col("measured (s)", "measured_s", "number"),
        col("predicted (s)", "predicted_s", "number"),
        col("error", "error", "percent"),
        col("network left out", "left_out_error", "percent"),
    )
    refused = table(
        v.refused, col("network", "model"), col("accelerator", "accelerator"), col("GPUs", "gpus"), col("why", "reason")
    )
    return Document(
        headline=_write_headline(v),
        sections=(
            Section("Errors", tables=(_tabulate_sources(v),)),
            Section("Rows", tables=(rows,)),
            *((Section("Rows refused", tables=(refused,)),) if v.refused else ()),
        ),
        assumptions=(
            *(
                Assumption(
                    f"factor of the framework, {kind}",
                    f"{one.value:.3g}; four of five within {percent(one.range[0])} to {percent(one.range[1])}",
                    "one lab's steps, by benchmarks/fit_reinforcement.py",
                )
                for kind, one in read_framework_factors().items()
            ),
            Assumption("lengths", "log-normal about the published mean, cut", "not published"),
        ),
        data=v,
    )


def _say_way(row: ComparedStep) -> str:
    if not row.staleness:
        return "colocated, synchronous"
    return f"{row.rollout_gpus} GPUs of rollouts, {counted(row.staleness, 'update')} behind"


def _write_headline(v: RlValidation) -> str:
    bias = sum(row.error for row in v.rows) / len(v.rows)
    return (
        f"{len(v.rows)} published steps are predicted to {percent(v.mean_error)} on average ({percent(v.left_out_error)} with "
        f"their network left out of the fit), {percent(abs(bias))} {'long' if bias > 0 else 'short'} on balance; "
        f"{number(len(v.refused))} refused."
    )


def _tabulate_sources(v: RlValidation) -> DataTable:
    return table(
        v.sources,
        col("source", "source"),
        col("rows", "rows", "number"),
        col("mean error", "in_fit", "percent"),
        col("network left out", "left_out", "percent"),
        col("in the range", "range_coverage", "percent"),
        col("on balance", "bias", "percent"),
    )
