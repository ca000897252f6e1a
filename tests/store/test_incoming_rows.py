"""Incoming rows: what cannot be true is refused, what is odd is kept, and staging gives back what was taken."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.long import rest_long

from loadfactor.base.errors import SourceError
from loadfactor.base.limits import EARLIEST_MS, LATEST_MS
from loadfactor.books.books import Books
from loadfactor.sources.base import Gap, ReadOptions, Rows, Source
from loadfactor.store import row_checks
from loadfactor.store import staged_import as staged_samples
from loadfactor.store.importing import Receipt, import_files
from loadfactor.store.normalize import AS_TAKEN
from loadfactor.store.row_checks import validate_rows
from loadfactor.store.staged_import import StagedImport
from loadfactor.store.store import Store
from loadfactor.tables.schema import TABLES, measured_bit, table

HOUR, DAY = 3_600_000, 86_400_000
START = 1_767_225_600_000  # 2026-01-01


def rows(table: str, *dicts: dict[str, Any]) -> Rows:
    return Rows(table, pa.Table.from_pylist(list(dicts)), f"{table}.csv")


def add(folder: Path, items: Iterable[Rows]) -> tuple[Books, Receipt]:
    books = Books(folder)
    source = Source("made", lambda _paths: (), lambda _paths, _options: iter(items))
    with books.store.write() as writer:
        return books, import_files(writer, source, (folder,), ReadOptions(), lambda _what, _share: None)


SAMPLE = {"device_id": "g", "from_utc": START, "to_utc": START + HOUR}
HELD = {"job_id": "j", "from_utc": START, "to_utc": START + HOUR}
ASKED = {"job_id": "j", "at_utc": START, "event": "submitted"}
PRICE = {"basis": "list", "currency": "USD"}
REFUSED = [
    ("samples", SAMPLE | {"busy_share": 1.73}, "row 2: samples.busy_share 1.73 is more than the whole"),
    ("samples", SAMPLE | {"busy_share": float("nan")}, "samples.busy_share nan is not a finite number"),
    ("samples", SAMPLE | {"power_w": float("inf")}, "samples.power_w inf is not a finite number"),
    ("samples", SAMPLE | {"power_w": -1.0}, "samples.power_w -1.0 is negative"),
    ("samples", SAMPLE | {"temperature_c": 9999.0}, "samples.temperature_c 9999.0 is more than 200"),
    ("samples", SAMPLE | {"throttle_mask": -1}, "samples.throttle_mask -1 is negative"),
    (
        "samples",
        SAMPLE | {"mem_used_bytes": 2.0, "mem_total_bytes": 1.0},
        "mem_used_bytes 2.0 is more than mem_total_bytes",
    ),
    ("samples", SAMPLE | {"from_utc": START + 2 * HOUR}, "a reversed interval"),
    ("samples", SAMPLE | {"to_utc": 10**15}, "samples.to_utc 1000000000000000 is no instant of the years 2000 to 2100"),
    ("samples", SAMPLE | {"from_utc": 0}, "row 2: samples.from_utc 0 is no instant"),
    ("samples", SAMPLE | {"from_utc": START - 32 * DAY}, "from_utc lies more than 31 days before to_utc"),
    ("devices", {"device_id": "g", "from_utc": EARLIEST_MS - 1}, "is no instant"),
    ("devices", {"device_id": "g", "from_utc": EARLIEST_MS, "to_utc": LATEST_MS}, "lies more than 18,250 days before"),
    ("allocations", {"job_id": "j", "submitted_utc": LATEST_MS + 1, "from_utc": START}, "is no instant"),
    ("allocations", HELD | {"gpus": 1e9}, "allocations.gpus 1000000000.0 is more than 1,000,000"),
    ("allocations", HELD | {"gpus": 1e6, "node": "n"}, "allocations.gpus 1000000.0 of one node are more than 10,000"),
    ("allocations", HELD | {"gpu_indices": "0-999999999"}, "'0-999999999' is no list of at most 1,000 numbers"),
    ("allocations", HELD | {"gpu_indices": "7," * 4_000 + "7"}, "is no list of at most 1,000 numbers"),
    ("allocations", HELD | {"attempt": 1e16}, "allocations.attempt 1e+16 is more than 1e+15"),
    ("queue_events", ASKED | {"gpus": 1e300}, "queue_events.gpus 1e+300 is more than 1,000,000"),
    ("devices", {"device_id": "g", "gpu_index": 1e9}, "devices.gpu_index 1000000000.0 is more than 10,000"),
    ("prices", PRICE | {"price_per_gpu_hour": 1e30}, "prices.price_per_gpu_hour 1e+30 is more than 10,000,000"),
    ("exchange_rates", {"currency": "EUR", "rate": 1e300}, "exchange_rates.rate 1e+300 is more than 1,000,000,000,000"),
    ("samples", SAMPLE | {"power_w": 1e300}, "samples.power_w 1e+300 is more than"),
    ("samples", SAMPLE | {"device_id": None}, "samples.device_id is empty and may not be"),
    ("samples", SAMPLE | {"device_id": "  "}, "samples.device_id"),
    ("samples", SAMPLE | {"buzy_share": 0.5}, "no column 'buzy_share'"),
    ("samples", SAMPLE | {"busy_share": [0.5]}, "samples.busy_share is not share"),
    ("allocations", {"job_id": "j", "from_utc": START + HOUR, "to_utc": START}, "a reversed interval"),
    ("allocations", {"job_id": "j", "submitted_utc": START + HOUR, "from_utc": START}, "a reversed interval"),
    ("prices", {"basis": "guess", "price_per_gpu_hour": 1.0}, "'guess' is none of effective"),
    ("prices", {"basis": "list", "price_per_gpu_hour": -1.0}, "is negative"),
    ("queue_events", {"job_id": "j", "at_utc": START, "event": "bored"}, "'bored' is none of submitted"),
]


def test_rows_are_counted_file_by_file(tmp_path: Path) -> None:
    """The second row of the second file is called that, however many rows came before it."""
    files = [Rows("samples", pa.Table.from_pylist([SAMPLE] * 5), "a.csv")]
    files += [Rows("samples", pa.Table.from_pylist([row]), "b.csv") for row in (SAMPLE, SAMPLE | {"power_w": -1.0})]
    with pytest.raises(SourceError, match=r"^b\.csv: row 2: samples\.power_w -1\.0 is negative"):
        add(tmp_path / "store", files)


def test_long_and_open_intervals_may_stand() -> None:
    """Decades of a device, prices for ever, samples of a month, and ends that are not known yet."""
    for name, row in (
        ("devices", {"device_id": "g", "from_utc": START, "to_utc": None}),
        ("devices", {"device_id": "g", "from_utc": START, "to_utc": START + 49 * 365 * DAY}),
        ("prices", {"basis": "list", "price_per_gpu_hour": 1.0, "from_utc": EARLIEST_MS, "to_utc": LATEST_MS}),
        ("samples", SAMPLE | {"to_utc": START + 31 * DAY}),
    ):
        assert validate_rows(rows(name, row), 0).num_rows == 1


@pytest.mark.parametrize(("table", "row", "said"), REFUSED)
def test_what_cannot_be_true_is_refused_by_name(table: str, row: dict[str, Any], said: str) -> None:
    """The message is one line and names the file, the row, the column and the value."""
    good = {"samples": SAMPLE, "allocations": {"job_id": "j", "from_utc": START}}.get(table, row)
    columns = dict.fromkeys([*good, *row])
    batch = pa.table({c: [good.get(c), row.get(c)] for c in columns})
    with pytest.raises(SourceError) as refusal:
        validate_rows(Rows(table, batch, "file.csv"), 0)
    assert said in str(refusal.value)
    assert str(refusal.value).startswith("file.csv")
    assert "\n" not in str(refusal.value)


WRONG = {
    "DCGM_FI_DEV_GPU_UTIL": (250, -1),
    "DCGM_FI_PROF_SM_ACTIVE": (-1, 1.5),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": (1.5,),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": (-0.1,),
    "DCGM_FI_DEV_FB_USED": (100_000, -7),
    "DCGM_FI_DEV_POWER_USAGE": (-50, 1e6),
    "DCGM_FI_DEV_SM_CLOCK": (-1, 1e7),
    "DCGM_FI_DEV_GPU_TEMP": (9999, -300),
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": (-4,),
}
RIGHT = {
    "DCGM_FI_DEV_GPU_UTIL": 60, "DCGM_FI_PROF_SM_ACTIVE": 0.5, "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.6,
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.2, "DCGM_FI_DEV_FB_USED": 500, "DCGM_FI_DEV_FB_TOTAL": 80_000,
    "DCGM_FI_DEV_POWER_USAGE": 300, "DCGM_FI_DEV_SM_CLOCK": 1500, "DCGM_FI_DEV_GPU_TEMP": 50,
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": 4,
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "value"), rest_long(((name, value) for name, values in WRONG.items() for value in values), 4)
)
def test_one_bad_field_of_an_exporter_drops_that_field(tmp_path: Path, name: str, value: float) -> None:
    """All others of the sample are kept, and the receipt counts what was left out."""

    def read(values: dict[str, float], folder: str) -> tuple[dict[str, Any], Receipt]:
        page = tmp_path / f"{folder}.prom"
        page.write_text("".join(f'{n}{{gpu="0",UUID="GPU-0"}} {v} {START}\n' for n, v in values.items()))
        books = Books.open(tmp_path / folder, create=True)
        receipt = books.add("dcgm", [page])
        (row,) = books.table("samples").to_pyarrow().to_pylist()
        return row, receipt

    (right, _), (row, receipt) = read(RIGHT, "right"), read(RIGHT | {name: value}, "wrong")
    changed = {
        column for column in row if row[column] != right[column] and column not in ("measured_mask", "import_no")
    }
    (column,) = changed
    assert row[column] is None
    assert sum(gap.count for gap in receipt.gaps) == 1


def test_own_rows_with_a_bad_measurement_stop_their_import(tmp_path: Path) -> None:
    """What exporters say is left out without them; of the user's own file nothing is taken."""
    data = pa.Table.from_pylist([SAMPLE | {"power_w": -1.0, "busy_share": 0.5}])
    left_out: list[Gap] = []
    taken = validate_rows(Rows("samples", data, "x"), 0, left_out.append)
    assert (taken["power_w"].to_pylist(), taken["busy_share"].to_pylist()) == ([None], [0.5])
    assert [(gap.what, gap.count, gap.example) for gap in left_out] == [
        ("power_w left out: it is negative", 1, "power_w -1.0 of g")
    ]
    path = tmp_path / "samples.csv"
    path.write_text("device_id,to_utc,busy_share,power_w\ng,2026-01-01T00:01:00Z,0.5,-1\n")
    with pytest.raises(SourceError, match=r"row 1: samples\.power_w -1\.0 is negative"):
        Books.open(tmp_path / "own", create=True).add("tables", [path])


