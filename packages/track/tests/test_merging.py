"""Tests of merging: whatever a thread takes when, records say what the loop said."""

from random import Random

import pytest

from loadfactor_track.merging import Merger, Record
from loadfactor_track.run import TrackedRun


@pytest.mark.parametrize("seed", range(200))
def test_micro_batches_that_are_taken_at_any_time(seed: int) -> None:
    """Steps of micro-batches, said by number or as not done, are counted once each and keep their own samples."""
    random = Random(seed)
    run, merger = TrackedRun({}, "", "global"), Merger(0)
    run._is_on = True  # without a thread: this test takes what was said
    records: list[Record] = []
    said: list[int] = []
    for step in range(random.randint(1, 12)):
        is_by_number = random.random() < 0.5
        batches = [random.choice((1, 1, 2)) for _ in range(random.randint(1, 3))]
        for place, samples in enumerate(batches, 1):
            run.step(step=step, samples=samples, done=is_by_number or place == len(batches))
            if random.random() < 0.3:
                records += merger.merge(run._give())
        said.append(sum(batches))
    records += merger.merge(run._give())
    kept = [0] * len(said)
    for record in records:
        samples = record["samples"]
        for place in range(max(record["steps"], 1)):
            kept[record["step"] + place] += samples[place] if isinstance(samples, list) else samples
    assert kept == said
    assert sum(record["steps"] for record in records) == len(said)
