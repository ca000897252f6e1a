"""Does the simulated fleet look like one that people run? Shapes of demand, queue, failures and signals."""

import hashlib
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from tests.faults.cases import ALL, MISSING, SAME, make_case
from tests.faults.kinds import FAULTS
from tests.simulator.truth import Truth, truth

from loadfactor.base.errors import InputError, PlanError
from loadfactor.base.units import MS_PER_DAY, MS_PER_HOUR
from loadfactor.simulator import (
    DEMO,
    SMALL,
    Deployment,
    Simulation,
    bench,
    make_samples,
    make_tables,
    simulate,
    write_tables,
)
from loadfactor.simulator.scenario import Scenario
from loadfactor.tables.schema import DIAGNOSTIC, GIVEN, table


@pytest.fixture(scope="module")
def demo() -> Simulation:
    return simulate(DEMO)


@pytest.fixture(scope="module")
def said(demo: Simulation) -> Truth:
    return truth(demo)


@pytest.fixture(scope="module")
def few() -> pd.DataFrame:
    return pd.concat([b.data.to_pandas() for b in make_samples(simulate(SMALL))], ignore_index=True)


def _digest(scenario: Scenario) -> str:
    digest = hashlib.sha256()
    for batch in make_tables(simulate(scenario)):
        for column in batch.data.itercolumns():
            digest.update(repr(column.to_pylist()).encode())
    return digest.hexdigest()


@pytest.mark.long
def test_same_seed_same_rows_other_seed_others() -> None:
    """The rows depend on the scenario and on nothing else."""
    first = _digest(SMALL)
    assert first == _digest(SMALL)
    assert first != _digest(replace(SMALL, seed=8))


def test_every_table_is_filled_with_its_own_types() -> None:
    """Each batch has columns of its table with their types and fits in memory; rates and charges are missing: it has no bill."""
    seen = set()
    for batch in make_tables(simulate(SMALL)):
        schema = table(batch.table).schema
        assert all(batch.data.schema.field(n).type == schema.field(n).type for n in batch.data.column_names)
        assert len(batch.data) <= 110_000
        for column in table(batch.table).columns:
            if column.required:
                assert batch.data[column.name].null_count == 0, (batch.table, column.name)
        seen.add(batch.table)
    expected = {t.name for t in GIVEN} - {"exchange_rates", "charges", *(t.name for t in DIAGNOSTIC)}
    assert seen - {t.name for t in DIAGNOSTIC} == expected


def test_a_gpu_that_fails_leaves_an_error_of_its_driver() -> None:
    """Each GPU that is out of order on its own has an XID when that begins."""
    sim = simulate(replace(SMALL, gpu_failures_per_day=0.5))
    made = [b.data for b in make_tables(sim) if b.table == "device_events"]
    events = {(e["device_id"], e["at_utc"], e["kind"]) for e in made[0].to_pylist()}
    failed = [o for o in sim.outages if o.reason == "gpu failed"]
    assert events == {(sim.fleet.device_id[d], o.from_ms, "xid") for o in failed for d in o.devices} != set()


def test_samples_come_by_day_sorted_and_never_overlap(few: pd.DataFrame) -> None:
    """Within a day by device and time; intervals of one GPU touch or leave a gap, even where days meet."""
    day = (few["to_utc"] - 1) // MS_PER_DAY
    order = few.assign(day=day).sort_values(["day", "device_id", "to_utc"], kind="stable").index
    assert (order == few.index).all()
    by_time = few.sort_values(["device_id", "to_utc"])
    gap = by_time["from_utc"] - by_time.groupby("device_id")["to_utc"].shift()
    assert (gap.dropna() >= 0).all()
    assert (gap > 0).mean() == pytest.approx(SMALL.missing_share, rel=0.3)
    assert ((few["to_utc"] - few["from_utc"]) == SMALL.step_ms).all()


def test_signals_agree_with_each_other(few: pd.DataFrame) -> None:
    """SM active never exceeds engine active, nor that GPU_UTIL; tensor stays under SM; power rises with work."""
    full = few[few["source"] == "dcgm"]
    assert (full["sm_active_share"] <= full["engine_active_share"]).all()
    assert (full["engine_active_share"] <= full["busy_share"] + 1e-9).all()
    assert (full["tensor_active_share"] <= full["sm_active_share"]).all()
    assert (few["mem_used_bytes"] <= few["mem_total_bytes"]).all()
    assert np.corrcoef(full["sm_active_share"], full["power_w"])[0, 1] > 0.8
    assert few["power_w"].between(40, 700).all()


def test_an_exporter_without_profiling_counters_reports_none(few: pd.DataFrame) -> None:
    """The nvidia-smi node has GPU_UTIL, memory and power, and nulls where it cannot measure."""
    plain = few[few["source"] == "nvidia-smi"]
    assert len(plain)
    assert plain["sm_active_share"].isna().all()
    assert plain["busy_share"].notna().all()


