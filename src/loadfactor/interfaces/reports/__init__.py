"""The report on a fleet: what it asks the books, and the document it makes of the answers. No formula, no rendering.

`sections.SECTIONS` lists its sections in reading order. Every number is a reading of a metric asked for by name.
"""
