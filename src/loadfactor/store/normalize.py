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

from loadfactor.base.errors import SourceError
from loadfactor.base.units import MS_PER_HOUR
from loadfactor.store.manifest import LONGEST_REACH_MS, LONGEST_STEP_MS, SampleFacts
from loadfactor.store.step_votes import count_votes
from loadfactor.tables.columns import arrow_type
from loadfactor.tables.schema import MEASUREMENTS, REACH_STEPS, SAMPLES, measured_bit

_MEASURED: Final = {name: arrow_type(SAMPLES.column(name).kind) for name in MEASUREMENTS}

ON_DISK: Final = pa.schema(
    {
        "device_id": pa.dictionary(pa.int32(), pa.string()),
        "hour_utc": pa.int64(),  # the hour the row lies in
        "to_utc": pa.int64(),  # end of the row: the end of its hour, or the instant the sample was taken
        "late_ms": pa.int64(),  # from there to the instant the sample was taken
        "reach_ms": pa.int64(),  # from the start, as given, or from the previous sample, to that instant; null: neither is known
        "given": pa.bool_(),  # whether the start was given
        "step_ms": pa.int64(),  # nominal step, as the importer stated it
        "lone_step_ms": pa.int64(),  # what the source usually does, for want of anything better
        "measured_mask": pa.int64(),
        **_MEASURED,
        "source": pa.dictionary(pa.int32(), pa.string()),
        "import_no": pa.int32(),  # the import that brought it; null: several imports speak of this sample
    }
)
"""Columns of a file of samples. Rows are in order of device_id, then of the sample's instant, its source, and to_utc."""

AS_TAKEN: Final = pa.schema(
    {
        "device_id": pa.dictionary(pa.int32(), pa.string()),
        "source": pa.dictionary(pa.int32(), pa.string()),
        "began_utc": pa.int64(),
        "sampled_utc": pa.int64(),
        "step_ms": pa.int64(),
        "lone_step_ms": pa.int64(),
        "measured_mask": pa.int64(),
        **_MEASURED,
        "import_no": pa.int32(),
        "seq": pa.int64(),  # number of the row within its import
    }
)
"""Columns of samples as they were taken, before they are sorted, merged and cut."""


Series = tuple[str, str]
"""A device and a source."""
Numbers = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]

_UNKNOWN: Final = -1
_MOVED: Final = ("step_ms", "lone_step_ms", "measured_mask", *MEASUREMENTS, "import_no")
"""Columns that a row of a file has as its sample has them."""


@dataclass(frozen=True)
class Normalized:
    """The rows of a file, and what the store notes of them."""

    rows: pa.Table  # ON_DISK
    met: pa.Table | None  # AS_TAKEN: what each import says of the samples that several speak of
    facts: SampleFacts
    from_ms: int  # the widest that the samples may reach
    to_ms: int
    last: dict[Series, int]  # the last instant of each series
    merged: int  # rows of one import that went into another row of it
    replaced: int  # of these, how many reported something else than the later row


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


def normalize(taken: pa.Table, before: Mapping[Series, int], refuse: bool) -> Normalized:
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
    return Normalized(rows, met, facts, int(begin.min()), facts.last_taken_ms, last, merged, replaced)


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


_REPORTED: Final = ("began_utc", *MEASUREMENTS)
"""Columns in which two rows of one import can contradict each other."""


class SamplesDifferError(SourceError):
    """Two rows of one import say different things of one device, source and instant. `seqs` are their numbers in the import."""

    def __init__(self, seqs: tuple[int, int], column: str, rows: pa.Table) -> None:
        self.seqs, self.column = seqs, column
        self.device, self.source = rows["device_id"][0].as_py(), rows["source"][0].as_py()
        self.sampled_ms: int = rows["sampled_utc"][0].as_py()
        self.values = tuple(rows[column].to_pylist())
        super().__init__(
            f"two samples of device {self.device!r} at the same time differ in {column}"
            f" ({self.values[0]} and {self.values[1]}): rows {seqs[0] + 1} and {seqs[1] + 1} of the import; keep one of them"
        )


