"""Page of the MFU validation: the model FLOPs utilization that papers print beside what their own formula gives."""

from loadfactor.base.units import PERCENT
from loadfactor.interfaces.charts import Chart, Series
from loadfactor.interfaces.document import Assumption, DataTable, Document, Section, TableColumn
from loadfactor.interfaces.formats import percent
from loadfactor.planner.validation.mfu_claims import MfuValidation, validate_mfu
from loadfactor.planner.validation.request import MfuRequest

FORMULA = "MFU = tokens/s × (6N + 12·L·H·Q·T) ÷ (chips × peak)"


def build_document(_request: MfuRequest) -> Document:
    """The page of the published table."""
    result = validate_mfu()
    return Document(
        headline=_write_headline(result),
        sections=(
            Section(FORMULA, charts=(_draw_claims(result),), tables=(_tabulate_shares(result), _tabulate_paid(result))),
            Section("Notes", tables=(_tabulate_notes(result),)),
        ),
        assumptions=[Assumption(c.model, percent(c.published_share), c.source) for c in result.claims],
        data=result,
    )


def _write_headline(result: MfuValidation) -> str:
    follow = ", ".join(c.model for c in result.claims if c.follows)
    others = (
        f"{c.model} does not: printed {percent(c.published_share)}, its inputs give {percent(c.recomputed_share)}"
        for c in result.claims
        if not c.follows
    )
    return "; ".join((f"{follow} follow from their own formula", *others)) + "."


def _tabulate_shares(result: MfuValidation) -> DataTable:
    columns = [TableColumn("model"), TableColumn("chips", "number"), TableColumn("chip")]
    columns += [TableColumn(c, "percent") for c in ("published", "recomputed")]
    rows = [
        (c.model, c.chips, c.chip, c.published_share, c.recomputed_share, "follows" if c.follows else "does not follow")
        for c in result.claims
    ]
    return DataTable([*columns, TableColumn("verdict")], rows, "MFU published and recomputed")


def _tabulate_paid(result: MfuValidation) -> DataTable:
    columns = [TableColumn("model")]
    columns += [TableColumn(c, "percent") for c in ("without attention", "HFU", "over every chip-hour paid")]
    rows = [(c.model, c.without_attention_share, c.hfu_share, c.paid_share) for c in result.claims]
    return DataTable(columns, rows, "The same runs counted otherwise", "HFU adds recomputed work")


def _tabulate_notes(result: MfuValidation) -> DataTable:
    rows = [(c.model, c.note) for c in result.claims if c.note]
    return DataTable((TableColumn("model"), TableColumn("note")), rows)


def _draw_claims(result: MfuValidation) -> Chart:
    published = Series("published", [c.published_share * PERCENT for c in result.claims])
    recomputed = Series("recomputed", [c.recomputed_share * PERCENT for c in result.claims])
    names = [c.model for c in result.claims]
    return Chart("MFU published and recomputed (%)", "bar", names, (published, recomputed), x_label="MFU (%)")
