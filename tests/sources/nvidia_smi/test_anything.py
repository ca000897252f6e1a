"""Whatever bytes come: rows or a SourceError. Whatever the order of columns: the same rows."""

import random
from pathlib import Path
from tempfile import TemporaryDirectory
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import Gap, ReadOptions
from loadfactor.sources.nvidia_smi import SOURCE

HEAD = b"timestamp, index, utilization.gpu [%], memory.used [MiB]\n"
ROW = b"2024/01/31 12:34:56.789, 0, 97 %, 1024 MiB\n"
PIECES = st.sampled_from(
    [
        HEAD,
        ROW,
        b"\n",
        b"\r\n",
        b"####\n",
        b"# gpu sm\n",
        b"#Date Time gpu sm\n",
        b" 20240131 12:00:00 0 5\n",
        b"    0   5\n",
        b"<?xml version='1.0'?>\n",
        b"<nvidia_smi_log>",
        b"<gpu id='0'>",
        b"<utilization><gpu_util>5 %</gpu_util></utilization>",
        b"</gpu>",
        b"</nvidia_smi_log>",
        b"<timestamp>Wed Jan 31 12:34:56 2024</timestamp>",
        b", ",
        b"[N/A]",
        b"\xff",
        b"\0",
        b'"',
        b"timestamp",
        b"uuid, pid\n",
        b"=====\n",
        b"1e999",
        b"9" * 400,
        b"2024/02/31 12:34:56.789, 0, 97 %, 1024 MiB\n",
    ]
)
FIELDS = {
    "utilization.gpu": ("%", st.integers(0, 100).map(str)),
    "memory.used": ("MiB", st.integers(0, 81_559).map(str)),
    "power.draw": ("W", st.integers(0, 70_000).map(lambda n: f"{n / 100:.2f}")),
    "clocks.sm": ("MHz", st.integers(0, 2_000).map(str)),
    "temperature.gpu": (None, st.integers(0, 100).map(str)),
}
CELL = st.one_of(st.none(), st.sampled_from(["[N/A]", "[Not Supported]"]))


def read(data: bytes, **options: object) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Samples and devices of these bytes."""
    rows: dict[str, list[dict[str, object]]] = {"samples": [], "devices": []}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "gpu.csv"
        path.write_bytes(data)
        for item in SOURCE.read((path,), ReadOptions(timezone=ZoneInfo("Europe/Berlin"), **options)):  # type: ignore[arg-type]
            if not isinstance(item, Gap):
                rows[item.table] += item.data.to_pylist()
    return rows["samples"], rows["devices"]


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.binary(max_size=400), st.lists(PIECES, max_size=25).map(b"".join)), st.booleans())
def test_any_bytes_make_rows_or_an_error(data, dated):
    """No input ends in anything but rows, gaps or a SourceError of one line."""
    try:
        read(data, **({"at_ms": 1_700_000_000_000, "step_s": 1.0} if dated else {}))
    except SourceError as e:
        message = str(e)
    else:
        message = "gpu.csv was read"
    assert "gpu.csv" in message
    assert "\n" not in message


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 5 * len(ROW) + len(HEAD)))
def test_any_truncation_keeps_a_prefix(at):
    """A log cut anywhere gives its first rows; a cell of the last one may be missing, never wrong."""
    data = HEAD + b"".join(ROW.replace(b"56.789", b"%02d.789" % i) for i in range(5))
    whole, _ = read(data)
    try:
        cut, _ = read(data[:at])
    except SourceError:
        return
    assert cut[:-1] == whole[: max(0, len(cut) - 1)]
    assert all(v is None or v == whole[len(cut) - 1][k] for k, v in (cut[-1] if cut else {}).items())


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 12), st.randoms(use_true_random=False))
def test_column_order_and_units_change_nothing(data, count, shuffle: random.Random):
    """The same log with columns shuffled, units stripped and fields beside it that nobody keeps gives identical rows."""
    rows = []
    for i in range(count):
        row = {"timestamp": f"2024/01/31 12:{i:02d}:00.{data.draw(st.integers(0, 999)):03d}", "index": str(i % 3)}
        row |= {name: data.draw(CELL) or data.draw(values) for name, (_, values) in FIELDS.items()}
        rows.append(row)
    plain = list(rows[0])
    mixed = [*plain, "pstate", "driver_version"]
    shuffle.shuffle(mixed)

    def log(names: list[str], head: bool, cells: bool) -> bytes:
        def unit(name: str, text: str, shown: bool, form: str) -> str:
            known = FIELDS.get(name, (None, None))[0]
            return form.format(text, known) if shown and known and not text.startswith("[") else text

        lines = [[unit(n, n, head, "{} [{}]") for n in names]]
        lines += [[unit(n, row.get(n, "P0"), cells, "{} {}") for n in names] for row in rows]
        return "".join(", ".join(line) + "\n" for line in lines).encode()

    wanted = read(log(plain, True, True))
    for head, cells in ((True, False), (False, True), (False, False)):
        assert read(log(mixed, head, cells)) == wanted
