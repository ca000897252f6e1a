"""Equations of kernels, links and checkpoints that the planners share."""
