"""Pages of metrics as numbers, for tests."""

import re

_LINE = re.compile(r"(?P<name>\w+)\{(?P<labels>.*)\} (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
Lines = list[tuple[str, dict[str, str], float]]


def read_page(page: str) -> Lines:
    """Name, labels and value of each line."""
    found = [_LINE.fullmatch(line) for line in page.splitlines() if not line.startswith("#")]
    return [(line["name"], dict(_LABEL.findall(line["labels"])), float(line["value"])) for line in found if line]


def values_of(lines: Lines, gpu: int, instance: str = "") -> dict[str, float]:
    """The values of a GPU, or of one of its instances, by metric without its prefix."""
    return {
        name.removeprefix("DCGM_FI_"): value
        for name, labels, value in lines
        if labels.get("gpu") == str(gpu) and labels.get("GPU_I_ID", "") == instance
    }
