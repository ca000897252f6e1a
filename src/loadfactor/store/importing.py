"""Importing files into a store: every row of them or, on any error, none; and which spans of the ledger they touch."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from itertools import chain
from pathlib import Path
from time import time
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from loadfactor.base.errors import InputError, SourceError
from loadfactor.base.paths import DIGEST_DIGITS
from loadfactor.base.spelling import spell_out_bytes
from loadfactor.base.units import MS_PER_S
from loadfactor.sources.base import DeviceEvent, Gap, ReadOptions, Rows, Source
from loadfactor.sources.parsing.text_blocks import strip_rotation
from loadfactor.store import disk, small_imports
from loadfactor.store.charge_imports import add_charges
from loadfactor.store.import_records import ImportRecord, add_records, list_imports
from loadfactor.store.live_database import QUARANTINE
from loadfactor.store.manifest import find_moved_ends
from loadfactor.store.normalize import SamplesDifferError
from loadfactor.store.run_names import NamedRun, find_run, name_held
from loadfactor.store.sample_files import quote, quote_all, read
from loadfactor.store.sample_imports import add_samples
from loadfactor.store.small_imports import add_small_table, find_next_rows
from loadfactor.store.staged_import import StagedImport
from loadfactor.store.writer import Writer
from loadfactor.tables.charges import CHARGES
from loadfactor.tables.schema import SAMPLES, Span, table

Progress = Callable[[str, float], None]
"""Told what is being done and which share of it is behind us."""

_EPOCH: Final = date(1970, 1, 1).toordinal()
OWN_TABLES: Final = "tables"
"""The source of rows that somebody wrote: contradictions in them are refused. In logs the later row counts, which is reported."""


@dataclass(frozen=True)
class Receipt:
    """Result of an import. `already` is true when exactly these files were in the books before: then nothing was added.

    `replaced`: the imports whose place it took, of the same logs when they were shorter.
    """

    source: str
    rows: dict[str, int]
    gaps: tuple[Gap, ...]
    already: bool = False
    number: int | None = None
    replaced: tuple[int, ...] = ()


def import_files(
    writer: Writer, source: Source, paths: tuple[Path, ...], options: ReadOptions, progress: Progress
) -> Receipt:
    """Import files through a source: every row, or, on any error, none. Files already imported add nothing."""
    files = source.files(paths)
    digest = digest_files(source, files, options)
    for record in list_imports(writer, f"digest = {quote(digest)}"):
        return Receipt(
            source.name, record.rows, tuple(Gap(*g) for g in record.gaps), already=True, number=record.number
        )
    options = replace(options, events_before=_list_events(writer))
    run = None if options.held_by is None else find_run(writer, options.held_by)
    options = options if run is None else replace(options, held_by=run.job)
    items = chain(_give_holder(writer, source.read(files, options), run), _flat_price(options))
    receipt = import_rows(writer, source, items, options, digest, files, progress)
    if not receipt.rows:
        raise SourceError(
            f"{paths[0]}: nothing to import in it" + (f" ({receipt.gaps[0].what})" if receipt.gaps else "")
        )
    return receipt


def import_rows(
    writer: Writer,
    source: Source,
    items: Iterable[Rows | Gap],
    options: ReadOptions,
    digest: str,
    files: Iterable[Path],
    progress: Progress,
    has_source_times: bool = True,
) -> Receipt:
    """Add rows to the books as one import with a record of it; nothing is added where there are no rows.

    `has_source_times`: False for rows that this machine's clock stamped.
    """
    number = writer.manifest.last_import + 1
    writer.has_source_times = has_source_times
    origin = Origin(source.name, source.default_step_s, source.watches)
    receipt = add_rows(writer, origin, items, options, number, progress)
    if not receipt.rows:
        return receipt
    stated = tuple((g.where, g.what, g.count) for g in receipt.gaps)
    names = tuple(spell_out_bytes(str(file)) for file in files)
    record = ImportRecord(
        number, digest, source.name, names, receipt.rows, stated, options.held_by, int(time() * MS_PER_S)
    )
    add_records(writer, [record])
    losses = (replace(loss, digests=tuple(d for d in loss.digests if d != digest)) for loss in writer.manifest.losses)
    kept = tuple(
        after for loss, after in zip(writer.manifest.losses, losses, strict=True) if after.digests or loss == after
    )
    writer.manifest = replace(writer.manifest, losses=kept)
    return receipt


class Origin(NamedTuple):
    """Where rows come from: the name, the step of a series with a single sample, and whether devices end where its files do."""

    name: str
    lone_step_s: float | None
    watches: bool


def add_rows(
    writer: Writer,
    source: Origin,
    items: Iterable[Rows | Gap],
    options: ReadOptions,
    number: int,
    progress: Progress,
    live: bool = False,
) -> Receipt:
    """Add rows to the books as rows of an import, a new one or one there is. The caller keeps the record of it.

    `live` rows were acknowledged before: what contradicts the books is left out and reported, and does not refuse the others.
    So are measurements that cannot be true, of these and of what exporters and logs say.
    """
    before = writer.span()
    known = find_next_rows(writer, number) if number <= writer.manifest.last_import else {}
    steps, leaves_out = (options.step_s, source.lone_step_s), source.watches or live
    with StagedImport(
        writer.work / "import", source.name, *steps, number, first_rows=known, leaves_out=leaves_out
    ) as staging:
        for item in items:
            staging.take(writer.entry.change_item(item))
            progress(f"reading {sum(staging.rows.values()):,} rows", 0.0)
        if staging.rows:
            _add(writer, source, staging, options, number, progress, live)
        if "allocations" in staging.rows:
            name_held(writer)
        gaps = tuple(Gap(where, what, count) for (where, what), count in staging.gaps.items())
        if not staging.rows:
            return Receipt(source.name, {}, gaps)
    writer.manifest = replace(writer.manifest, last_import=max(number, writer.manifest.last_import))
    writer.mark_stale(find_moved_ends(before, writer.span()))
    return Receipt(source.name, dict(staging.rows), gaps, number=number)


def _list_events(writer: Writer) -> tuple[DeviceEvent, ...]:
    """The errors and resets that the books know of: a log that repeats them tells nothing new."""
    stored = writer.manifest.of("device_events")
    if not stored:
        return ()
    rows = writer.raw.execute(
        f"SELECT at_utc, device_id, kind, coalesce(detail, ''), count::BIGINT FROM {read(writer.paths(stored))}"
        " WHERE kind IN ('xid', 'ecc', 'reset')"
    ).fetchall()
    return tuple(DeviceEvent(*row) for row in rows)


def digest_files(source: Source, files: Iterable[Path], options: ReadOptions) -> str:
    """Identify an import by the source, how it was stated to read, and the bytes and names of the files.

    A name may say which machine a log is of; the folder a file lies in, a rotation's number and .gz say nothing.
    """
    of_run = {name: getattr(options, name) for name in ("begun_ms", "gpus", "region", "instance_type")}
    more = [
        options.currency,
        *(None if reported is None else f"{name}={reported}" for name, reported in of_run.items()),
    ]
    stated = " ".join([source.name, str(options), *(reported for reported in more if reported is not None)])
    total = hashlib.sha256(stated.encode())
    for name, path in sorted((strip_rotation(f.name), f) for f in files):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        total.update(f"{name} {content}".encode(errors="surrogateescape"))
    return total.hexdigest()


def _add(
    writer: Writer,
    source: Origin,
    staging: StagedImport,
    options: ReadOptions,
    number: int,
    progress: Progress,
    live: bool,
) -> None:
    refuse = source.name == OWN_TABLES
    small = staging.finish()
    if "allocations" in small:
        _check_holder(writer, small["allocations"], options.held_by)
    for done, (name, path) in enumerate(sorted(small.items())):
        progress(f"merging {name}", done / (len(small) + 1))
        if name == CHARGES.name:
            for gap in add_charges(writer, path, number, staging.list_files(name)):
                staging.take(gap)
            continue
        watched = (source.watches and name in small_imports.WATCHED) or name in staging.inferred
        lists = live and not source.watches
        for gap in add_small_table(writer, table(name), path, number, watched, refuse, staging.name_row, live, lists):
            staging.take(gap)
    if not staging.rows.get("samples"):
        return
    rows, done_rows = staging.rows["samples"], 0
    dropped: dict[int, int] = {}

    def watch() -> Iterator[tuple[int, pa.Table]]:
        nonlocal done_rows
        for day, cell in staging.cells():
            progress("writing samples", done_rows / rows)
            done_rows += cell.num_rows
            if writer.manifest.dropped.lacks_samples(day):
                dropped[day] = dropped.get(day, 0) + cell.num_rows
                if live:
                    _set_late_aside(writer, day, cell)
                continue
            yield day, cell
            del cell  # or it is in memory beside the next one

    try:
        merged, replaced = add_samples(writer, watch(), number, refuse)
    except SamplesDifferError as error:
        first, second = (staging.name_row("samples", seq) for seq in error.seqs)
        raise SourceError(
            f"{first} and {second} are one sample (device, source and time are the same) and differ in {error.column};"
            " keep one of them"
        ) from error
    if dropped:
        staging.leave_out("samples", _say_late(dropped, live), sum(dropped.values()))
        if not live and not staging.rows.get("samples"):
            raise SourceError(
                f"{_say_late(dropped, live)}, and there are no others in it; ask a backup of these days, or import it into another"
                " store (--store)"
            )
    if replaced:
        staging.take(Gap("samples", "two samples of one GPU at the same time: the later one counts", replaced))
    if merged - replaced:
        staging.take(
            Gap("samples", "rows of one sample that agree or complete each other: one sample", merged - replaced)
        )


def _say_late(days: Iterable[int], is_aside: bool) -> str:
    first, *_, last = (f"{date.fromordinal(_EPOCH + day)}" for day in sorted([*days, *days]))
    of = f"of {first}" if first == last else f"of days from {first} to {last}"
    kept = f", kept in {QUARANTINE}/ of the store" if is_aside else ""
    return f"samples {of} are late: those of that time were dropped ([retention] samples) and its ledger stays as it is{kept}"


def _set_late_aside(writer: Writer, day: int, rows: pa.Table) -> None:
    """Keep samples that were acknowledged in a file of their own, in the form in which `import tables` reads them."""
    columns = {"began_utc": "from_utc", "sampled_utc": "to_utc"}
    there = [name for name in rows.column_names if name in (*columns, *SAMPLES.schema.names)]
    taken = rows.select(there).rename_columns([columns.get(name, name) for name in there])
    sink = pa.BufferOutputStream()
    pq.write_table(taken, sink)
    content = sink.getvalue().to_pybytes()
    path = (
        writer.folder
        / QUARANTINE
        / f"late-{date.fromordinal(_EPOCH + day)}-{hashlib.sha256(content).hexdigest()[:DIGEST_DIGITS]}"
        / "samples.parquet"
    )
    disk.make_folder(path.parent)
    disk.write_file(path, content)
    disk.sync_folder(path.parent)


def _check_holder(writer: Writer, staged: Path, held_by: str | None) -> None:
    """Refuse a job reported to hold the GPUs of a log that another job was reported to hold, in the same way, at the same time."""
    if held_by is None:
        return
    stored, before = writer.paths(writer.manifest.of("allocations")), _list_other_jobs(writer, held_by)
    if not stored or not before:
        return
    found = writer.fetch_one(small_imports.held_otherwise(read([staged]), stored, before))
    if found:
        raise InputError(
            f"{found[0]} was imported as held by {found[1]!r} at a time for which --job says {held_by!r};"
            " a second holder would halve the first one's cost: name the same job, or use another store"
        )


def _list_other_jobs(writer: Writer, held_by: str) -> list[str]:
    """The jobs that earlier imports say to have held the GPUs of their logs."""
    return sorted({r.held_by for r in list_imports(writer, f"held_by <> {quote(held_by)}") if r.held_by})


def _give_holder(writer: Writer, items: Iterator[Rows | Gap], run: NamedRun | None) -> Iterator[Rows | Gap]:
    """Pass on what a source reads and, where the caller says who held the GPUs, add an allocation for each while it was seen."""
    if run is None:
        yield from items
        return
    first_ms: dict[str, int] = {}
    for item in items:
        yield item
        if isinstance(item, Rows) and item.table == "samples":
            found = item.data.select(["device_id", "to_utc"]).group_by("device_id").aggregate([("to_utc", "min")])
            for device, at_ms in zip(*(found[c].to_pylist() for c in ("device_id", "to_utc_min")), strict=True):
                first_ms[device] = min(at_ms, first_ms.get(device, at_ms))
        elif isinstance(item, Rows) and item.table == "devices":
            held = item.data.select(["device_id", "from_utc", "to_utc"])
            cut = _cut_edges(writer, run, held.to_pylist(), first_ms)
            yield Rows("allocations", pa.Table.from_pylist(list(cut), table("allocations").schema), item.where)


def _cut_edges(
    writer: Writer, run: NamedRun, held: list[dict[str, Any]], first_ms: Mapping[str, int]
) -> Iterator[dict[str, Any]]:
    """Allocations of GPUs seen in a log, without what reaches into the log of another job by no more than a step.

    The interval of a first sample begins a step before it: that may be after the last sample of a log that ends just before, or
    before the last sample of this log where the other one follows. `first_ms`: the first sample of each GPU.
    """
    stored, before = writer.paths(writer.manifest.of("allocations")), _list_other_jobs(writer, run.job)
    others: dict[str, list[Span]] = {}
    if stored and before:
        sql = f"SELECT device_id, from_utc, to_utc FROM {read(stored)} WHERE job_id IN ({quote_all(before)}) AND to_utc > from_utc"
        for device, since, until in writer.raw.execute(sql).fetchall():
            others.setdefault(device, []).append((since, until))
    for row in held:
        from_ms, to_ms, first = row["from_utc"], row["to_utc"], first_ms.get(row["device_id"])
        if first is not None and from_ms is not None and to_ms is not None:
            step_ms = first - from_ms
            for since, until in others.get(row["device_id"], ()):
                if from_ms < until <= first:
                    from_ms = until
                elif to_ms - step_ms <= since < to_ms:
                    to_ms = since
        of = {"job_id": run.job, "experiment_id": run.experiment, "user": run.user}
        yield {**row, **of, "from_utc": from_ms, "to_utc": to_ms}


def _flat_price(options: ReadOptions) -> Iterator[Rows]:
    """The one price the caller pays for every GPU, as a row of the price list."""
    if options.price_per_gpu_hour is not None:
        row = {
            "basis": "contracted",
            "price_per_gpu_hour": options.price_per_gpu_hour,
            "source": "a flat price given on import",
        }
        yield Rows("prices", pa.Table.from_pylist([row]))
