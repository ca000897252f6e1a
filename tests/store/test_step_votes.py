"""The step of a source is learnt from all its devices, robust against losses, and however files are divided."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadfactor.store.manifest import LONGEST_STEP_MS, StepVote
from loadfactor.store.step_votes import add_votes, count_votes, learn_steps

MINUTE = 60_000


def learnt(*devices: list[int] | np.ndarray, source: str = "smi") -> int | None:
    """The step learnt from the instants of some devices."""
    gaps = [np.diff(np.asarray(instants, dtype=np.int64)) for instants in devices]
    series = np.repeat(np.arange(len(gaps)), [len(g) for g in gaps])
    names = [(f"gpu{i:03d}", source) for i in range(len(gaps))]
    return learn_steps(count_votes(series, np.concatenate(gaps), names)).get(source)


def lossy(step: int, samples: int, kept: float, seed: int = 0, jitter: int = 0) -> np.ndarray:
    """Instants of a series that keeps this share of its samples at random."""
    rng = np.random.default_rng(seed)
    at = np.arange(samples) * step + rng.integers(-jitter, jitter + 1, samples)
    return at[rng.random(samples) < kept]


def test_a_lossy_device_keeps_the_step_of_its_source() -> None:
    """Most samples of one device are lost, at random or every other one: the step is that of the exporter."""
    whole = np.arange(600) * MINUTE
    assert learnt(whole, lossy(MINUTE, 600, 0.42)) == MINUTE
    assert learnt(whole, whole[::2]) == MINUTE
    assert learnt(whole[::2], whole, whole[::2], whole, whole[::2]) == MINUTE


@pytest.mark.parametrize("jitter", [0, 20, 900])
def test_a_whole_fleet_that_loses_samples_keeps_its_step(jitter: int) -> None:
    """With 58 % lost on every device, jitter or not, one step is still the most common gap."""
    step = learnt(*(lossy(MINUTE, 1440, 0.42, seed, jitter) for seed in range(20)))
    assert step == pytest.approx(MINUTE, rel=0.05)


def test_one_device_is_believed_only_alone() -> None:
    """A slow device beside two that agree does not set the step; a single device does."""
    fast, slow = np.arange(100) * 10_000, np.arange(5000) * 47_000
    assert learnt(fast, fast, slow) == 10_000
    assert learnt(slow) == 47_000


def test_the_longer_of_two_steps_counts() -> None:
    """Two exporters under one name: the slow one's samples are not cut down to the step of the fast one."""
    fast, slow = np.arange(250) * 10_000, np.arange(100) * 25_000
    assert learnt(fast, fast, slow, slow) == 25_000


def test_accidents_fall_out() -> None:
    """Gaps that cover little time, and none of many kinds: what covers most time stays."""
    assert learnt(np.arange(100) * MINUTE, np.arange(100) * MINUTE, [0, 1000, 2000], [0, 1000]) == MINUTE
    many = [np.arange(10) * step for step in (1000, 2500, 6000, 13_000, 31_000) for _ in range(2)]
    assert learnt(*many) == 31_000


def test_nothing_slower_than_the_longest_step() -> None:
    """A sample every three hours is a sample an hour long; without gaps there is no step."""
    assert learnt(np.arange(9) * 3 * LONGEST_STEP_MS) == LONGEST_STEP_MS
    assert learn_steps(()) == {}
    assert count_votes(np.array([], dtype=np.int64), np.array([], dtype=np.int64), []) == ()


votes = st.lists(
    st.builds(
        lambda source, gap, gaps, ends: StepVote(source, gap, gaps, min(ends), max(ends)),
        st.sampled_from(["smi", "dcgm"]),
        st.sampled_from([1000, 1050, 2000, 10_000, 10_900, 30_000, 7_200_000]),
        st.integers(1, 1000),
        st.tuples(st.sampled_from("abc"), st.sampled_from("abc")),
    ),
    max_size=12,
)


@given(votes, st.randoms())
def test_votes_can_be_added_in_any_order(cast: list[StepVote], random: object) -> None:
    """Adding up votes of files, in parts and in any order, changes no step."""
    mixed = list(cast)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    parts = [*add_votes(mixed[::2]), *add_votes(mixed[1::2])]
    assert add_votes(parts) == add_votes(cast)
    assert learn_steps(parts) == learn_steps(cast)
    assert all(0 < step <= LONGEST_STEP_MS for step in learn_steps(cast).values())
