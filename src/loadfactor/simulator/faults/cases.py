"""Cases: a healthy fleet with some faults in it, its data spoilt or not, and what rules of alerts should say of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from loadfactor.base.units import S_PER_MIN
from loadfactor.simulator.faults.consequences import find_free_beside_waits, find_low, find_silent
from loadfactor.simulator.faults.healthy import GPUS_OF_A_NODE, make_healthy
from loadfactor.simulator.faults.kinds import FAULTS
from loadfactor.simulator.faults.measure import measure
from loadfactor.simulator.faults.rows import make_rows, make_samples
from loadfactor.simulator.faults.scene import Expectation, Flags, Scene
from loadfactor.simulator.faults.spoil import ALL, MISSING, hold_back, lose_some, see_with
from loadfactor.simulator.table_rows import TableBatch

LATE_MINUTES: Final = 35
"""An alert over a window may still tell of what ended so long ago."""
SAME: Final = {"exporter_lost": "telemetry_lost"}
"""Kinds of faults that another rule tells of, for every node."""


@dataclass(frozen=True)
class Case:
    """A fleet, what is known of it, and what may be said of it. `late`: samples that come in a second import."""

    seed: int
    kinds: tuple[str, ...]
    scene: Scene
    signals: frozenset[str]
    expected: tuple[Expectation, ...]
    late: Flags | None = None

    def explain(self, rule: str, by: Mapping[str, str], start_ms: int, end_ms: int | None) -> list[Expectation]:
        """What was expected of the things and at the time that an alert tells of; nothing where it is false.

        `end_ms`: None where the alert did not end. Dimensions that an expectation does not describe may have any value.
        """
        until_ms = self.scene.at_ms(self.scene.minutes) if end_ms is None else end_ms
        return [
            e
            for e in self.expected
            if e.rule == rule
            and start_ms < self.scene.at_ms(e.minutes[1] + LATE_MINUTES)
            and until_ms >= self.scene.at_ms(e.minutes[0])
            and all(value in e.about[name] for name, value in by.items() if name in e.about)
        ]

    def rows(self) -> Iterator[TableBatch]:
        """What is imported first."""
        return make_rows(self.scene, sorted(self.signals), self.late)

    def late_rows(self) -> Iterator[TableBatch]:
        """What is imported later."""
        if self.late is not None:
            yield make_samples(self.scene, sorted(self.signals), self.late & ~self.scene.lost)


def make_case(
    seed: int,
    kinds: Sequence[str] = (),
    has_gaps: bool = False,
    is_late: bool = False,
    missing: str | None = None,
    more_nodes: int = 0,
    step_s: int = S_PER_MIN,
    plain_nodes: int = 0,
) -> Case:
    """The fleet of a seed with faults of these kinds, put in in the order of `FAULTS`. Raises NoRoomError where they do not fit.

    `missing`: one of the names in `MISSING`. `more_nodes`: beside the usual four. `step_s`: of samples, a part of a minute.
    `plain_nodes`: so many nodes, the first ones, have no profiling counters.
    """
    scene = make_healthy(seed, more_nodes)
    scene.step_s, scene.plain = step_s, frozenset(range(GPUS_OF_A_NODE * plain_nodes))
    rng = np.random.default_rng((seed, 15))
    for kind in FAULTS:
        for _ in range(list(kinds).count(kind)):
            FAULTS[kind](scene, rng)
    if has_gaps:
        lose_some(scene)
    signals = MISSING[missing] if missing else ALL
    found = [
        *scene.expected,
        *find_low(scene, _activity(scene, signals)),
        *find_free_beside_waits(scene),
        *find_silent(scene),
    ]
    expected = tuple(seen for e in found if (seen := see_with(e, signals, scene.plain)) is not None)
    expected = tuple(replace(e, rule=SAME.get(e.rule, e.rule)) for e in expected)
    return Case(seed, tuple(kinds), scene, signals, expected, hold_back(scene) if is_late else None)


def _activity(scene: Scene, signals: frozenset[str]) -> np.ndarray:
    """The best signal of activity that is measured."""
    best = "sm_active_share" if "sm_active_share" in signals else "busy_share"
    measured = measure(scene)
    activity = np.where(scene.lost, np.nan, measured[best])
    plain = sorted(scene.plain)
    activity[plain] = np.where(scene.lost, np.nan, measured["busy_share"])[plain]
    return activity
