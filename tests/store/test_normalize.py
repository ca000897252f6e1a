"""Samples as taken become rows of a file, sorted, merged and cut at the hours, beside an oracle; steps are learnt from them."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.long import rest_long

from loadfactor.base.units import MS_PER_HOUR
from loadfactor.store.manifest import LONGEST_REACH_MS, LONGEST_STEP_MS, StepVote
from loadfactor.store.normalize import AS_TAKEN, ON_DISK, Normalized, SamplesDifferError, normalize
from loadfactor.store.sample_imports import write_samples
from loadfactor.store.step_votes import add_votes, count_votes, learn_steps
from loadfactor.tables.schema import MEASUREMENTS, REACH_STEPS, measured_bit

Row = dict[str, Any]
SAID = ("began_utc", *MEASUREMENTS)


@dataclass
class Expected:
    """What settling must find."""

    rows: list[Row] = field(default_factory=list)
    met: list[Row] = field(default_factory=list)  # one of each import
    reaches: list[tuple[Row, int]] = field(default_factory=list)  # samples in order of time, and where each may begin
    replaced: int = 0
    reaches_earlier: bool = (
        False  # some sample was given a start before the last one of its series that is not among these
    )

    @property
    def overlaps(self) -> bool:
        """Some sample of a device may begin before an earlier one was taken."""
        if self.reaches_earlier:
            return True
        pairs = ((a, b, begin) for i, (b, begin) in enumerate(self.reaches) for a, _ in self.reaches[:i])
        return any(a["device_id"] == b["device_id"] and begin < a["sampled_utc"] for a, b, begin in pairs)


def settle_slowly(taken: list[Row], before: Mapping[tuple[str, str], int]) -> Expected:
    """Settle a few rows one by one."""
    series: dict[tuple[str, str], dict[int, dict[int, list[Row]]]]
    series = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for row in sorted(taken, key=lambda r: (r["import_no"], r["seq"])):
        series[row["device_id"], row["source"]][row["sampled_utc"]][row["import_no"]].append(row)
    found = Expected()
    for key in sorted(series):
        previous = before.get(key)
        for at in sorted(series[key]):
            own = []
            for rows in series[key][at].values():
                if any(len({r[c] for r in rows if r[c] is not None}) > 1 for c in SAID):
                    found.replaced += len(rows) - 1
                own.append(_latest(rows))
            sample = _latest(own)
            if len(own) > 1:
                found.met += own
                sample["import_no"] = None
            is_first = at == min(series[key])
            start, reach = _reach(sample, previous, is_first)
            given = sample["began_utc"] is not None
            before_all = is_first and previous is not None and start < previous
            found.reaches_earlier |= given and (before_all or at - start > LONGEST_REACH_MS)
            found.reaches.append((sample, start))
            found.rows += _pieces(sample, start, reach)
            previous = at
    found.rows.sort(key=lambda r: (r["device_id"], r["to_utc"] + r["late_ms"], r["source"], r["to_utc"]))
    found.reaches.sort(key=lambda r: (r[0]["device_id"], r[0]["sampled_utc"], r[0]["source"]))
    return found


def _latest(rows: list[Row]) -> Row:
    """Column by column the value of the latest row that has one."""
    merged = {c: next((r[c] for r in reversed(rows) if r[c] is not None), None) for c in rows[0]}
    return merged | {"measured_mask": sum(1 << i for i, c in enumerate(MEASUREMENTS) if merged[c] is not None)}


def _reach(sample: Row, previous: int | None, is_first: bool) -> tuple[int, int | None]:
    """Where a sample may begin, and how far it reaches as far as is known."""
    at, began = sample["sampled_utc"], sample["began_utc"]
    longest = max(sample["step_ms"] or 0, sample["lone_step_ms"] or 0, LONGEST_STEP_MS)
    reach = None if previous is None else at - previous
    if began is not None:
        return began, at - began
    if reach is not None and reach <= REACH_STEPS * longest:
        return at - reach, reach
    return at - longest, None if is_first else reach  # so far back nobody looks in other files


def _pieces(sample: Row, start: int, reach: int | None) -> list[Row]:
    at = sample["sampled_utc"]
    last = (at - 1) // MS_PER_HOUR
    pieces = []
    for hour in range(min(start // MS_PER_HOUR, last), last + 1):
        end = min(at, (hour + 1) * MS_PER_HOUR)
        times = {"hour_utc": hour * MS_PER_HOUR, "to_utc": end, "late_ms": at - end, "reach_ms": reach}
        piece = sample | times | {"given": sample["began_utc"] is not None}
        pieces.append({name: piece[name] for name in ON_DISK.names})
    return pieces


MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
DAY_START = 20_500 * DAY


def sample(device: str, at: int, **known: Any) -> dict[str, Any]:
    """A row as taken, `at` milliseconds after midnight; columns left out are null."""
    row = dict.fromkeys(AS_TAKEN.names) | {"source": "smi", "import_no": 1, "seq": 0} | known
    mask = sum(measured_bit(m) for m in MEASUREMENTS if row[m] is not None)
    return row | {"device_id": device, "sampled_utc": DAY_START + at, "measured_mask": mask}


def table(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=AS_TAKEN)


def normalized(
    *rows: dict[str, Any], before: dict[tuple[str, str], int] | None = None, refuse: bool = False
) -> Normalized:
    return normalize(table(*rows), before or {}, refuse)


@st.composite
def days(draw: st.DrawFn) -> tuple[list[dict[str, Any]], dict[tuple[str, str], int]]:
    """Samples of a day: few devices, instants and values, so that they meet; several imports, given starts, stated steps."""
    grid = draw(st.sampled_from([MINUTE, 20 * MINUTE, HOUR, 3 * HOUR]))
    rows = []
    for seq in range(draw(st.integers(1, 25))):
        at = min(draw(st.integers(1, 24)) * grid + draw(st.sampled_from([0, 0, 7])), DAY)
        row = sample(
            draw(st.sampled_from("ab")),
            at,
            source=draw(st.sampled_from(["smi", "smi", "dcgm"])),
            import_no=draw(st.integers(1, 3)),
            seq=seq,
            busy_share=draw(st.sampled_from([None, 0.5, 0.7])),
            power_w=draw(st.sampled_from([None, None, 300.0])),
            throttle_mask=draw(st.sampled_from([None, None, 4, 8])),
            step_ms=draw(st.sampled_from([None, None, MINUTE, 2 * HOUR])),
            lone_step_ms=draw(st.sampled_from([None, MINUTE])),
        )
        reach = draw(st.sampled_from([None, None, None, 0, MINUTE, 5 * HOUR, 30 * HOUR]))
        rows.append(row | {"began_utc": None if reach is None else row["sampled_utc"] - reach})
    series = sorted({(r["device_id"], r["source"]) for r in rows})
    before = {s: DAY_START - draw(st.sampled_from([0, MINUTE, 2 * HOUR])) for s in series if draw(st.booleans())}
    return rows, before


@pytest.mark.long
@pytest.mark.parametrize("examples", rest_long((60, 300)))
def test_settling_agrees_with_one_row_after_the_other(examples: int) -> None:
    """Rows, rows that met, counts and facts are those of the slow way, in whatever order and batches the samples come."""
    settings(max_examples=examples, deadline=None)(given(days())(check_settling))()


def check_settling(case: tuple[list[dict[str, Any]], dict[tuple[str, str], int]]) -> None:
    rows, before = case
    expected = settle_slowly(rows, before)
    halves = pa.concat_tables([table(*rows[1::2]), table(*rows[::2])])
    found = normalize(halves, before, refuse=False)
    assert found.rows.schema.equals(ON_DISK)
    assert found.rows.to_pylist() == expected.rows
    key = ("device_id", "source", "sampled_utc", "import_no")
    assert sorted(found.met.to_pylist() if found.met else [], key=lambda r: [r[c] for c in key]) == expected.met
    assert found.replaced == expected.replaced
    assert found.merged == len(rows) - len({tuple(r[c] for c in key) for r in rows})
    series = {(r["device_id"], r["source"]) for r in rows}
    assert found.last == {s: max(r["sampled_utc"] for r in rows if (r["device_id"], r["source"]) == s) for s in series}
    taken = [r["sampled_utc"] for r in rows]
    assert (found.from_ms, found.to_ms) == (min(start for _, start in expected.reaches), max(taken))
    facts = found.facts
    assert facts.overlaps == expected.overlaps
    assert (facts.given, facts.measured) == (
        any(r["given"] for r in expected.rows),
        reduce(or_, (r["measured_mask"] for r in expected.rows)),
    )
    assert (facts.first_device, facts.last_device) == (min(series)[0], max(series)[0])
    assert (facts.first_taken_ms, facts.last_taken_ms) == (min(taken), max(taken))
    assert facts.sources == tuple(sorted({s for _, s in series}))
    if expected.replaced:
        with pytest.raises(SamplesDifferError):
            normalize(halves, before, refuse=True)
    else:
        assert normalize(halves, before, refuse=True).rows.equals(found.rows)


def test_a_sample_lies_in_every_hour_it_may_reach_into() -> None:
    """Half past midnight, an hour and a half after the last one: it may begin yesterday, and the gap stands in each row."""
    found = normalized(sample("a", HOUR // 2), before={("a", "smi"): DAY_START - HOUR})
    hours = [DAY_START - HOUR, DAY_START]
    assert found.rows["hour_utc"].to_pylist() == hours
    assert found.rows["to_utc"].to_pylist() == [DAY_START, DAY_START + HOUR // 2]
    assert found.rows["late_ms"].to_pylist() == [HOUR // 2, 0]
    assert found.rows["reach_ms"].to_pylist() == [HOUR * 3 // 2] * 2
    assert (found.from_ms, found.to_ms) == (DAY_START - HOUR, DAY_START + HOUR // 2)


def test_rows_of_one_import_that_differ_are_named() -> None:
    """The error carries the numbers of both rows and the column; rows that complete each other are one sample."""
    first, second = sample("a", MINUTE, seq=4, busy_share=0.5), sample("a", MINUTE, seq=9, power_w=300.0)
    found = normalized(first, second, refuse=True)
    assert (found.merged, found.replaced, found.rows.num_rows) == (1, 0, 2)
    assert (
        found.rows.slice(1).to_pylist()[0] | {"busy_share": 0.5, "power_w": 300.0} == found.rows.slice(1).to_pylist()[0]
    )
    with pytest.raises(SamplesDifferError) as refusal:
        normalized(first, second, sample("a", MINUTE, seq=11, busy_share=0.6), refuse=True)
    assert (refusal.value.seqs, refusal.value.column) == ((4, 11), "busy_share")


def test_files_know_whether_samples_overlap() -> None:
    """Two sources of one GPU overlap, as do given starts before the sample before; a plain series does not."""
    plain = [sample("a", n * MINUTE) for n in range(1, 5)]
    near = {("a", "smi"): DAY_START}
    assert not normalized(*plain, before=near).facts.overlaps
    assert normalized(*plain, sample("a", 3 * MINUTE + 9, source="dcgm"), before=near).facts.overlaps
    assert normalized(*plain, sample("a", 5 * MINUTE, began_utc=DAY_START + 3 * MINUTE), before=near).facts.overlaps
    assert not normalized(*plain, sample("a", 5 * MINUTE, began_utc=DAY_START + 4 * MINUTE), before=near).facts.overlaps


def test_files_know_whether_samples_overlap_earlier_ones() -> None:
    """A given start before the last sample of an earlier file overlaps it; so may one further back than is looked."""
    near = {("a", "smi"): DAY_START}
    assert normalized(sample("a", MINUTE, began_utc=DAY_START - 1), before=near).facts.overlaps
    assert not normalized(sample("a", MINUTE, began_utc=DAY_START), before=near).facts.overlaps
    assert normalized(sample("a", 2 * HOUR, began_utc=DAY_START), before={}).facts.overlaps


def test_nan_is_not_a_measurement() -> None:
    """NaN becomes null and loses its bit in the mask."""
    found = normalized(sample("a", MINUTE, busy_share=0.5, power_w=float("nan")))
    assert found.rows["power_w"].to_pylist() == [None, None]
    assert found.facts.measured == measured_bit("busy_share")


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """Every column comes back with its type; the texts stand in the footer; nothing is left open."""
    rows = [
        dict.fromkeys(AS_TAKEN.names)
        | {"device_id": f"gpu{i % 3}", "source": "smi", "sampled_utc": 1_777_593_600_000 + i * 1000}
        | {"measured_mask": 1, "busy_share": i / 100, "import_no": 1, "seq": i}
        for i in range(100)
    ]
    normalized = normalize(pa.Table.from_pylist(rows, schema=AS_TAKEN), {}, refuse=True)
    path = tmp_path / "samples.parquet"
    write_samples(normalized.rows, path, {"loadfactor": "described"})
    found = pq.read_table(path)
    assert found.schema.equals(ON_DISK)
    assert found.equals(normalized.rows)
    assert pq.read_metadata(path).metadata[b"loadfactor"] == b"described"
    (totals,) = duckdb.sql(
        f"SELECT count(*), count(DISTINCT device_id), sum(to_utc) FROM '{path}' WHERE late_ms = 0"
    ).fetchall()
    assert totals == (100, 3, sum(r["sampled_utc"] for r in rows))


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
