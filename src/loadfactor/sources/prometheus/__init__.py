"""Prometheus and its kin: requests of remote_write and answers to queries, as points, and points as rows."""
