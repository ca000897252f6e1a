"""Readings as the page that Prometheus scrapes."""

from collections.abc import Iterable
from typing import Final

from .readings import SeriesValues, is_counter

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_TARGET: Final = ("instance", "job")
"""Labels that whoever scrapes gives."""


def write_page(readings: Iterable[SeriesValues]) -> str:
    """The page: the values of a metric together, below its type.

    >>> from loadfactor_agent.readings import Labels
    >>> print(write_page([SeriesValues(Labels({"gpu": "0"}), 0, {"DCGM_FI_DEV_GPU_UTIL": 97.0})]), end="")
    # TYPE DCGM_FI_DEV_GPU_UTIL gauge
    DCGM_FI_DEV_GPU_UTIL{gpu="0"} 97
    """
    by_name: dict[str, list[str]] = {}
    for labels, _, values in readings:
        said = ",".join(f'{name}="{_escape(value)}"' for name, value in labels.pairs if name not in _TARGET)
        for name, value in values.items():
            by_name.setdefault(name, []).append(f"{name}{{{said}}} {_write_number(value)}\n")
    parts = []
    for name, lines in by_name.items():
        parts.append(f"# TYPE {name} {'counter' if is_counter(name) else 'gauge'}\n")
        parts.extend(lines)
    return "".join(parts)


def _write_number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
