"""Which demand can a plan be made from? Files of jobs, of a cluster's state, of plain demand; told apart by their header.

    trace = read_trace(Path("jobs.csv"))     # a JobTrace, a StateTrace or a DemandTrace: plain arrays, and what was left out

`FORMATS` lists what can be read, in the order the header is tried.
"""

import csv
import gzip
import io
from pathlib import Path

import pandas as pd

from loadfactor.errors import SourceError
from loadfactor.sources.public_traces.demand import helios, jobs_csv, muri, openb
from loadfactor.sources.public_traces.demand.trace import DemandTrace, JobTrace, StateTrace, Trace

FORMATS = (openb, muri, helios, jobs_csv)

__all__ = ["FORMATS", "DemandTrace", "JobTrace", "StateTrace", "Trace", "read_trace"]


def read_trace(path: Path) -> Trace:
    """The trace in a CSV file (plain or .gz). Raises SourceError naming the header and what can be read."""
    if path.is_dir():
        raise SourceError(f"{path} is a folder; name one CSV file of demand in it")
    if not path.exists():
        raise SourceError(f"there is no file {path}")
    raw = path.read_bytes()
    try:
        text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise SourceError(f"{path} is not a CSV file of text: {error}") from error
    header = [name.strip() for name in next(csv.reader([text.split("\n", 1)[0]]), [])]
    for form in FORMATS:
        if form.reads(header):
            frame = pd.read_csv(io.StringIO(text), skipinitialspace=True)
            if frame.empty:
                raise SourceError(f"{path} has a header but no rows")
            trace: Trace = form.parse(frame, path.name)
            return trace
    raise SourceError(
        f"{path}: cannot tell demand from the columns {', '.join(header[:8]) or 'of an empty file'}; "
        "give submit_s, gpus, duration_s (one row a job) or hour, gpus (one row an hour)"
    )
