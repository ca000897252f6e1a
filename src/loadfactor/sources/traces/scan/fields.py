"""Members of events that are kept, and where: columns of whole numbers and texts by number.

Member names are compared without regard to case, as profilers write `External id` and `external id`. Kineto's are those of
libkineto/src/output_json.cpp.
"""

from enum import IntEnum
from typing import Final

import numpy as np


class EventField(IntEnum):
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


COLUMNS: Final = len(EventField)
TEXTS: Final = 8
"""The first columns are texts."""
START, DURATION = int(EventField.START_NS), int(EventField.DURATION_NS)
PHASE, GRID, DIMS = int(EventField.PHASE), int(EventField.GRID), int(EventField.DIMS)
NAME, CAT, PID, TID = int(EventField.NAME), int(EventField.CAT), int(EventField.PID), int(EventField.TID)
ALLOCATED = int(EventField.ALLOCATED)
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
    "device": EventField.DEVICE,
    "stream": EventField.STREAM,
    "bytes": EventField.BYTES,
    "grid": EventField.GRID,
    "correlation": EventField.CORRELATION,
    "external id": EventField.EXTERNAL,
    "input dims": EventField.DIMS,
    "est. achieved occupancy %": EventField.OCCUPANCY,
    "collective name": EventField.COLLECTIVE,
    "dtype": EventField.DTYPE,
    "process group name": EventField.GROUP,
    "in msg nelems": EventField.ELEMENTS_IN,
    "out msg nelems": EventField.ELEMENTS_OUT,
    "group size": EventField.GROUP_SIZE,
    "total allocated": EventField.ALLOCATED,
    "total reserved": EventField.RESERVED,
    "device type": EventField.DEVICE_KIND,
    "device id": EventField.DEVICE,
}


def _tabulate(members: dict[str, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The names of members one behind another, by length; where each begins; and the column of each."""
    names = sorted(members, key=len)
    begins = np.cumsum([0, *(len(name) for name in names)]).astype(np.int64)
    columns = np.array([int(members[name]) for name in names], np.int64)
    return np.frombuffer("".join(names).encode(), np.uint8), begins, columns


EVENT_TEXT, EVENT_BEGINS, EVENT_COLUMNS = _tabulate(_OF_EVENT)
ARGS_TEXT, ARGS_BEGINS, ARGS_COLUMNS = _tabulate({name: int(column) for name, column in _OF_ARGS.items()})