@pytest.mark.long
def test_gpus_that_no_list_names_are_bounded_together(tmp_path: Path) -> None:
    """Rows may each be possible, and together more than anybody has: small places are counted whole, and `doctor` says the rest."""
    held = "".join(
        f"{pool},{pool},{gpus},{START},{START + HOUR}\n" for pool, gpus in (("a", 10**6), ("b", 10**6), ("c", 8))
    )
    (tmp_path / "allocations.csv").write_text("job_id,pool,gpus,from_utc,to_utc\n" + held)
    books = Books(tmp_path / "books")
    books.add("tables", [tmp_path / "allocations.csv"])
    readings = books.show("allocated_gpu_hours", by=["job"])
    hours = dict(zip(readings.keys, readings.column("allocated_gpu_hours"), strict=True))
    assert hours == {("a",): pytest.approx(99_992), ("c",): pytest.approx(8)}
    checked = books.check()
    assert checked.balance.holds
    assert any("hold 2,000,008 GPUs that nobody lists; 100,000 of them" in found.what for found in checked.findings)


def test_a_job_of_more_gpu_hours_than_there_can_be_is_refused(tmp_path: Path) -> None:
    """A million GPUs for 45 years would be booked hour by hour without end: one line says which row."""
    (tmp_path / "allocations.csv").write_text(
        "job_id,gpus,from_utc,to_utc\nj,8,2026-01-01T00:00:00Z,2026-01-02T00:00:00Z\n"
        "k,1000000,2005-01-01T00:00:00Z,2050-01-01T00:00:00Z\n"
    )
    with pytest.raises(SourceError, match=r"row 2: allocations\.gpus from .* are more than 1,000,000,000 GPU-hours"):
        Books(tmp_path / "books").add("tables", [tmp_path / "allocations.csv"])


