"""Metrics of energy and carbon: what GPUs drew, measured or estimated, what the building added, and what that emitted.

Power that was measured comes first. Where it was not it is estimated, if the settings say how; else it is unknown, and so in the
coverage. Energy at the meter is that × PUE; carbon that × intensity of the grid of the region, hour by hour.
"""

from loadfactor.base.units import J_PER_KWH
from loadfactor.metrics.metric import (
    CARBON_KG,
    CARBON_KNOWN_S,
    DRAWN_KNOWN_S,
    ESTIMATED_J,
    METERED_J,
    METERED_KNOWN_S,
    Coverage,
    Metric,
    Part,
    Sum,
)


def _sum(amount: str, per: float, known_s: str) -> Sum:
    return Sum(Part((amount,)), per, Coverage(Part((known_s,)), Part(("gpu_s",))))


ENERGY = (
    Metric(
        "energy_kwh", "kWh", "Energy", "Energy drawn by the GPUs, held or not, where it was measured.", "lower",
        Sum(Part(("energy_j",)), J_PER_KWH, Coverage(Part(("energy_measured_s",)), Part(("gpu_s",)))), "energy",
    ),
    Metric(
        "energy_estimated_kwh", "kWh", "Energy, estimated",
        "Energy of the GPUs where their power was not measured: a share of full power, as [energy] says it.", "lower",
        _sum(ESTIMATED_J, J_PER_KWH, DRAWN_KNOWN_S), "energy",
    ),
    Metric(
        "site_energy_kwh", "kWh", "Energy at the meter",
        "Energy of the GPUs, measured or else estimated, × PUE of the region and hour.", "lower",
        _sum(METERED_J, J_PER_KWH, METERED_KNOWN_S), "energy",
    ),
    Metric(
        "carbon_kg", "kgCO2e", "Carbon", "Energy at the meter × intensity of the grid of the region and hour.", "lower",
        _sum(CARBON_KG, 1, CARBON_KNOWN_S), "energy",
    ),
)  # fmt: skip