def test_values_are_printed_as_collectors_print_them(few: pd.DataFrame) -> None:
    """Shares have four decimals, GPU_UTIL whole percents, power three decimals, memory whole MiB."""
    for column, decimals in (("sm_active_share", 4), ("dram_active_share", 4), ("busy_share", 2), ("power_w", 3)):
        values = few[column].dropna()
        assert (values == values.round(decimals)).all(), column
    assert (few["mem_used_bytes"] % 2**20 == 0).all()


def test_serving_sleeps_at_night_and_rests_at_the_weekend(said: Truth) -> None:
    """Served networks work by day in local time, less on Saturday and Sunday, and hold their GPUs all the same."""
    cells = said.cells[said.cells["run"] >= 0]
    deployed = np.array([r.job.deployment >= 0 for r in said.sim.runs])
    cells = cells[deployed[cells["run"]]]
    local = pd.to_datetime(cells["hour_ms"], unit="ms", utc=True).dt.tz_convert(DEMO.timezone)
    effective = cells["effective_gpu_hours"].groupby([local.dt.dayofweek >= 5, local.dt.hour]).sum()
    held = cells["allocated_gpu_hours"].groupby([local.dt.dayofweek >= 5, local.dt.hour]).sum()
    use = effective / held
    assert use[False, 14] > 4 * use[False, 3]
    assert use[True, 14] < 0.7 * use[False, 14]
    assert use[False, 14] > use[False, 9], "the peak stays at its local hour on both sides of the clock change"


def test_notebooks_are_mostly_idle_and_some_are_forgotten_over_the_weekend(said: Truth, demo: Simulation) -> None:
    """People's sessions idle more than three quarters of their time; some stay from Friday to Monday."""
    notebooks = said.by("purpose")["notebook"]
    assert notebooks.idle_gpu_hours > 0.75 * notebooks.observed_gpu_hours
    sunday = DEMO.start_ms + 6 * MS_PER_DAY + 12 * MS_PER_HOUR
    asleep = [r for r in demo.runs if r.job.job_id.isdigit() and r.job.gpus == 1 and r.from_ms < sunday < r.to_ms]
    assert sum(r.to_ms - r.from_ms > 48 * MS_PER_HOUR for r in asleep) >= 5


def test_waits_grow_when_people_are_at_work(demo: Simulation) -> None:
    """Who asks by day of the week waits longer than who asks at night, and some give up or wait still."""
    local = pd.to_datetime([w.since_ms for w in demo.waits], unit="ms", utc=True).tz_convert(DEMO.timezone)
    wait_s = np.array([((w.until_ms or DEMO.end_ms) - w.since_ms) / 1000 for w in demo.waits])
    later = (local > local.min() + pd.Timedelta(days=1)) & (local.dayofweek < 5)
    assert wait_s[later & (local.hour >= 9) & (local.hour < 18)].mean() > wait_s[later & (local.hour < 6)].mean()
    w = [w for w in demo.waits if not w.started]
    assert any(x.until_ms is None for x in w)
    assert any(x.until_ms is not None for x in w)


def test_gpus_are_never_given_away_twice(demo: Simulation) -> None:
    """At no instant do the shares of one GPU's holders exceed it, nor does anybody hold what is down or not installed."""
    edges = defaultdict(list)
    for r in demo.runs:
        for d in r.devices:
            edges[d] += [(r.from_ms, 1, r.share), (r.to_ms, 0, -r.share)]
    for o in demo.outages:
        for d in o.devices:
            edges[d] += [(o.from_ms, 1, 1.0), (o.to_ms, 0, -1.0)]
    for d, changes in edges.items():
        used = 0.0
        for at, _, share in sorted(changes):
            used += share
            assert used <= 1 + 1e-12
            assert demo.fleet.from_ms[d] <= at <= demo.fleet.to_ms[d]


