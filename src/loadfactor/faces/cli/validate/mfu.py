"""`loadfactor validate mfu`: the model FLOPs utilization that papers print, beside what their own formula gives."""

from dataclasses import asdict

import typer

from loadfactor.faces.answer import Answer, Assumption, Column, Table, present
from loadfactor.faces.charts import Chart, Series
from loadfactor.faces.cli.options import Format, Output
from loadfactor.faces.formats import percent
from loadfactor.units import PERCENT
from loadfactor.validation.mfu_claims import MfuClaim, recompute_claims


def add_to(app: typer.Typer) -> None:
    """Hang the command under `validate`."""
    app.command("mfu", help=__doc__)(run)


def run(output_format: Format = "terminal", output: Output = None) -> None:
    """Published MFU beside recomputed MFU."""
    present(_answer(recompute_claims()), output_format, output)


def _answer(rows: tuple[MfuClaim, ...]) -> Answer:
    odd = [c for c in rows if not c.follows]
    fine = [c.model for c in rows if c.follows]
    sentence = f"{', '.join(fine)} follow from their own formula; " + "; ".join(
        f"{c.model} does not: printed {percent(c.published_share)}, its inputs give {percent(c.recomputed_share)}"
        for c in odd
    )
    columns = (
        Column("model"), Column("chips", "number"), Column("chip"), Column("published", "percent"),
        Column("recomputed", "percent"), Column("without attention", "percent"), Column("HFU", "percent"),
        Column("paid", "percent"), Column("verdict"),
    )  # fmt: skip
    cells = [
        (
            c.model, c.chips, c.chip, c.published_share, c.recomputed_share, c.without_attention_share, c.hfu_share,
            c.paid_share, "follows" if c.follows else "does not follow",
        )
        for c in rows
    ]  # fmt: skip
    names = [c.model for c in rows]
    return Answer(
        sentence=sentence + ".",
        tables=(
            Table(
                "MFU = tokens/s × (6N + 12·L·H·Q·T) ÷ (chips × peak)", columns, cells,
                "HFU adds recomputed work; paid: over every chip-hour paid for, not only steady state",
            ),
            Table("Notes", (Column("model"), Column("note")), [(c.model, c.note) for c in rows if c.note]),
        ),
        charts=(
            Chart(
                "MFU published and recomputed (%)", "bar", names,
                (
                    Series("published", [c.published_share * PERCENT for c in rows]),
                    Series("recomputed", [c.recomputed_share * PERCENT for c in rows]),
                ),
                x_label="MFU (%)",
            ),
        ),
        assumptions=tuple(Assumption(c.model, percent(c.published_share), c.source) for c in rows),
        data={"claims": [{**asdict(c), "follows": c.follows} for c in rows]},
    )  # fmt: skip
