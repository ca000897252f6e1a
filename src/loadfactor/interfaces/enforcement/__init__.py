"""Enforcement: what `loadfactor enforce` does to holders that leave their GPUs idle, and the log of it."""
