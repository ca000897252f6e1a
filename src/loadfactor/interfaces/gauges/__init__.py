"""Gauges of the fleet: the numbers that `/metrics` shows, dashboards draw and rules for Prometheus compare."""
