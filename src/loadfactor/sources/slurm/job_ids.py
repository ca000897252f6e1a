"""Job ids as people write them: tasks of arrays, and the tasks that a condensed line stands for."""

import re
from typing import Final

MOST_TASKS: Final = 1_000_000  # of one array; Slurm allows 4 million, and nobody waits with so many
_CONDENSED: Final = re.compile(r"(\d+)_\[([^\]]*)\]?")
_TASKS: Final = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")


def expand_array(job_id: str) -> tuple[list[str], bool]:
    """The jobs of a line: of waiting tasks that share one each of them, else the job itself; and whether the list was cut off.

    >>> expand_array("2_[3-5,8%2]"), expand_array("7_[1-5:2,...]"), expand_array("7_1")
    ((['2_3', '2_4', '2_5', '2_8'], False), (['7_1', '7_3', '7_5'], True), (['7_1'], False))
    """
    found = _CONDENSED.fullmatch(job_id)
    if found is None:
        return [job_id], False
    listed, _, _ = found[2].partition("%")
    tasks: dict[int, None] = {}
    is_cut = not job_id.endswith("]")
    for part in listed.split(","):
        span = _TASKS.fullmatch(part)
        if span is None:  # Slurm ends a list that is too long with …
            is_cut = True
            continue
        first, last, step = int(span[1]), int(span[2] or span[1]), int(span[3] or 1)
        if step < 1 or not 0 <= last - first < MOST_TASKS or len(tasks) > MOST_TASKS:
            is_cut = True
            continue
        tasks.update(dict.fromkeys(range(first, last + 1, step)))
    if not tasks:
        return [job_id], True
    return [f"{found[1]}_{task}" for task in tasks], is_cut
