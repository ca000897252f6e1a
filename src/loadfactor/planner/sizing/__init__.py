"""Sizes of clusters: queueing formulas, a simulation of job histories, and the size to choose. Pure equations."""
