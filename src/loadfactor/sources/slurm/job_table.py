"""Jobs as every decoder of Slurm's output hands them over: one row a run of a job, whatever it was written in."""

from typing import Any, Final

import pyarrow as pa

TEXTS: Final = (
    "job_id",  # as people write it: 102_1
    "job_number",  # the raw id, where it is known
    "cluster",
    "user",
    "account",
    "wckey",
    "qos",
    "partition",
    "job_name",
    "comment",
    "admin_comment",
    "reservation",
    "reason",  # why it waits, or waited last
    "state",  # the first word, in lower case: running, cancelled
    "held",  # TRES or GRES that it was given
    "asked",  # TRES or GRES that it asked for
    "nodes",  # hostlist
    "placed",  # GPUs on each of its nodes, where that is known: n1=3,n2=1
    "indices",  # which of them these are, as Slurm numbers them, where that is known: n1=0 1 2,n2=5
)
INSTANTS: Final = ("submitted", "eligible", "started", "ended")
"""Milliseconds since 1970 UTC; null where it has not happened."""

JOBS: Final = pa.schema(
    [
        *((name, pa.string()) for name in TEXTS),
        *((name, pa.int64()) for name in INSTANTS),
        ("restarts", pa.int64()),
        ("line", pa.int64()),  # where it stands in its input
    ]
)

OPEN_STATES: Final = ("running", "suspended", "completing", "configuring", "stopped", "signaling", "stage_out")
"""States of jobs that hold their GPUs. A suspended job keeps them: Slurm stops its processes and frees nothing of them."""
EXPECTED_END: Final = ("pending", "running", "suspended", "configuring", "stopped", "signaling")
"""States of jobs whose end scontrol, squeue and slurmrestd expect; sacct writes none."""
REQUEUED_STATES: Final = ("requeued", "preempted", "node_fail", "boot_fail", "resizing", "requeue_hold", "special_exit")
"""States that a run may end in that is followed by another run of the same job."""
NEVER: Final = ("", "none", "unknown", "n/a", "(null)", "null", "invalid", "infinite", "notset")
"""What stands for a text or a time that is not there, in lower case."""


def make_jobs(records: list[dict[str, Any]]) -> pa.Table:
    """Records with any of these columns as a table with all of them; of a job that runs the end is what it may last to at most."""
    for record in records:
        if record.get("state") in EXPECTED_END:
            record["ended"] = None
    return pa.Table.from_pylist([{name: record.get(name) for name in JOBS.names} for record in records], schema=JOBS)


def name_job(number: str, array: str | None, task: str | None, het: str | None, offset: str | None) -> str:
    """The id of a job as people write it, from its number, its array and task, or its heterogeneous job and place there.

    >>> name_job("103", "102", "1", None, None), name_job("2", "2", "3-5%2", None, None), name_job("201", None, None, "200", "1")
    ('102_1', '2_[3-5%2]', '200+1')
    """
    if array and task:
        return f"{array}_{task}" if task.isdigit() else f"{array}_[{task}]"
    return f"{het}+{offset}" if het and offset else number


def read_text(value: object) -> str | None:
    """A text, None where Slurm writes that there is none."""
    text = str(value).strip() if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
    return None if text.lower() in NEVER else text


def read_state(text: str | None) -> str | None:
    """The state of a job without who cancelled it; sacct without -P cuts it off with a +.

    >>> read_state("CANCELLED by 1001"), read_state("OUT_OF_ME+"), read_state("")
    ('cancelled', 'out_of_memory', None)
    """
    words = (text or "").split()
    if not words:
        return None
    state = words[0].lower()
    if state.endswith("+"):
        state = next((name for name in _LONG_STATES if name.startswith(state[:-1])), state[:-1])
    return state


_LONG_STATES: Final = (
    "cancelled",
    "completed",
    "completing",
    "configuring",
    "node_fail",
    "out_of_memory",
    "preempted",
    "special_exit",
    "suspended",
)
