"""Local time of the people who use the fleet, and how much work they hand in at each hour."""

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt

from loadfactor.base.units import D_PER_WEEK, H_PER_DAY, MS_PER_DAY, MS_PER_HOUR, MS_PER_S
from loadfactor.simulator.fleet import Floats, Ints
from loadfactor.simulator.scenario import Scenario

SATURDAY = 5
EPOCH_WEEKDAY = 3  # 1970-01-01 was a Thursday


@dataclass(frozen=True)
class Calendar:
    """The zone's offset for each hour of the scenario, and what follows from it. Daylight saving changes at whole UTC hours."""

    start_ms: int
    offset_ms: Ints

    def local_ms(self, at_ms: npt.NDArray[np.int64]) -> Ints:
        """The wall clock's milliseconds since its own 1970, for instants."""
        hour = np.clip((at_ms - self.start_ms) // MS_PER_HOUR, 0, len(self.offset_ms) - 1)
        return np.asarray(at_ms + self.offset_ms[hour])

    def hour(self, at_ms: npt.NDArray[np.int64]) -> Floats:
        """Local hour of the day, 0 … 24."""
        return np.asarray((self.local_ms(at_ms) % MS_PER_DAY) / MS_PER_HOUR)

    def weekday(self, at_ms: npt.NDArray[np.int64]) -> Ints:
        """Local weekday, Monday 0."""
        return np.asarray((self.local_ms(at_ms) // MS_PER_DAY + EPOCH_WEEKDAY) % D_PER_WEEK)

    def weekend(self, at_ms: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """True on a local Saturday or Sunday."""
        return np.asarray(self.weekday(at_ms) >= SATURDAY)


def build_calendar(scenario: Scenario) -> Calendar:
    """The calendar of a scenario, one day longer than the simulation so that a session may end after them."""
    hours = (scenario.days + 1) * H_PER_DAY
    offsets = []
    for h in range(hours):
        at = datetime.fromtimestamp((scenario.start_ms + h * MS_PER_HOUR) / MS_PER_S, UTC).astimezone(scenario.zone)
        offset = at.utcoffset()
        offsets.append(0 if offset is None else round(offset.total_seconds()) * MS_PER_S)
    return Calendar(scenario.start_ms, np.array(offsets, dtype=np.int64))


def compute_submission_rate(calendar: Calendar, at_ms: npt.NDArray[np.int64], night: float, weekend: float) -> Floats:
    """How much work people hand in, relative: late morning and late afternoon of a working day, `night` always."""
    hour = calendar.hour(at_ms)
    day = np.exp(-(((hour - 11) / 2.4) ** 2)) + 0.9 * np.exp(-(((hour - 16) / 2.4) ** 2))
    return np.asarray((night + day) * np.where(calendar.weekend(at_ms), weekend, 1.0))


def compute_request_rate(calendar: Calendar, at_ms: npt.NDArray[np.int64]) -> Floats:
    """Requests to a served network as a share of the top of a working day: a broad day, a deep night, a weekend dip.

    Highest near 14:00 local; at 04:00 about a tenth of it; a weekend has a bit more than half.
    """
    hour = calendar.hour(at_ms)
    day = 0.08 + 0.92 * np.exp(-((np.abs((hour - 14 + H_PER_DAY / 2) % H_PER_DAY - H_PER_DAY / 2) / 5.2) ** 2))
    return np.asarray(day * np.where(calendar.weekend(at_ms), 0.55, 1.0))
