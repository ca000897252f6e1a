"""Captures of profilers judged: exact partitions of GPU time, owners of idle time, skew of collectives, and findings."""