def test_devices_that_are_repeated_without_end_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few kilobytes may hold millions of equal rows: more than there can be GPUs are refused while they are read."""
    monkeypatch.setattr(staged_samples, "MOST_GPUS", 5)
    row = {"device_id": "g", "from_utc": START, "to_utc": START + 1}
    with (
        StagedImport(tmp_path / "staged", "made", None, None, 1) as staged,
        pytest.raises(SourceError, match="more than 5 rows of devices; check whether rows are repeated"),
    ):
        staged.take(rows("devices", *[row] * 6))


def test_rows_that_are_repeated_without_end_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few kilobytes may hold millions of equal rows: more of a device on one day than are sorted at once are one line."""
    monkeypatch.setattr(staged_samples, "ROWS_AT_ONCE", 5)
    with StagedImport(tmp_path / "staged", "made", None, None, 1, rows_at_once=3) as staged:
        staged.take(rows("samples", *[SAMPLE] * 6))
        with pytest.raises(
            SourceError, match="6 samples of device g on one day, more than 5; check whether rows are repeated"
        ):
            list(staged.cells())


def test_a_share_may_exceed_one_by_a_rounding() -> None:
    """1.0000001 is one as a decimal print leaves it; it is kept as one."""
    admitted = validate_rows(rows("samples", SAMPLE | {"sm_active_share": 1.0000001}), 0)
    assert admitted["sm_active_share"].to_pylist() == [1.0]


