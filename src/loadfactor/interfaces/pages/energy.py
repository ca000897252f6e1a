"""Energy and carbon in words: what they are worked out of, and which part of the energy was estimated."""

from typing import Final

from loadfactor.interfaces.document import Assumption
from loadfactor.interfaces.formats import number, percent
from loadfactor.settings.energy import EnergySettings

ENERGY: Final = ("energy_kwh", "energy_estimated_kwh", "site_energy_kwh", "carbon_kg")
"""Metrics of energy, in the order in which one follows from the other."""
ORIGIN: Final = "[energy]"


def list_terms(found: EnergySettings) -> tuple[Assumption, ...]:
    """What energy at the meter and its carbon rest on; nothing where the settings say nothing."""
    if not found.is_given:
        return ()
    estimate = found.basis.partition(", ")[2] or "unknown"
    terms = [Assumption("power where none was measured", estimate, ORIGIN)]
    pue = "" if found.pue is None else f"{found.pue:g}"
    if found.grid is not None:
        of_file = f"as {found.grid.name} has it"
        pue = f"{of_file}, else {pue}" if pue else of_file
        regions = dict.fromkeys(filter(None, (found.region, *found.regions.values())))
        terms.append(Assumption("carbon of the grid", f"{', '.join(regions)}, by hour, {of_file}", ORIGIN))
    return (*terms, Assumption("PUE", pue or "unknown", ORIGIN))


def say_terms(found: EnergySettings) -> str:
    """The same as a sentence."""
    terms = "; ".join(f"{of.name}: {of.value}" for of in list_terms(found))
    return f"{terms[:1].upper()}{terms[1:]}."


def say_energy(measured: float | None, estimated: float | None, coverage: float | None) -> str:
    """Energy of GPUs in a sentence: measured, estimated, and of how much of the time neither is known.

    >>> say_energy(0.7, 0.42, 0.75)
    '0.7 kWh were measured, 0.42 kWh estimated; of 25.0 % of the time neither is known.'
    """
    parts = [
        f"{number(kwh)} kWh {words}"
        for kwh, words in ((measured, "were measured"), (estimated, "estimated"))
        if kwh is not None
    ]
    unknown = f"; of {percent(1 - coverage)} of the time neither is known" if coverage and coverage < 1 else ""
    return f"{', '.join(parts)}{unknown}." if parts else "Nothing is known of its energy."
