"""What the ledger's columns may say: states, kinds of holders, and the bins of activity."""

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
