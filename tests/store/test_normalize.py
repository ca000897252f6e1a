"""Samples as taken become rows of a file: sorted, merged, with their gaps, cut at the hours."""

from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.store.normalize_oracle import settle_slowly

from loadfactor.store.normalize import AS_TAKEN, ON_DISK, Normalized, SamplesDifferError, normalize
from loadfactor.store.sample_imports import write_samples
from loadfactor.tables.schema import MEASUREMENTS, measured_bit

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


@settings(max_examples=300, deadline=None)
@given(days())
def test_settling_agrees_with_one_row_after_the_other(
    case: tuple[list[dict[str, Any]], dict[tuple[str, str], int]],
) -> None:
    """Rows, rows that met, counts and facts are those of the slow way, in whatever order and batches the samples come."""
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
    totals = duckdb.sql(
        f"SELECT count(*), count(DISTINCT device_id), sum(to_utc) FROM '{path}' WHERE late_ms = 0"
    ).fetchone()
    assert totals == (100, 3, sum(r["sampled_utc"] for r in rows))
