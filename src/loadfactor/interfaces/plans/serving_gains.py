"""The section of a serving plan about batching: what well-known figures become for this model, context and accelerator."""

from loadfactor.interfaces.document import DataTable, Section, TableColumn
from loadfactor.interfaces.formats import number, percent
from loadfactor.planner.serving.fleet_run import duty_multiplier, exponential_peak_multiplier
from loadfactor.planner.serving.levers import KAPPA_OF_27, MANY, OPEN_SHARE
from loadfactor.planner.serving.serving_plan import ServingPlan

PEAK_QUANTILE = 0.95


def draw_batch_gains(p: ServingPlan) -> Section:
    """Batch 1 → 64, half of the chip, both together, and the cost of being open part of the time."""
    g = p.claims
    half = f"batch {number(g.batch_for_half)}" if g.batch_for_half else "at no batch"
    rows = [
        (
            f"batch 1 → {MANY}: throughput",
            f"{number(g.roofline_speedup_at_64)} ×",
            f"memory-bound, κ = {number(g.kappa)}, limit {number(g.speedup_limit)} ×; 27 × needs κ = {KAPPA_OF_27:.3g}",
        ),
        ("the same by the step equation", f"{number(g.predicted_speedup_at_64)} ×", "with kernels, links and launches"),
        (
            f"share of the chip at batch 1 → {MANY}",
            f"{percent(g.compute_share_at_1)} → {percent(g.compute_share_at_64)}",
            "of peak FLOP/s, decoding alone",
        ),
        (
            "half of the chip",
            half,
            f"needs κ below {number(g.largest_kappa_for_half)}; {number(g.most_sequences)} sequences fit; "
            f"at most {percent(min(g.compute_share_limit, 1.0))}",
        ),
        (
            "27 × and 1 → 50 % together",
            "yes" if g.both_hold and g.kappa > KAPPA_OF_27 else "no",
            "27 × needs a larger κ than half of the chip allows",
        ),
        (
            f"{percent(OPEN_SHARE)} duty",
            f"{number(duty_multiplier(OPEN_SHARE).multiplier)} ×",
            "1 ÷ duty, when batches are full while it is open",
        ),
        (
            f"capacity for the {PEAK_QUANTILE:.0%} of an exponential load".replace("%", " %"),
            f"{number(exponential_peak_multiplier(PEAK_QUANTILE))} ×",
            "−ln(1 − 0.95), over the mean load",
        ),
    ]
    r = p.chosen.replica
    where = f"{p.model}, {p.precision}, {number(g.context)} tokens of context, {r.layout} of {p.accelerator}."
    columns = (TableColumn("figure"), TableColumn("here"), TableColumn("condition"))
    return Section("What a batch gains, by equation", where, tables=(DataTable(columns, rows),))
