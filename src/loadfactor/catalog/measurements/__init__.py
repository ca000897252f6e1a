"""Which published measurements can predictions be held against without any file at hand? Tables retyped, each with its source."""

import csv
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

TRAINING = ("megatron_sc21_table1.csv", "korthikanti2022_table5.csv", "korthikanti2022_fig1_memory.csv")


@cache
def published_rows(name: str) -> tuple[Mapping[str, str], ...]:
    """The rows of one published table.

    >>> published_rows("megatron_sc21_table1.csv")[0]["model"]
    '1.7B'
    """
    text = files(__name__).joinpath(name).read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))
