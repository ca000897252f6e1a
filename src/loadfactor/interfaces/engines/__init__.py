"""Engines that run tasks of the ledger: processes here, Spark, Ray, Slurm or Kubernetes. A task does the same in all of them."""
