"""Slurm: what sacct, squeue, scontrol, sinfo and slurmrestd write of jobs and nodes."""

from loadfactor.sources.base import Source
from loadfactor.sources.files import find_with, read_with
from loadfactor.sources.slurm.decoder import decode_slurm

SOURCE = Source(
    "slurm",
    find_with((".txt", ".csv", ".psv", ".json", ".log", ".out"), "output of Slurm's commands"),
    read_with(decode_slurm),
    uses=("timezone", "at", "pool"),
)
