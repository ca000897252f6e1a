"""Compiled scanners of the JSON of traces: events become rows of integers and texts by number."""
