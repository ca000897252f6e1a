"""Diagnoses: why the GPUs of a job were not fuller, what is at stake, and what to change."""
