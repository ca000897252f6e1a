"""The table of quotas: how many GPUs a queue may hold, borrow and lend."""

from loadfactor.columns import Column, Table

QUOTAS = Table(
    "quotas",
    "a queue may hold so many GPUs",
    ("cluster", "queue", "flavor", "resource", "from_utc"),
    (
        Column("queue", "text", "the queue whose quota it is (a ClusterQueue of Kueue)"),
        Column("cluster", "text", "the cluster it is of, where there are several", "the only one"),
        Column("cohort", "text", "the queues that lend each other what they do not use", "none"),
        Column("flavor", "text", "which kind of GPUs (a ResourceFlavor of Kueue)", "any"),
        Column("resource", "text", "what is asked for: nvidia.com/gpu, nvidia.com/mig-1g.10gb", "GPUs"),
        Column("gpus", "count", "how many it may hold of its own, in whole GPUs"),
        Column("borrowing_gpus", "count", "how many more it may borrow from its cohort", "as many as there are"),
        Column("lending_gpus", "count", "how many of its own the cohort may borrow", "all"),
        Column("from_utc", "instant", "valid since"),
        Column("to_utc", "instant", "valid until", "until further notice"),
    ),
)
