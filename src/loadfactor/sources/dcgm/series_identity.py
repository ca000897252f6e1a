"""The identity of a line: its field, its GPU or MIG instance, and who held that."""

import re
from functools import lru_cache
from typing import Final

from loadfactor.sources.dcgm.fields import BY_NAME, PREFIX
from loadfactor.sources.gpu_scrapes.fields import Field
from loadfactor.sources.gpu_scrapes.series_identity import DeviceLabels, SeriesIdentity, read_labels

_HEAD: Final = re.compile(r"(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)\s*(?:\{(?P<labels>.*)\})?\s*")
_LABEL: Final = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"')
TOTAL: Final = "_total"  # OpenMetrics puts it behind the name of whatever only grows
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_LABELS_MAX: Final = 10_000


def parse_series(head: str, node: str | None, machine: str) -> SeriesIdentity | None:
    """What stands before the value; None when it is no exposition or no DCGM field.

    `node` is what the caller calls the machine, `machine` what to call it where nobody says.

    >>> s = parse_series('DCGM_FI_DEV_FB_USED{UUID="GPU-1",GPU_I_ID="9",GPU_I_PROFILE="1g.5gb",pod="p",namespace="n"}', None, "f")
    >>> s.device.gpu, s.device.instance, s.device.slices, s.device.holder
    ('GPU-1', '9', 1, 'n/p')
    """
    parts = split_head(head)
    if parts is None or not parts[0].startswith(PREFIX):
        return None
    return SeriesIdentity(parts[0], find_field(parts[0]), _parse_labels(parts[1], node, machine))


def split_head(head: str) -> tuple[str, str] | None:
    """The name and the text of the labels before a value; None when it is no exposition.

    >>> split_head('up{job="a"}'), split_head("<html>")
    (('up', 'job="a"'), None)
    """
    found = _HEAD.fullmatch(head)
    return (found["name"], found["labels"] or "") if found is not None else None


def list_labels(text: str) -> dict[str, str]:
    """The labels between the braces of an exposition, as they are written there.

    >>> list_labels('gpu="0",UUID="GPU-1"')
    {'gpu': '0', 'UUID': 'GPU-1'}
    """
    return {name: _unescape(value) for name, value in _LABEL.findall(text)}


def find_field(name: str) -> Field | None:
    """The field of this name, None where the tables keep none; a total may end in _total."""
    field = BY_NAME.get(name)
    if field is None:
        field = BY_NAME.get(name.removesuffix(TOTAL))
        return field if field is not None and (field.counts or field.either) else None
    return field


@lru_cache(_LABELS_MAX)  # a device has the same ones in all of its fields
def _parse_labels(text: str, node: str | None, machine: str) -> DeviceLabels:
    return read_labels({name.lower(): value for name, value in list_labels(text).items()}, node, machine)


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda found: "\n" if found[1] == "n" else found[1], text) if "\\" in text else text
