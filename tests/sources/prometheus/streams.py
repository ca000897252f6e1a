"""Streams of bodies for the decoder of Prometheus: points of labelled series, and the rows that come of them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from loadfactor.sources.base import Gap, Rows
from loadfactor.sources.prometheus.decoder import PrometheusDecoder
from loadfactor.sources.prometheus.remote_write import NOT_UNDERSTOOD, Points
from loadfactor.store.row_checks import validate_rows
from loadfactor.tables.schema import table

AT_MS = 1_700_000_000_000
STEP_MS = 30_000
Sample = tuple[Mapping[str, str], int, float]
"""Labels, time and value."""


def series(name: str, gpu: int = 0, **labels: str) -> dict[str, str]:
    """Labels of a series of dcgm-exporter."""
    found = {"__name__": name, "job": "dcgm", "instance": "n1:9400"}
    found |= {"UUID": f"GPU-{gpu}", "gpu": str(gpu), "Hostname": "n1"}
    return {name: value for name, value in {**found, **labels}.items() if value}


def put(decoder: PrometheusDecoder, body: int, samples: Iterable[Sample], arrived_s: float = 0.0) -> None:
    """Puts a body of these samples, as a scanner of requests does."""
    found = [(decoder.identify(labels), at_ms, value) for labels, at_ms, value in samples]
    kept = [one for one in found if one[0] != NOT_UNDERSTOOD]
    columns = list(zip(*kept, strict=True)) or [(), (), ()]
    points = Points(np.array(columns[0], np.int32), np.array(columns[1], np.int64), np.array(columns[2], np.float64))
    decoder.feed(points, body, arrived_s)


@dataclass
class Booked:
    """Rows as the books see them: those of one key merged column by column; the end of what is watched only grows."""

    rows: dict[str, dict[tuple[object, ...], dict[str, object]]] = field(default_factory=lambda: defaultdict(dict))
    gaps: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))

    def take(self, decoder: PrometheusDecoder, ripe_s: float | None = None) -> "Booked":
        return self.add(decoder.drain(ripe_s))

    def add(self, items: Iterable[Rows | Gap]) -> "Booked":
        for item in items:
            if isinstance(item, Gap):
                self.gaps[item.where, item.what] += item.count
                continue
            assert all(f.type == table(item.table).schema.field(f.name).type for f in item.data.schema)
            validate_rows(item, 0)
            for row in item.data.to_pylist():
                key = (item.where, *(row.get(name) for name in table(item.table).key if name != "source"))
                known = {name: value for name, value in row.items() if value is not None}
                self.rows[item.table][key] = {**self.rows[item.table].get(key, {}), **known}
        return self

    def list(self, name: str) -> list[dict[str, object]]:
        return [row for _, row in sorted(self.rows[name].items(), key=lambda one: repr(one[0]))]


def decode(*bodies: Sequence[Sample]) -> Booked:
    """Everything that these bodies say."""
    decoder = PrometheusDecoder()
    for number, body in enumerate(bodies, 1):
        put(decoder, number, body)
    return Booked().take(decoder)