@dataclass(frozen=True)
class Folded:
    """Rows with one for each sample. Where several imports speak of one, `met` has what each of them says."""

    rows: pa.Table  # AS_TAKEN; import_no is null where several imports speak of the sample
    met: pa.Table | None
    merged: int  # rows of one import that went into another row of it
    replaced: int  # of these, how many reported something else than the later row


def fold_rows(rows: pa.Table, sample: Numbers, refuse: bool) -> Folded:
    """One row for each sample, column by column the value of the latest row that has one: of one import, then over imports.

    `rows` is AS_TAKEN in order of `sample` (a number for each row: the same for the same device, source and instant), of
    import_no and of seq. With `refuse`, rows of one import that differ in a column both have raise SamplesDifferError.
    """
    # A column of whole numbers, -1 where it is null.
    filled: Numbers = pc.fill_null(rows["import_no"].cast(pa.int64()), -1).to_numpy()
    imported = filled
    starts = np.flatnonzero(np.append(True, (sample[1:] != sample[:-1]) | (imported[1:] != imported[:-1])))
    merged = replaced = 0
    if len(starts) < rows.num_rows:
        replaced = _count_differing(rows, starts, refuse)
        merged = rows.num_rows - len(starts)
        rows, sample = _fold(rows, starts), sample[starts]
    starts = np.flatnonzero(np.append(True, sample[1:] != sample[:-1]))
    if len(starts) == rows.num_rows:
        return Folded(rows, None, merged, replaced)
    sizes = np.diff(np.append(starts, rows.num_rows))
    met = rows.filter(pa.array(np.repeat(sizes > 1, sizes)))
    rows = _fold(rows, starts)
    of_one = pc.if_else(pa.array(sizes > 1), pa.scalar(None, pa.int32()), rows["import_no"])
    return Folded(rows.set_column(AS_TAKEN.get_field_index("import_no"), "import_no", of_one), met, merged, replaced)


def _fold(rows: pa.Table, starts: Numbers) -> pa.Table:
    numbers = np.arange(rows.num_rows)
    columns = {}
    for name in AS_TAKEN.names:
        column = rows[name]
        if name == "measured_mask":
            columns[name] = pa.array(np.bitwise_or.reduceat(column.to_numpy(), starts))
            continue
        valid = np.asarray(column.is_valid())
        last = np.maximum.reduceat(np.where(valid, numbers, -1), starts)
        columns[name] = column.take(pa.array(last, mask=last < 0))
    return pa.table(columns, schema=AS_TAKEN)


def _count_differing(rows: pa.Table, starts: Numbers, refuse: bool) -> int:
    """How many rows differ from another of their group in a column both have. With `refuse` they raise SamplesDifferError."""
    ends = np.append(starts[1:], rows.num_rows)
    differ = np.zeros(len(starts), dtype=np.bool_)
    for name in _REPORTED:
        if rows[name].null_count == rows.num_rows:
            continue
        values = rows[name].combine_chunks()
        big = np.inf if pa.types.is_floating(values.type) else np.iinfo(np.int64).max
        low = np.minimum.reduceat(pc.fill_null(values, big).to_numpy(zero_copy_only=False), starts)
        high = np.maximum.reduceat(pc.fill_null(values, -big).to_numpy(zero_copy_only=False), starts)
        wrong = low < high
        if refuse and wrong.any():
            group = int(wrong.argmax())
            raise _differ(rows.slice(starts[group], ends[group] - starts[group]), name)
        differ |= wrong
    return int((ends - starts - 1)[differ].sum())


def _differ(group: pa.Table, column: str) -> SamplesDifferError:
    """The error of a group of rows: it names the first row that has the column, and the first that contradicts it."""
    reported = group.filter(pc.is_valid(group[column]))
    other = pc.index(pc.not_equal(reported[column], reported[column][0]), value=True).as_py()
    pair = reported.take([0, other])
    first, second = pair["seq"].to_pylist()
    return SamplesDifferError((first, second), column, pair)
