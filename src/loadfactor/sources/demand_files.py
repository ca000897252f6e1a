"""Files of demand that a plan is made from: jobs, a cluster's state, or GPUs by the hour; recognized by their header.

    demand = read_demand(Path("jobs.csv"))     # a JobTrace, a StateTrace or a DemandTrace: plain arrays, and what was left out

`DEMAND_FORMATS` lists what is understood, in the order the header is tried.
"""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pandas as pd

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.sources import job_lists
from loadfactor.sources.base import Input
from loadfactor.sources.demand import Demand
from loadfactor.sources.files import open_input
from loadfactor.sources.parsing.text_blocks import EmptyInputError, join_pieces, split_blocks
from loadfactor.sources.public_traces import helios, muri, openb_jobs

_LIMIT_BYTES: Final = 512 * BYTES_PER_MIB  # some 10 million jobs; the file is held in memory


@dataclass(frozen=True)
class DemandFormat:
    """One form of demand: whether a header is of it, and what makes the demand from the rows (and a name for messages)."""

    matches: Callable[[Sequence[str]], bool]
    decode: Callable[[pd.DataFrame, str], Demand]


DEMAND_FORMATS: Final = tuple(DemandFormat(form.matches, form.decode) for form in (openb_jobs, muri, helios, job_lists))


def read_demand(path: Path) -> Demand:
    """The demand in a CSV file (plain or .gz). Raises SourceError naming the header and what can be read."""
    if path.is_dir():
        raise SourceError(f"{path} is a folder; name one CSV file of demand in it")
    if not path.exists():
        raise SourceError(f"there is no file {path}")
    return decode_demand(open_input(path))


def decode_demand(source: Input) -> Demand:
    """The demand in a CSV. Raises SourceError naming the header and what can be read."""
    label, name = source.label, source.name or source.label
    try:
        blocks = (block.data for block in split_blocks(source))
        text = join_pieces(label, blocks, _LIMIT_BYTES, "give fewer jobs, or hours instead of jobs").decode()
    except EmptyInputError:
        text = ""
    header = [cell.strip() for cell in next(csv.reader([text.split("\n", 1)[0]]), [])]
    for form in DEMAND_FORMATS:
        if form.matches(header):
            try:
                frame = pd.read_csv(io.StringIO(text), skipinitialspace=True)
            except (pd.errors.ParserError, ValueError) as error:
                why = " ".join(str(error).rpartition("C error: ")[2].split())
                raise SourceError(f"{label} is no table with one row a line: {why}") from None
            if not isinstance(frame.index, pd.RangeIndex):
                raise SourceError(f"{label}: its rows have more cells than its header; write one column a comma")
            if frame.empty:
                raise SourceError(f"{label} has a header but no rows")
            return form.decode(frame, name)
    raise SourceError(
        f"{label}: cannot tell demand from the columns {', '.join(header[:8]) or 'of an empty file'}; "
        "give submit_s, gpus, duration_s (one row a job) or hour, gpus (one row an hour)"
    )
