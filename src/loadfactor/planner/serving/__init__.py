"""Serving plans: one replica by equations, a fleet by event simulation, both on the same step time. Reads no files."""
