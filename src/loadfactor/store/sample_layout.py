"""Layout of stored samples: their columns in a file, and what a store knows of a file without opening it.

A file holds samples of one UTC day and one range of devices, sorted by device and time. A sample ends at the instant it was taken
(`sampled_utc`). Where its start was not given it covers the gap to the previous sample of its device and source when that gap is at
most `REACH_STEPS` nominal steps, else one nominal step. The step of a source is learnt from all its files (`step_votes`), so a file
keeps the gap and not the start: the start is worked out when the file is read (`sample_files`), and no file changes with the step.

A sample is cut at the hours it may reach into: a row is the part of it in one hour, and the part in its last hour (`late_ms` 0)
stands for the sample as it was taken. How far it may reach: as far as its start was given; else back to the previous sample when
that is no further than `LONGEST_REACH_MS`; else `LONGEST_STEP_MS`.
"""

from dataclasses import dataclass
from typing import Final

from loadfactor.base.units import MS_PER_HOUR
from loadfactor.tables.schema import REACH_STEPS

LONGEST_STEP_MS: Final = MS_PER_HOUR
"""Nothing slower is taken for a series."""
LONGEST_REACH_MS: Final = int(REACH_STEPS * LONGEST_STEP_MS)


@dataclass(frozen=True)
class StepVote:
    """What some devices of a source say of its step: each device votes for its own most common gap, with all its gaps."""

    source: str
    gap_ms: int
    gaps: int
    first_device: str  # the lowest and the highest name of the devices that vote so
    last_device: str


@dataclass(frozen=True)
class SampleStart:
    """Where the earliest samples of a source begin: one nominal step before `taken_ms`, or not before `given_ms`."""

    source: str
    step_ms: int | None  # stated by the importer
    lone_step_ms: int | None
    taken_ms: (
        int | None
    )  # the first instant at which the first sample of a series was taken, where its start was not given
    given_ms: int | None  # the first start that was given, or sample that another one reaches back to


@dataclass(frozen=True)
class SampleFacts:
    """What the store knows of a file of samples without opening it."""

    measured: int  # union of the masks
    sources: tuple[str, ...]
    first_device: str
    last_device: str
    first_taken_ms: int  # the first and the last instant that a sample was taken at
    last_taken_ms: int
    given: bool  # some starts were given
    # samples of one device may overlap, of two sources or of given starts: within the file, and with earlier ones of their series
    overlaps: bool
    votes: tuple[StepVote, ...]
    starts: tuple[SampleStart, ...] = ()
    settled: bool = True  # no other file holds earlier or later samples that change the reach of these
