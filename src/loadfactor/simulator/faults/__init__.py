"""Small fleets into which known faults are put, to see which rules of alerts tell of them, and of nothing else."""
