"""Samples as taken, of one day and device range, into rows of a file: sorted, merged, with their gaps, cut at the hours.

What interval a sample covers is not decided here: a row keeps the gap to the previous sample of its device and source and lies in
every hour that the sample may reach into (`sample_layout`). All is decided in a few integer columns; the measurements are moved at
most once, and not at all where they lie in order.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.base.units import MS_PER_HOUR
from loadfactor.store.same_instant import fold_rows
from loadfactor.store.sample_columns import AS_TAKEN, ON_DISK
from loadfactor.store.sample_layout import LONGEST_REACH_MS, LONGEST_STEP_MS, SampleFacts
from loadfactor.store.step_votes import count_votes
from loadfactor.tables.schema import MEASUREMENTS, REACH_STEPS, measured_bit

Series = tuple[str, str]
"""A device and a source."""
Numbers = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]

_UNKNOWN: Final = -1
_MOVED: Final = ("step_ms", "lone_step_ms", "measured_mask", *MEASUREMENTS, "import_no")
"""Columns that a row of a file has as its sample has them."""


@dataclass(frozen=True)
class Settled:
    """The rows of a file, and what the store notes of them."""

    rows: pa.Table  # ON_DISK
    met: pa.Table | None  # AS_TAKEN: what each import says of the samples that several speak of
    facts: SampleFacts
    from_ms: int  # the widest that the samples may reach
    to_ms: int
    last: dict[Series, int]  # the last instant of each series
    merged: int  # rows of one import that went into another row of it
    replaced: int  # of these, how many said something else than the later row


@dataclass(frozen=True)
class _Samples:
    """Samples in order of device, source and instant: numbers of device and series, and where each one lies in the table."""

    rows: pa.Table
    order: Numbers | None  # positions in `rows`; None: it lies in order itself
    device: Codes
    series: Codes
    at: Numbers
    devices: pa.Array  # names, in order
    names: list[Series]  # device and source of each series


def settle(taken: pa.Table, before: Mapping[Series, int], refuse: bool) -> Settled:
    """The rows of a file and what the store notes of them, from samples of one UTC day and device range in any order.

    `taken` is AS_TAKEN with at least one row; of several rows of one sample the latest import's values count, column by column, and
    within an import the latest row's. `before` has the last instant of a series before these, where it is known and near; null
    gaps come out where it is not. With `refuse`, rows of one import that contradict each other raise SamplesDifferError.
    """
    samples, met, merged, replaced = _arrange(_drop_nan(taken.unify_dictionaries().combine_chunks()), refuse)
    at, first = samples.at, np.append(True, samples.series[1:] != samples.series[:-1])
    began = _pick(samples, "began_utc")
    given = began != _UNKNOWN
    gap = np.empty_like(at)
    gap[1:] = at[1:] - at[:-1]
    known_before = [before.get(name, None) for name in samples.names]
    gap[first] = [
        _UNKNOWN if last is None or last >= now else now - last
        for last, now in zip(known_before, at[first].tolist(), strict=True)
    ]
    longest = np.maximum(np.maximum(_pick(samples, "step_ms"), _pick(samples, "lone_step_ms")), LONGEST_STEP_MS)
    gap[first & (gap > REACH_STEPS * longest)] = _UNKNOWN  # as for who looks no further back than samples reach
    counted = ~given & (gap != _UNKNOWN)
    votes = count_votes(samples.series[counted], gap[counted], samples.names) if counted.any() else ()
    reach = np.where(given, at - began, gap)
    begin = at - np.where(given | ((gap != _UNKNOWN) & (gap <= REACH_STEPS * longest)), reach, longest)
    lasts = np.append(np.flatnonzero(first)[1:], len(at)) - 1
    by_time = _sort_by_time(samples)
    overlaps = _overlap(samples.device, begin, at, by_time)
    # and with what lies before: samples further away than that are not known of
    overlaps |= bool(np.any(given & ((reach > LONGEST_REACH_MS) | (first & (gap != _UNKNOWN) & (reach > gap)))))
    rows = _cut(samples, by_time, begin, reach, given)
    facts = SampleFacts(
        measured=int(np.bitwise_or.reduce(rows["measured_mask"].to_numpy())),
        sources=tuple(sorted({source for _, source in samples.names})),
        first_device=samples.devices[0].as_py(),
        last_device=samples.devices[-1].as_py(),
        first_taken_ms=int(at.min()),
        last_taken_ms=int(at.max()),
        given=bool(given.any()),
        overlaps=overlaps,
        votes=votes,
    )
    last = dict(zip(samples.names, at[lasts].tolist(), strict=True))
    return Settled(rows, met, facts, int(begin.min()), facts.last_taken_ms, last, merged, replaced)


def _arrange(rows: pa.Table, refuse: bool) -> tuple[_Samples, pa.Table | None, int, int]:
    """Samples in order, one row each; what imports say of those that several speak of; and how many rows were merged, replaced."""
    device, devices = _rank(rows["device_id"].chunk(0))
    source, sources = _rank(rows["source"].chunk(0))
    at = rows["sampled_utc"].to_numpy()
    earliest, bits = int(at.min()), int(at.max() - at.min()).bit_length()
    of_source = len(sources)
    key = (device.astype(np.int64) * of_source + source) << bits | (at - earliest)
    met, merged, replaced, order = None, 0, 0, None
    if not np.all(key[1:] > key[:-1]):
        order = np.argsort(key, kind="stable")
        key = key[order]
        again = key[1:] == key[:-1]
        if again.any():
            several = np.append(again, False) | np.append(False, again)
            rows_of, same = order[several], key[several]
            imported = pc.fill_null(rows["import_no"], _UNKNOWN).to_numpy()[rows_of]
            seq = pc.fill_null(rows["seq"], _UNKNOWN).to_numpy()[rows_of]
            rows_of = rows_of[np.lexsort((seq, imported, same))]
            folded = fold_rows(rows.take(pa.array(rows_of)), same, refuse)
            met, merged, replaced = folded.met, folded.merged, folded.replaced
            added = np.arange(rows.num_rows, rows.num_rows + folded.rows.num_rows)
            key = np.append(key[~several], np.unique(same))
            order = np.append(order[~several], added)
            rows = pa.concat_tables([rows, folded.rows]).combine_chunks()
            back = np.argsort(key, kind="stable")
            key, order = key[back], order[back]
    series = key >> bits
    first = np.append(True, series[1:] != series[:-1])
    present = series[first]
    names = list(
        zip(
            devices.take(pa.array(present // of_source)).to_pylist(),
            sources.take(pa.array(present % of_source)).to_pylist(),
            strict=True,
        )
    )
    at = (key & ((1 << bits) - 1)) + earliest
    device, numbers = (series // of_source).astype(np.int32), np.cumsum(first, dtype=np.int32) - np.int32(1)
    return _Samples(rows, order, device, numbers, at, devices, names), met, merged, replaced


def _rank(column: pa.DictionaryArray) -> tuple[Codes, pa.Array]:
    """Numbers for the texts of a column, in the order of the texts, and the texts that occur in it, in order."""
    numbers = column.indices.to_numpy()
    occurs = np.zeros(len(column.dictionary), dtype=np.bool_)
    occurs[numbers] = True
    order = np.asarray(pc.array_sort_indices(column.dictionary))
    order = order[occurs[order]]
    rank = np.empty(len(occurs), dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return rank[numbers], column.dictionary.take(pa.array(order))


def _pick(samples: _Samples, name: str) -> Numbers:
    """A column of whole numbers in the order of the samples, `_UNKNOWN` where it is null."""
    column = samples.rows[name]
    if column.null_count == samples.rows.num_rows:
        return np.full(len(samples.at), _UNKNOWN)
    filled: Numbers = pc.fill_null(column, _UNKNOWN).to_numpy()
    return filled if samples.order is None else filled[samples.order]


def _sort_by_time(samples: _Samples) -> Numbers | None:
    """The order of a file: of a device by instant, then by source. None where the samples have it already."""
    if len(samples.names) == len(samples.devices):
        return None
    at = samples.at - samples.at.min()
    return np.argsort(samples.device.astype(np.int64) << int(at.max()).bit_length() | at, kind="stable")


def _overlap(device: Codes, begin: Numbers, at: Numbers, by_time: Numbers | None) -> bool:
    """Whether a sample of a device may begin before an earlier one of it was taken."""
    if by_time is not None:
        device, begin, at = device[by_time], begin[by_time], at[by_time]
    return bool(np.any((device[1:] == device[:-1]) & (begin[1:] < at[:-1])))


def _cut(samples: _Samples, by_time: Numbers | None, begin: Numbers, reach: Numbers, given: Flags) -> pa.Table:
    """The rows of the file: each sample once for every hour it may reach into."""
    at = samples.at
    last_hour = (at - 1) // MS_PER_HOUR
    first_hour = np.minimum(begin // MS_PER_HOUR, last_hour)
    pieces = last_hour - first_hour + 1
    if by_time is not None:
        pieces = pieces[by_time]
    chosen = by_time
    hour = last_hour
    if pieces.max() > 1:
        nth = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        chosen = np.repeat(np.arange(len(at)) if by_time is None else by_time, pieces)
        hour = first_hour[chosen] + nth
    elif by_time is not None:
        hour = last_hour[by_time]
    device = samples.device
    if chosen is not None:
        at, reach, given, device = at[chosen], reach[chosen], given[chosen], device[chosen]
    order = samples.order
    if chosen is not None:
        order = chosen if order is None else order[chosen]
    end = np.minimum(at, (hour + 1) * MS_PER_HOUR)
    columns = {
        "device_id": pa.DictionaryArray.from_arrays(pa.array(device), samples.devices),
        "hour_utc": pa.array(hour * MS_PER_HOUR),
        "to_utc": pa.array(end),
        "late_ms": pa.array(at - end),
        "reach_ms": pa.array(reach, mask=None if (known := reach != _UNKNOWN).all() else ~known),
        "given": pa.array(given),
    }
    take = None if order is None else pa.array(order)
    for name in (*_MOVED, "source"):
        columns[name] = _move(samples.rows[name], take)
    return pa.table(columns, schema=ON_DISK)


def _move(column: pa.ChunkedArray, take: pa.Array | None) -> pa.ChunkedArray:
    if take is None:
        return column
    if column.null_count == len(column):
        return pa.chunked_array([pa.nulls(len(take), column.type)])
    return pc.take(column.chunk(0), take, boundscheck=False)


def _drop_nan(rows: pa.Table) -> pa.Table:
    """NaN is a number that was not measured: null, as everywhere, and no bit in the mask."""
    for name in MEASUREMENTS:
        column = rows[name]
        if not pa.types.is_floating(column.type) or not pc.any(pc.is_nan(column)).as_py():
            continue
        wrong = pc.fill_null(pc.is_nan(column), False)
        kept = pc.if_else(wrong, pa.scalar(None, column.type), column)
        mask = pc.if_else(wrong, pc.bit_wise_and(rows["measured_mask"], ~measured_bit(name)), rows["measured_mask"])
        rows = rows.set_column(AS_TAKEN.get_field_index(name), name, kept)
        rows = rows.set_column(AS_TAKEN.get_field_index("measured_mask"), "measured_mask", mask)
    return rows.combine_chunks()
