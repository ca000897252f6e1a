"""What the ledger's columns may say: states, kinds of holders, bins of activity, sizes of jobs, names of unlisted GPUs."""

HELD = ("idle", "busy", "unobserved")
STATES = ("unallocated", *HELD, "down")
"""Values of the column `state`."""

HOLDER = ("job_id", "attempt", "user", "team", "project", "experiment_id", "purpose")
"""Columns that say who holds a GPU: null where nobody does or where the holder is unknown."""
KNOWN, NOBODY, UNKNOWN = "known", "nobody", "unknown"
"""Values of the column `holder`."""

BINS = 20
"""Bins of the utilization histogram, each 1/20 wide; the last includes 1."""
HISTOGRAM = tuple(f"hist_{k:02d}_s" for k in range(BINS))
"""GPU-seconds by bin of activity."""

SIZES = {
    "under 1": None, "1": 1, "2-3": 3, "4-7": 7, "8": 8, "9-16": 16, "17-32": 32, "33-64": 64, "65-128": 128,
    "129-256": 256, "257-512": 512, "513-1024": 1024, "over 1024": None,
}  # fmt: skip
"""Classes of jobs by the GPUs they ask for, smallest first, and the most GPUs of each."""

NUMBERED = ":gpu"
"""Between a node and a number: the name of a GPU that is known by its number alone."""

WITHOUT = " without "
"""Between the name of a step and what is empty, in the name of a shorter form of it (`ledger.steps`)."""
