"""Shared by decoders: text in blocks, CSV, values and times of cells, steps of series, gaps. Knows no format of a tool."""