def test_drivers_names_become_catalog_ids() -> None:
    """Devices and prices meet under one name of the accelerator; a name nobody knows stays as it is."""
    admitted = validate_rows(
        rows(
            "devices",
            {"device_id": "a", "accelerator": "NVIDIA H100 80GB HBM3"},
            {"device_id": "b", "accelerator": "X1"},
        ),
        0,
    )
    assert admitted["accelerator"].to_pylist() == ["h100-sxm", "X1"]


def test_profiling_that_reads_zero_while_busy_is_not_idle(tmp_path: Path) -> None:
    """Counters all zero beside GPU_UTIL 100 % are dropped and counted; the hour is busy by GPU_UTIL, never idle."""
    books, receipt = add(
        tmp_path,
        [
            rows("devices", {"device_id": "g", "from_utc": START, "to_utc": START + HOUR}),
            rows("allocations", {"job_id": "j", "device_id": "g", "from_utc": START, "to_utc": START + HOUR}),
            rows("samples", SAMPLE | {"busy_share": 1.0, "sm_active_share": 0.0, "tensor_active_share": 0.0}),
        ],
    )
    assert [g.count for g in receipt.gaps] == [1]
    idle, busy = books.show(["idle_gpu_hours", "busy_gpu_hours"])
    assert (idle.value, busy.value) == (0.0, 1.0)
    assert busy.activity_basis == "gpu_util (optimistic)"


