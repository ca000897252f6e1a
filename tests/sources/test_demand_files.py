"""Demand is read from job logs, hourly series and published traces, told apart by their header."""

import gzip
from pathlib import Path

import pytest

from loadfactor.base.errors import SourceError
from loadfactor.sources.demand import DemandTrace, JobTrace, StateTrace
from loadfactor.sources.demand_files import read_demand


def written(folder: Path, text: str, name: str = "demand.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_jobs_with_seconds_or_instants(tmp_path: Path) -> None:
    """Seconds are taken as they are, instants with a zone become seconds, and optional columns come along."""
    plain = read_demand(written(tmp_path, "submit_s,gpus,duration_s,team\n0,8,3600,nlp\n60,0.5,100,vision\n"))
    assert isinstance(plain, JobTrace)
    assert plain.gpus.tolist() == [8, 0.5]
    assert plain.team is not None
    assert plain.team.tolist() == ["nlp", "vision"]
    dated = read_demand(
        written(
            tmp_path,
            "submit_utc,gpus,duration_s,priority\n2026-03-01T00:00:00Z,8,3600,1\n2026-03-01T02:01:00+01:00,1,10,2\n",
        )
    )
    assert isinstance(dated, JobTrace)
    assert (dated.submit_s - dated.submit_s[0]).tolist() == [0, 3660]


def test_hours_are_a_demand_series_and_gz_is_read(tmp_path: Path) -> None:
    """One row an hour is a demand series; a gzipped file is read as the same."""
    path = tmp_path / "hours.csv.gz"
    path.write_bytes(gzip.compress(b"hour,gpus\n0,20\n1,40.5\n"))
    trace = read_demand(path)
    assert isinstance(trace, DemandTrace)
    assert trace.demand_gpus.tolist() == [20, 40.5]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a,b\n1,2\n", "submit_s, gpus, duration_s"),
        ("", "empty file"),
        ("submit_s,gpus,duration_s\n", "no rows"),
        (
            "submit_s,gpus,duration_s\n0,eight,5\n",
            "row 2: gpus must be a number at least 0.001 and at most 1,000,000, got eight",
        ),
        ("submit_utc,gpus,duration_s\n2026-03-01T00:00:00,1,5\n", "no time zone"),
        ("submit_utc,gpus,duration_s\n2026-13-01T00:00:00Z,1,5\n", "is not a time in any calendar"),
        ("start,gpus,duration_s\n0,1,5\n", "submit_s or submit_utc"),
    ],
)
def test_what_cannot_be_read_is_said(text: str, says: str, tmp_path: Path) -> None:
    """A file that cannot be understood names the row or the columns, in one line."""
    with pytest.raises(SourceError, match=says) as refused:
        read_demand(written(tmp_path, text))
    assert "\n" not in str(refused.value)


def test_missing_files_and_folders_are_named(tmp_path: Path) -> None:
    """A path that is no file is said to be none."""
    with pytest.raises(SourceError, match="no file"):
        read_demand(tmp_path / "absent.csv")
    with pytest.raises(SourceError, match="is a folder"):
        read_demand(tmp_path)
    (tmp_path / "x.csv").write_bytes(b"\xff\xff\x00")
    with pytest.raises(SourceError, match="not text"):
        read_demand(tmp_path / "x.csv")


def test_published_traces(shared: Path) -> None:
    """openb pods with their shares and waits, Muri in seconds, Helios by the minute: counts as their README states."""
    jobs = shared / "data" / "jobs"
    openb = read_demand(jobs / "alibaba_v2023_openb_pod_list_default.csv.gz")
    assert isinstance(openb, JobTrace)
    assert 5_800 < len(openb.gpus) < 7_064
    assert (openb.gpus < 1).sum() > 2_500
    assert any("sparse" in note for note in openb.left_out)
    submitted = read_demand(jobs / "muri_testbed_64xV100_submitted_trace.csv.gz")
    result = read_demand(jobs / "muri_testbed_64xV100_SRTF_job.csv.gz")
    assert isinstance(submitted, JobTrace)
    assert isinstance(result, JobTrace)
    assert submitted.submit_s.tolist() == pytest.approx(result.submit_s.tolist())
    assert result.published_wait_s is not None
    assert result.published_wait_s.mean() == pytest.approx(188_942, abs=1)
    earth = read_demand(jobs / "helios_earth_vc6YE_cluster_sequence_vc.csv.gz")
    assert isinstance(earth, StateTrace)
    assert len(earth.demand_gpus) == 44_640
    assert earth.total_gpus[0] == 208
