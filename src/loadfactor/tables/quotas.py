"""The table of quotas: how many GPUs a queue may hold, borrow and lend."""

from typing import Final

from loadfactor.tables.columns import Column, Table

OF_COHORT: Final = "cohort/"
"""Begins the names of cohorts among those of queues, which have no slash."""

QUOTAS = Table(
    "quotas",
    "a queue may hold so many GPUs",
    ("cluster", "queue", "flavor", "resource", "from_utc"),
    (
        Column("queue", "text", "the queue whose quota it is (a ClusterQueue of Kueue); cohort/NAME: a cohort itself"),
        Column("cluster", "text", "the cluster it is of, where there are several", "the only one"),
        Column(
            "cohort",
            "text",
            "the queues that lend each other what they do not use; of a cohort the one above it",
            "none",
        ),
        Column("flavor", "text", "which kind of GPUs (a ResourceFlavor of Kueue)", "any"),
        Column("resource", "text", "what is asked for: nvidia.com/gpu, nvidia.com/mig-1g.10gb", "GPUs"),
        Column("gpus", "count", "how many it may hold of its own, in whole GPUs"),
        Column("borrowing_gpus", "count", "how many more it may borrow from its cohort", "as many as there are"),
        Column("lending_gpus", "count", "how many of its own the cohort may borrow", "all"),
        Column("from_utc", "instant", "valid since"),
        Column("to_utc", "instant", "valid until", "until further notice"),
    ),
)
