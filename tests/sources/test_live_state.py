"""States of live decoders that earlier versions stored are read, and what follows is as if they had gone on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.sources.kubernetes.test_live_decoder import EVENTS as CLUSTER_EVENTS

from loadfactor.sources.base import Rows
from loadfactor.sources.kubernetes.live_decoder import LiveKubernetesDecoder
from loadfactor.sources.progress_records.live_decoder import LiveProgressDecoder
from loadfactor.sources.slurm.live_decoder import LiveSlurmDecoder

STATES = Path(__file__).parent / "earlier_states"
AT_MS = 1_790_000_000_000
BEGIN = {
    "kind": "begin",
    "format": 1,
    "id": "f1",
    "job": "j",
    "at": AT_MS,
    "run": "r",
    "host": "h",
    "pid": 4,
    "rank": 0,
}
RUN = [
    BEGIN,
    {
        "kind": "work",
        "n": 1,
        "from": AT_MS,
        "to": AT_MS + 9000,
        "step": 1,
        "steps": 3,
        "samples": [4, None, 5],
        "tokens": 9,
    },
    {"kind": "epoch", "n": 2, "at": AT_MS + 9500, "epoch": 1, "step": 3},
    {"kind": "section", "n": 3, "from": AT_MS + 10000, "to": AT_MS + 12000, "us": 1500000, "section": "checkpoint"},
    {"kind": "work", "n": 4, "from": AT_MS + 12000, "to": AT_MS + 19000, "step": 4, "steps": 2},
    {**BEGIN, "id": "f2", "at": AT_MS + 30_000},
    {"kind": "work", "n": 1, "from": AT_MS + 40_000, "to": AT_MS + 50_000, "step": 3, "steps": 3},
]
JOB = {"job_id": "7", "submitted": 9_990_000_000, "asked": "gres/gpu=2", "user": "u", "cluster": "c1"}
RUNNING = {**JOB, "started": 10_000_050_000, "state": "running", "nodes": "n1", "held": "gres/gpu=2"}
WAITING = {
    **JOB,
    "job_id": "8",
    "submitted": 10_000_055_000,
    "asked": "gres/gpu=1",
    "state": "pending",
    "reason": "Priority",
}
JOBS = [
    [10_000_000_000, "nodes", [["n1", "gpu:h100:8", ["down"], "bad fan", 9_000_000_000, ["p"], 10_000_000_000]]],
    [10_000_000_000, "queue", [{**JOB, "state": "pending", "reason": "Resources"}]],
    [10_000_060_000, "queue", [RUNNING]],
    [10_000_060_000, "queue", [WAITING]],
    [10_000_090_000, "nodes", [["n1", "gpu:h100:8", ["idle"], None, None, ["p"], 10_000_090_000]]],
    [10_000_090_000, "accounting", [{**RUNNING, "state": "completed", "ended": 10_000_080_000}]],
    [
        10_000_090_000,
        "queue",
        [{**WAITING, "state": "running", "started": 10_000_070_000, "nodes": "n1", "held": "gres/gpu=1"}],
    ],
]


@pytest.mark.parametrize(
    ("kind", "name", "stored", "events", "before"),
    [
        (LiveKubernetesDecoder, "prod", "kubernetes-2", CLUSTER_EVENTS, 12),
        (LiveSlurmDecoder, "c1", "slurm-1", JOBS, 4),
        (LiveProgressDecoder, "x", "progress-1", RUN, 5),
    ],
)
def test_a_state_of_an_earlier_version_is_read(
    kind: Callable[..., Any], name: str, stored: str, events: list[Any], before: int
) -> None:
    """A decoder that read the first events and stored its state then, and one of today that read all, emit the same."""
    went_on, restored = kind(name), kind(name, (STATES / f"{stored}.state").read_bytes())
    went_on.feed(events[:before])
    assert list(went_on.drain())
    assert not list(restored.drain())
    rows = []
    for decoder in (went_on, restored):
        decoder.feed(events[before:])
        rows.append([(item.table, item.data.to_pylist()) for item in decoder.drain() if isinstance(item, Rows)])
    assert rows[0] == rows[1]
    assert rows[0]
