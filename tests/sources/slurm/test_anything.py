"""Whatever stands in a file: rows that may enter the books, or one line that says what is wrong."""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.sources.reading import read
from tests.sources.slurm.sacct_files import FIELDS, Books, job, tres, write_sacct
from tests.sources.slurm.test_live_output import NODE, PENDING, RUNNING

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import ReadOptions
from loadfactor.sources.slurm import SOURCE

SETTINGS = settings(
    max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)
SACCT = write_sacct(
    [
        job("101", gpus=4),
        job("102_[3-5%2]", State="PENDING", Start="Unknown", End="Unknown"),
        job("104", NodeList="n[1-2]"),
        job("104", "12:00:00", "13:00:00", Submit="2026-10-01T11:00:00", JobName="a|b"),
        job("7", AllocTRES="gres/shard=2"),
    ],
    (*FIELDS, "JobName"),
)
JSON = '{"jobs": [{"job_id": 5, "job_state": "RUNNING", "nodes": "n1", "tres_alloc_str": "gres/gpu=2", "start_time": 1790845200}]}'
ODD = (
    "",
    "|",
    "\n",
    "[",
    "]",
    "-",
    "9" * 30,
    "n[1-99999999]",
    "gres/gpu=1e9",
    "None",
    "é",
    "\x1f",
    '"',
    "=",
    "1970-01-01T00:00:00",
)


def damage(text: str, rnd: random.Random) -> bytes:
    """The text cut off, with bits flipped, or with odd pieces put in."""
    data = bytearray(text.encode())
    for _ in range(rnd.choice((1, 1, 2, 5))):
        at = rnd.randrange(len(data) or 1)
        kind = rnd.randrange(4)
        if kind == 0:
            data = data[:at]
        elif kind == 1 and data:
            data[at] ^= 1 << rnd.randrange(8)
        elif kind == 2:
            data[at:at] = rnd.choice(ODD).encode()
        else:
            del data[at : at + rnd.randrange(40)]
    return bytes(data)


OUTPUT = {"sacct": SACCT, "job": RUNNING + PENDING, "node": NODE.format(state="IDLE*+DRAIN"), "json": JSON}


@pytest.mark.parametrize("kind", OUTPUT)
def test_damaged_output_is_read_or_refused_in_one_line(kind):
    """No traceback, and nothing enters that may not."""

    @SETTINGS
    @given(st.randoms(use_true_random=False))
    def run(rnd: random.Random) -> None:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "slurm.txt"
            path.write_bytes(damage(OUTPUT[kind], rnd))
            try:
                read(SOURCE, path, options=ReadOptions(timezone=UTC))
                said = f"{path}"
            except SourceError as error:
                said = str(error)
            assert str(path) in said
            assert "\n" not in said

    run()


@SETTINGS
@given(st.randoms(use_true_random=False))
def test_gpu_hours_equal_a_slow_sum(rnd: random.Random):
    """GPU-hours by user of random jobs with steps, requeues and nodes are what a loop adds up, in any order of the rows."""
    rows, expected = [], dict[str, float]()
    for number in range(rnd.randrange(1, 12)):
        user, at = (
            rnd.choice(("ann", "bob")),
            datetime(2026, 10, 1, tzinfo=UTC) + timedelta(minutes=rnd.randrange(10_000)),
        )
        for attempt in range(rnd.choice((1, 1, 2, 3))):
            gpus, minutes = rnd.randrange(0, 9), rnd.randrange(0, 600)
            start, end = at + timedelta(minutes=5), at + timedelta(minutes=5 + minutes)
            texts = dict(
                zip(
                    ("Submit", "Eligible", "Start", "End"),
                    (f"{t:%Y-%m-%dT%H:%M:%S}" for t in (at, at, start, end)),
                    strict=True,
                )
            )
            state = "REQUEUED" if attempt == 0 else "COMPLETED"
            held = rnd.choice((tres(gpus), f"gres/gpu:h100={gpus}", f"cpu=1,gres/gpu={gpus},gres/gpumem=80G"))
            row = job(str(number), User=user, State=state, NodeList=rnd.choice(("n1", "n[1-3]")), **texts)
            row |= {"AllocTRES": held, "ReqTRES": held}
            rows += [row, row | {"JobID": f"{number}.batch", "User": ""}]
            expected[user] = expected.get(user, 0.0) + gpus * minutes / 60
            at = end + timedelta(minutes=1)
    rnd.shuffle(rows)
    with TemporaryDirectory() as folder:
        found = Books(write_sacct(rows), folder=Path(folder)).hours("user")
    assert found == pytest.approx({user: hours for user, hours in expected.items() if user in found}, abs=1e-9)
    assert all(hours == pytest.approx(0) for user, hours in expected.items() if user not in found)