def test_energy_becomes_power_and_energy_again(tmp_path: Path) -> None:
    """Energy of an interval is kept as power, so that a window takes its part; without a start it is a counted gap."""
    books, receipt = add(
        tmp_path,
        [
            rows("devices", {"device_id": "g", "from_utc": START, "to_utc": START + 2 * HOUR}),
            rows(
                "samples",
                SAMPLE | {"energy_j": 3_600_000.0},
                {"device_id": "g", "to_utc": START + 2 * HOUR, "energy_j": 1.0},
            ),
        ],
    )
    assert any("energy" in g.what for g in receipt.gaps)
    (energy,) = books.show(["energy_kwh"])
    assert energy.value == pytest.approx(1.0)
    assert energy.coverage == pytest.approx(0.5)


def test_books_without_a_gpu_have_an_empty_ledger(tmp_path: Path) -> None:
    """Jobs known before any device: the ledger is there, with its columns and no rows."""
    books, _ = add(
        tmp_path,
        [
            rows(
                "queue_events",
                {"job_id": "j", "at_utc": START, "event": "submitted"},
                {"job_id": "j", "at_utc": START + 9, "event": "started"},
            )
        ],
    )
    assert books.table("ledger").count().execute() == 0


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": st.sampled_from(["g", "effective", "USD", "started", " x ", "", "  ", "usd"]),
    "instant": st.sampled_from([START, START, START + HOUR, START + 2 * HOUR, 0, START + 40 * DAY, LATEST_MS + 1]),
    "share": st.sampled_from([0.0, 0.5, 1.0, 1.0000001, 1.5, -0.1, float("nan")]),
    "amount": st.sampled_from([0.0, 2.0, 1e308, -1.0, float("inf"), float("nan")]),
    "count": st.sampled_from([0.0, 8.0, -1.0]),
    "mask": st.sampled_from([0, 4]),
    "flag": st.booleans(),
    "exact": st.sampled_from([Decimal("0.1"), Decimal("-3"), Decimal(10) ** 19]),
}


@st.composite
def batches(draw: st.DrawFn) -> Rows:
    """A few rows of any table, mostly right."""
    kept = draw(st.sampled_from(TABLES))
    odd = draw(st.sampled_from([*kept.columns, None]))
    rows = []
    for _ in range(draw(st.integers(0, 4))):
        row = {c.name: EXAMPLES[c.kind] if c.required or draw(st.booleans()) else None for c in kept.columns}
        row |= {c.name: c.one_of[0] for c in kept.columns if c.one_of} | {
            c.name: "EUR" for c in kept.columns if c.is_currency
        }
        if odd is not None and draw(st.booleans()):
            row[odd.name] = draw(st.one_of(st.none(), VALUES[odd.kind]))
        rows.append(row)
    return Rows(kept.name, pa.Table.from_pylist(rows, schema=kept.schema), "f")


EXAMPLES: dict[str, Any] = {
    "text": "x",
    "instant": START,
    "share": 0.5,
    "amount": 2.0,
    "count": 1.0,
    "mask": 4,
    "flag": True,
}
EXAMPLES |= {"exact": Decimal("1.25")}


@pytest.mark.long
@settings(max_examples=400, deadline=None)
@given(batches())
def test_a_batch_that_looks_right_is_right(batch: Rows) -> None:
    """What the quick look lets pass comes out of the close one the same; what it does not is refused or altered with reason."""

    def checked() -> pa.Table | str:
        try:
            return validate_rows(batch, 0)
        except SourceError as refusal:
            return str(refusal)

    quick = checked()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_checks, "_looks_right", lambda *_: False)
        assert checked() == quick


FIRST_DAY = 20_500 * DAY


def samples(rows: list[dict[str, Any]], where: str = "samples.csv") -> Rows:
    schema = table("samples").schema
    return Rows("samples", pa.Table.from_pylist(rows, schema=schema), where)


