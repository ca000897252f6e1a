"""The section of every plan that says what more GPUs or money would bring."""

from collections.abc import Sequence

from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.servers import find_server
from loadfactor.interfaces.document import Section
from loadfactor.interfaces.formats import UNKNOWN, money, number, short
from loadfactor.interfaces.tables import col, table
from loadfactor.planner.hardware.marginal import NEXT_GPUS, Marginal

WRITTEN_OUT = 1e6


def count_node_gpus(name: str) -> int:
    """GPUs of a node of this accelerator, as its server is sold; 8 where no server is known."""
    server = find_server(accelerator(name).id)
    return NEXT_GPUS if server is None else int(server.gpus.value)


def draw_marginal(rows: Sequence[Marginal], currency: str, period: str, note: str = "") -> tuple[Section, ...]:
    """One line for each enlargement, each the plan made anew with it; nothing where none was requested."""
    if not rows:
        return ()
    brought = table(
        rows,
        col("more", "step"),
        col("gained", lambda m: f"{_write(m.gained)} {m.quantity}" if m.gained > 0 else "nothing"),
        col("then", lambda m: f"{_write(m.then)}, from {_write(m.now)}"),
        col(f"costs{period} more", "cost", "money"),
        col("each", lambda m: UNKNOWN if m.cost_per_unit is None else money(m.cost_per_unit, currency)),
        col("throughput", lambda m: UNKNOWN if m.throughput_factor is None else f"× {number(m.throughput_factor)}"),
        currency=currency,
        note=" ".join(filter(None, (note, *(f"{m.step}: {m.reason}." for m in rows if m.reason)))),
    )
    return (Section("What more would bring", tables=(brought,)),)


def _write(amount: float) -> str:
    return number(amount) if amount < WRITTEN_OUT else short(amount)
