"""What is remembered of the GPUs of a source, as tables and back."""

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from loadfactor.base.units import MS_PER_DAY
from loadfactor.sources.gpu_scrapes.device_events import TOLD
from loadfactor.sources.gpu_scrapes.fields import TOTALS
from loadfactor.sources.gpu_scrapes.holders import OpenSpan
from loadfactor.sources.gpu_scrapes.table_rows import GpuFacts
from loadfactor.sources.prometheus.gpu_source import GpuSource
from loadfactor.sources.prometheus.running_steps import GAPS

FORGET_AFTER_MS: Final = 7 * MS_PER_DAY
"""A GPU not seen for so long, beside the newest of its source, is a new one when it comes again."""

_INT: Final = pa.int64()
GPUS: Final = pa.schema(
    {
        "source": pa.string(),
        "gpu": pa.string(),
        "node": pa.string(),
        "model": pa.string(),
        "seen_ms": _INT,  # its devices, through when
        "devices": pa.list_(pa.string()),
        "shares": pa.list_(pa.float64()),
        "from_ms": pa.list_(_INT),
        "last_ms": _INT,
        "gaps_ms": pa.list_(_INT, GAPS),
        "told": pa.list_(_INT, len(TOLD)),
        "index": _INT,  # missing in states that earlier versions wrote
    }
)
PLACES: Final = pa.schema(
    {
        "source": pa.string(),
        "gpu": pa.string(),
        "instance": pa.string(),
        "at_ms": pa.list_(_INT, len(TOTALS)),
        "total": pa.list_(pa.float64(), len(TOTALS)),
        "holders": pa.list_(pa.string()),
        "from_ms": _INT,
        "to_ms": _INT,
    }
)


def list_gpus(source: GpuSource) -> pa.Table:
    """The GPUs that were seen not long ago."""
    kept, last_ms = _find_recent(source), source.steps.last_ms
    numbers = kept.tolist()
    facts = [source.rows.gpus[number] for number in numbers]
    spans = [gpu.history.open for gpu in facts]
    source.events.last.grow(len(source.known.gpus))
    columns = [
        [source.name] * len(numbers),
        [source.known.gpus.all[number] for number in numbers],
        [gpu.node for gpu in facts],
        [gpu.model for gpu in facts],
        [gpu.history.to_ms for gpu in facts],
        [list(span) for span in spans],
        [[share for share, _ in span.values()] for span in spans],
        [[from_ms for _, from_ms in span.values()] for span in spans],
        last_ms[kept],
        pa.FixedSizeListArray.from_arrays(pa.array(source.steps.gaps_ms[kept].ravel()), GAPS),
        pa.FixedSizeListArray.from_arrays(pa.array(source.events.last.values[kept].ravel()), len(TOLD)),
        [gpu.index for gpu in facts],
    ]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, GPUS, strict=True)], schema=GPUS)


def list_places(source: GpuSource) -> pa.Table:
    """Their parts of which totals or holders are known."""
    known, rates, open_ = source.known, source.rows.rates, source.rows.holders.open
    rates.grow(len(known.places))
    recent = set(_find_recent(source).tolist())
    counted = set(np.flatnonzero((rates.at_ms >= 0).any(axis=1)).tolist())
    numbers = [n for n in range(len(known.places)) if (n in counted or n in open_) and known.places.all[n][0] in recent]
    places = [known.places.all[number] for number in numbers]
    spans = [open_.get(number) for number in numbers]
    size = len(TOTALS)
    columns = [
        [source.name] * len(numbers),
        [known.gpus.all[gpu] for gpu, _, _ in places],
        [instance for _, instance, _ in places],
        pa.FixedSizeListArray.from_arrays(pa.array(rates.at_ms[numbers].ravel(), _INT), size),
        pa.FixedSizeListArray.from_arrays(pa.array(rates.total[numbers].ravel(), pa.float64()), size),
        [span.holders if span else () for span in spans],
        [span.from_ms if span else None for span in spans],
        [span.to_ms if span else None for span in spans],
    ]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, PLACES, strict=True)], schema=PLACES)


def restore_gpus(source: GpuSource, gpus: pa.Table) -> None:
    """Remembers the GPUs of `list_gpus`, in a source that knows none."""
    source.steps.grow(gpus.num_rows)
    source.events.last.grow(gpus.num_rows)
    for row in gpus.to_pylist():
        number = source.known.gpus.number(row["gpu"])
        facts = source.rows.gpus[number] = GpuFacts()
        facts.read_labels(row["node"], row["model"], row.get("index"))
        spans = zip(row["devices"], row["shares"], row["from_ms"], strict=True)
        facts.history.open = {device: (share, from_ms) for device, share, from_ms in spans}
        facts.history.to_ms = row["seen_ms"]
        source.steps.last_ms[number], source.steps.gaps_ms[number] = row["last_ms"], row["gaps_ms"]
        source.events.last.values[number] = row["told"]


def restore_places(source: GpuSource, places: pa.Table) -> None:
    """Remembers the parts of `list_places`, whose GPUs are known."""
    rates = source.rows.rates
    rates.grow(places.num_rows)
    for row in places.to_pylist():
        number = source.known.places.number((source.known.gpus.number(row["gpu"]), row["instance"], True))
        rates.at_ms[number], rates.total[number] = row["at_ms"], row["total"]
        if row["holders"]:
            source.rows.holders.changed.add(number)
            source.rows.holders.open[number] = OpenSpan(tuple(row["holders"]), row["from_ms"], row["to_ms"])


def _find_recent(source: GpuSource) -> NDArray[np.int64]:
    """The GPUs that were seen not long ago, by number."""
    last_ms = source.steps.last_ms[: len(source.known.gpus)]
    return np.flatnonzero((last_ms >= 0) & (last_ms >= last_ms.max(initial=0) - FORGET_AFTER_MS))
