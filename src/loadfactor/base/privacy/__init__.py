"""Pseudonyms in place of the names of users: stable, and reversible with the key alone."""

from typing import Final

PREFIX: Final = "p-"
"""How pseudonyms begin."""
