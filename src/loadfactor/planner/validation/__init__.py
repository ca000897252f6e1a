"""Predictions beside published measurements and your own."""
