"""Published measurements that come with the program: tables retyped, each row with its source."""

import csv
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

TRAINING = ("megatron_sc21_table1.csv", "korthikanti2022_table5.csv", "korthikanti2022_fig1_memory.csv")


@cache
def read_published_rows(name: str) -> tuple[Mapping[str, str], ...]:
    """The rows of one published table.

    >>> read_published_rows("megatron_sc21_table1.csv")[0]["model"]
    '1.7B'
    """
    text = files(__name__).joinpath(name).read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))