def test_gangs_stay_on_one_node_or_take_whole_ones(demo: Simulation) -> None:
    """Up to eight GPUs share one machine; larger gangs get machines of their own."""
    for r in demo.runs:
        nodes = {int(demo.fleet.node[d]) for d in r.devices}
        assert len(r.devices) == r.job.gpus
        assert len(nodes) == (1 if r.job.gpus <= 8 else r.job.gpus // 8)


def test_failures_requeue_their_jobs_and_lose_what_came_after_the_checkpoint(demo: Simulation) -> None:
    """A node that fails kills its jobs; each comes back as the next attempt, unless the books end first."""
    killed = [r for r in demo.runs if r.end_state == "node_fail"]
    assert killed
    for r in killed:
        again = [x for x in demo.waits if x.job is r.job and x.attempt == r.attempt + 1]
        assert again
        assert again[0].since_ms == r.to_ms
    assert {r.end_state for r in demo.runs} >= {"completed", "failed", "timeout", "node_fail", "running"}


def test_the_fleet_changes_while_the_books_are_kept(demo: Simulation) -> None:
    """GPUs are bought and retired on the way, and the contracted price changes in the middle of an hour."""
    assert (demo.fleet.from_ms > DEMO.start_ms).sum() == 16
    assert (demo.fleet.to_ms < DEMO.end_ms).sum() == 8
    change = {p.from_ms for p in demo.prices if p.basis == "contracted"} - {DEMO.start_ms}
    assert len(change) == 1
    assert change.pop() % MS_PER_HOUR != 0


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_tables_are_written_once_and_read_back_the_same(tmp_path: Path, format: str) -> None:
    """Files of either format hold the rows counted, the same values, and do not overwrite a folder in use."""
    scenario = replace(SMALL, days=1)
    written = write_tables(scenario, tmp_path / "fleet", format)  # type: ignore[arg-type]
    files = sorted((tmp_path / "fleet" / "samples").iterdir())
    assert [f.name for f in files] == [f"2026-10-24.{format}"]
    read = pq.read_table if format == "parquet" else pa_csv.read_csv
    made = pd.concat([b.data.to_pandas() for b in make_samples(simulate(scenario))], ignore_index=True)
    back = read(files[0]).to_pandas()
    assert len(back) == written["samples"] == len(made)
    assert (back["power_w"] == made["power_w"]).all()
    assert (back["sm_active_share"].fillna(-1) == made["sm_active_share"].fillna(-1)).all()
    if format == "csv":
        instants = pd.to_datetime(back["to_utc"], utc=True).astype("datetime64[ms, UTC]").astype("int64")
        assert (instants == made["to_utc"]).all()
    with pytest.raises(InputError, match="not an empty folder"):
        write_tables(scenario, tmp_path / "fleet")


def test_parquet_of_the_samples_takes_few_bytes_each(tmp_path: Path) -> None:
    """Sixteen measured columns, sorted by device and time, stay within twelve bytes a sample."""
    written = write_tables(replace(DEMO, days=1), tmp_path / "fleet")
    size = sum(f.stat().st_size for f in (tmp_path / "fleet" / "samples").iterdir())
    assert size / written["samples"] <= 12


def test_a_plan_that_cannot_be_says_why() -> None:
    """A pool nobody has, no days, and too small a benchmark are refused by name."""
    with pytest.raises(PlanError, match="asks for pool tpu"):
        replace(SMALL, deployments=(Deployment("x", "t", "tpu", 1, 1, 0, 1, 0.5),))
    with pytest.raises(PlanError, match="days and step_s"):
        replace(SMALL, days=0)
    with pytest.raises(PlanError, match="at least 24"):
        bench(8, 1, 60)


SEED = 3


@pytest.mark.long
@pytest.mark.parametrize("kind", FAULTS)
def test_each_fault_is_expected_by_the_rule_of_its_name(kind: str) -> None:
    """A fault of a kind makes certain that the rule of its name has something to tell; a healthy fleet makes nothing certain."""
    assert SAME.get(kind, kind) in {e.rule for e in make_case(SEED, (kind,)).expected if e.is_certain}
    assert not [e for e in make_case(SEED).expected if e.is_certain]


def test_a_seed_makes_the_same_rows() -> None:
    """Made twice, a case has the same rows; another seed has others."""
    first, again, other = (list(make_case(seed, ("pcie_saturated",)).rows()) for seed in (1, 1, 2))
    assert [batch.data for batch in first] == [batch.data for batch in again]
    assert first[-1].data != other[-1].data


def test_rows_are_rows_of_the_tables() -> None:
    """Every batch names a table and has its columns with their types; samples have the signals that are left, and no others."""
    for missing, signals in MISSING.items():
        for batch in make_case(SEED, missing=missing).rows():
            assert all(table(batch.table).schema.field(field.name) == field for field in batch.data.schema)
        assert {*batch.data.column_names} & ALL == signals


def test_what_is_late_comes_once() -> None:
    """The samples of both imports together are those that a case without late data has."""
    case, whole = make_case(SEED, is_late=True), list(make_case(SEED).rows())[-1]
    first, later = list(case.rows())[-1], next(case.late_rows())
    assert len(later.data) > 0
    assert len(first.data) + len(later.data) == len(whole.data)


def test_gaps_are_samples_that_are_not_there() -> None:
    """A tenth of the samples of every GPU is lost, and nothing else changes."""
    scene, healthy = make_case(SEED, has_gaps=True).scene, make_case(SEED).scene
    assert (scene.lost.mean(axis=1) >= 0.1).all()
    assert np.array_equal(scene.sm, healthy.sm)


def test_a_rule_without_its_signals_is_expected_to_be_silent() -> None:
    """Where nobody measures links, nothing is expected of rules about them; without profiling a busy GPU is no low utilization."""
    assert "pcie_saturated" not in {e.rule for e in make_case(SEED, ("pcie_saturated",), missing="no links").expected}
    blind = make_case(SEED, ("collective_bound",), missing="GPU_UTIL and memory only")
    assert not [e for e in blind.expected if e.is_certain]
