"""Insight from the books: alerts, causes of lost time, and levers. No files, no clock, no network."""
