"""Members of events that are kept, and where: columns of whole numbers and texts by number.

Member names are compared without regard to case, as profilers write `External id` and `external id`. Kineto's are those of
libkineto/src/output_json.cpp.
"""

from enum import IntEnum
from typing import Final

import numpy as np


class Field(IntEnum):
    """The columns of scanned rows. Those from NAME to DIMS are texts, by the number of the table of texts."""

    NAME = 0
    CAT = 1
    PID = 2
    TID = 3
    COLLECTIVE = 4
    DTYPE = 5
    GROUP = 6
    DIMS = 7
    START_NS = 8
    DURATION_NS = 9
    PHASE = 10
    CORRELATION = 11
    EXTERNAL = 12
    DEVICE = 13
    STREAM = 14
    BYTES = 15
    GRID = 16
    OCCUPANCY = 17
    ELEMENTS_IN = 18
    ELEMENTS_OUT = 19
    GROUP_SIZE = 20
    ALLOCATED = 21
    RESERVED = 22
    DEVICE_KIND = 23


COLUMNS: Final = len(Field)
TEXTS: Final = 8
"""The first columns are texts."""
START, DURATION = int(Field.START_NS), int(Field.DURATION_NS)
PHASE, GRID, DIMS = int(Field.PHASE), int(Field.GRID), int(Field.DIMS)
NAME, CAT, PID, TID = int(Field.NAME), int(Field.CAT), int(Field.PID), int(Field.TID)
ALLOCATED = int(Field.ALLOCATED)
ARGS: Final = COLUMNS
"""The member that holds the others."""
NOTHING: Final = COLUMNS + 1

_OF_EVENT: Final = {
    "ph": PHASE,
    "ts": START,
    "cat": CAT,
    "dur": DURATION,
    "pid": PID,
    "tid": TID,
    "name": NAME,
    "args": ARGS,
}
_OF_ARGS: Final = {
    "device": Field.DEVICE,
    "stream": Field.STREAM,
    "bytes": Field.BYTES,
    "grid": Field.GRID,
    "correlation": Field.CORRELATION,
    "external id": Field.EXTERNAL,
    "input dims": Field.DIMS,
    "est. achieved occupancy %": Field.OCCUPANCY,
    "collective name": Field.COLLECTIVE,
    "dtype": Field.DTYPE,
    "process group name": Field.GROUP,
    "in msg nelems": Field.ELEMENTS_IN,
    "out msg nelems": Field.ELEMENTS_OUT,
    "group size": Field.GROUP_SIZE,
    "total allocated": Field.ALLOCATED,
    "total reserved": Field.RESERVED,
    "device type": Field.DEVICE_KIND,
    "device id": Field.DEVICE,
}


def _tabulate(members: dict[str, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The names of members one behind another, by length; where each begins; and the column of each."""
    names = sorted(members, key=len)
    begins = np.cumsum([0, *(len(name) for name in names)]).astype(np.int64)
    columns = np.array([int(members[name]) for name in names], np.int64)
    return np.frombuffer("".join(names).encode(), np.uint8), begins, columns


EVENT_TEXT, EVENT_BEGINS, EVENT_COLUMNS = _tabulate(_OF_EVENT)
ARGS_TEXT, ARGS_BEGINS, ARGS_COLUMNS = _tabulate({name: int(column) for name, column in _OF_ARGS.items()})
