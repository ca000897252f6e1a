"""Decoders of traces that others published: clusters, jobs and requests."""