@contextmanager
def staged(folder: Path, *items: Rows | Gap, rows_at_once: int = 100) -> Iterator[StagedImport]:
    """An import of these items, under way."""
    with StagedImport(folder / "staging-1", "smi", 30.0, None, 7, rows_at_once) as staging:
        for item in items:
            staging.take(item)
        yield staging


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from(["c", "a", "b", "é"]), st.integers(1, 3 * DAY), st.sampled_from([None, 0.5])),
            max_size=12,
        ),
        min_size=1,
        max_size=8,
    ),
    st.integers(1, 40),
)
def test_cells_hold_every_sample_once(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[tuple[str, int, float | None]]], rows_at_once: int
) -> None:
    """Days and device ranges come in order, no device is divided, no cell has more than its share, and each row is there once."""
    items = [
        samples([{"device_id": d, "to_utc": FIRST_DAY + at, "busy_share": busy} for d, at, busy in batch])
        for batch in batches
    ]
    with staged(tmp_path_factory.mktemp("store"), *items, rows_at_once=rows_at_once) as staging:
        cells = list(staging.cells())
        assert not list(staging.folder.glob("samples*"))
    assert all(cell.schema.equals(AS_TAKEN) for _, cell in cells)
    ranges = [(day, min(cell["device_id"].to_pylist()), max(cell["device_id"].to_pylist())) for day, cell in cells]
    assert ranges == sorted(ranges)
    assert all(a[0] < b[0] or a[2] < b[1] for a, b in pairwise(ranges))
    for day, cell in cells:
        assert {(at - 1) // DAY for at in cell["sampled_utc"].to_pylist()} == {day}
        of_one = max(cell["device_id"].to_pylist().count(d) for d in cell["device_id"].to_pylist())
        assert cell.num_rows <= rows_at_once + of_one
    found = sorted((row for _, cell in cells for row in cell.to_pylist()), key=lambda row: row["seq"])
    taken = [row for batch in batches for row in batch]
    empty = dict.fromkeys(AS_TAKEN.names) | {"source": "smi", "step_ms": 30_000, "import_no": 7}
    assert found == [
        empty
        | {"device_id": d, "sampled_utc": FIRST_DAY + at, "busy_share": busy, "seq": seq}
        | {"measured_mask": 0 if busy is None else measured_bit("busy_share")}
        for seq, (d, at, busy) in enumerate(taken)
    ]


@pytest.mark.long
def test_memory_follows_the_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a small setting few rows wait in memory and few are normalized at once, however many a day has."""
    waiting = 0
    keep = staged_samples.StagedSamples.keep

    def watch(self: staged_samples.StagedSamples, rows: pa.Table) -> None:
        nonlocal waiting
        keep(self, rows)
        waiting = max(waiting, sum(part.num_rows for parts in self._buffers.values() for part in parts))

    monkeypatch.setattr(staged_samples.StagedSamples, "keep", watch)
    batches = [
        samples([{"device_id": f"gpu{d:03d}", "to_utc": FIRST_DAY + at + 1} for d in range(100)])
        for at in range(0, 50_000, 1000)
    ]
    with staged(tmp_path, *batches, rows_at_once=200) as staging:
        sizes = [cell.num_rows for _, cell in staging.cells()]
    assert waiting <= 200
    assert sum(sizes) == 5000
    assert max(sizes) <= 250


def test_small_tables_come_as_files(tmp_path: Path) -> None:
    """A table's columns, the number of the import and of the row; gaps and inferred tables are noted."""
    job = {"job_id": ["j", "k"], "from_utc": [FIRST_DAY, FIRST_DAY]}
    with staged(
        tmp_path, Rows("allocations", pa.table(job), "a.csv", inferred=True), Gap("a.csv", "odd", 3)
    ) as staging:
        (path,) = staging.finish().values()
        found = pq.read_table(path)
        assert found.schema.names == [*table("allocations").schema.names, "import_no", "seq"]
        assert (found["import_no"].to_pylist(), found["seq"].to_pylist()) == ([7, 7], [0, 1])
        assert (staging.rows, staging.gaps, staging.inferred) == (
            {"allocations": 2},
            {("a.csv", "odd"): 3},
            {"allocations"},
        )
    assert not staging.folder.exists()


def test_rows_are_named_by_file(tmp_path: Path) -> None:
    """The number of a row within its import leads back to its file and its number there, also where files take turns."""
    row = {"device_id": "g", "to_utc": FIRST_DAY + 1}
    files = [samples([row] * 3, "a.csv"), samples([row] * 2, "b.csv"), samples([row] * 2, "a.csv")]
    with staged(tmp_path, *files) as staging:
        names = [staging.name_row("samples", seq) for seq in range(7)]
        with pytest.raises(SourceError, match=r"^b\.csv: row 3: "):
            staging.take(samples([row | {"power_w": -1.0}], "b.csv"))
    places = [
        "a.csv: row 1",
        "a.csv: row 2",
        "a.csv: row 3",
        "b.csv: row 1",
        "b.csv: row 2",
        "a.csv: row 4",
        "a.csv: row 5",
    ]
    assert names == places
    assert not staging.folder.exists()


def test_samples_are_taken_as_measured(tmp_path: Path) -> None:
    """Energy becomes power, a device without memory was not asked, failed profiling counters are dropped: each is counted."""
    hour = {"device_id": "g", "from_utc": FIRST_DAY, "to_utc": FIRST_DAY + 3_600_000}
    rows = [
        hour | {"energy_j": 3_600_000.0, "mem_total_bytes": 0.0},
        {"device_id": "g", "to_utc": FIRST_DAY + 1, "energy_j": 5.0, "source": "dcgm"},
        hour | {"busy_share": 1.0, "sm_active_share": 0.0, "tensor_active_share": 0.0},
    ]
    with staged(tmp_path, samples(rows)) as staging:
        ((_, cell),) = staging.cells()
        assert cell["power_w"].to_pylist() == [1000.0, None, None]
        assert cell["mem_total_bytes"].null_count == 3
        assert cell["sm_active_share"].null_count == 3
        assert cell["source"].to_pylist() == ["smi", "dcgm", "smi"]
        assert cell["measured_mask"].to_pylist() == [measured_bit("power_w"), 0, measured_bit("busy_share")]
        assert sorted(staging.gaps.values()) == [1, 1]


AT_MS = 1_700_000_000_000


def test_a_sample_all_alone_covers_the_step_of_its_source(tmp_path):
    """Without a second sample and without a told step the source's own step counts."""
    row = {"device_id": ["g"], "to_utc": pa.array([AT_MS], pa.int64()), "busy_share": [0.5]}

    def read(_paths: tuple[Path, ...], _options: ReadOptions):
        yield Rows("devices", pa.table({"device_id": ["g"]}))
        yield Rows("samples", pa.table(row))

    log = tmp_path / "log"
    log.write_text("x")
    store = Store(tmp_path / "store")
    source = Source("one", lambda paths: paths, read, default_step_s=30.0)
    with store.write() as writer:
        import_files(writer, source, (log,), ReadOptions(), lambda *_: None)
    with store.read() as session:
        session.view_table("samples", "samples")
        assert session.fetch_one("SELECT from_utc, to_utc FROM samples") == (AT_MS - 30_000, AT_MS)


def test_a_sample_that_follows_another_begins_there(tmp_path: Path) -> None:
    """The books begin where the first sample does, not a step before one that reaches back to it."""
    first = 1_777_964_897_526
    rows = [
        {"device_id": "a", "from_utc": first - 5_000, "to_utc": first},
        {"device_id": "a", "from_utc": None, "to_utc": first + 60_000},
        *({"device_id": "b", "from_utc": None, "to_utc": first + hours * 3_600_000} for hours in (6, 12, 18)),
    ]
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(
        pa.Table.from_pylist([{**row, "busy_share": 0.5, "source": "s"} for row in rows]), folder / "samples.parquet"
    )
    books = Books(tmp_path / "store")
    books.add("tables", [folder])
    assert books.store.span() == (first - 5_000, first + 18 * 3_600_000)
