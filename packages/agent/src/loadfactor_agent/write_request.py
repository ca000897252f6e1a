"""Readings as one body of remote_write 1.0: protobuf in a block of snappy."""

from collections.abc import Iterable
from functools import lru_cache

from .protobuf import TIMESERIES, write_instant, write_label, write_sample, write_varint
from .readings import Labels, SeriesValues
from .snappy import SnappyBlock


def pack_readings(readings: Iterable[SeriesValues]) -> bytes:
    """The body. Samples of one series stand together, in the order in which they were read; NaN is left out."""
    series: dict[tuple[int, str], tuple[Labels, list[bytes]]] = {}
    instants: dict[int, bytes] = {}
    for labels, at_ms, values in readings:
        instant = instants.get(at_ms) or instants.setdefault(at_ms, write_instant(at_ms))
        for name, value in values.items():
            if value != value:  # NaN: what is not known is not sent
                continue
            found = series.get((id(labels), name))
            if found is None:
                found = series[id(labels), name] = (labels, [])
            found[1].append(write_sample(value, instant))
    block = SnappyBlock()
    for (_, name), (labels, samples) in series.items():
        said = _write_name(name)
        size = len(labels.before) + len(said) + len(labels.after) + sum(map(len, samples))
        block.add(TIMESERIES + write_varint(size))
        block.add_known(labels.before)
        block.add(said)
        block.add_known(labels.after)
        for sample in samples:
            block.add(sample)
    return block.finish()


@lru_cache(1024)
def _write_name(name: str) -> bytes:
    return write_label("__name__", name)
