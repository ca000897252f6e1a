"""Any text read in columns gives what the careful reader gives; any bytes give rows or a SourceError, in any order of lines."""

from collections import Counter
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sources.dcgm.expositions import AT_MS, STEP_MS, make_exposition

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import Gap, Input, ReadOptions, Rows
from loadfactor.sources.dcgm import SOURCE, decoder, known_series, metric_lines, scrape_window
from loadfactor.sources.dcgm.decoder import decode_scrapes
from loadfactor.sources.dcgm.metric_lines import LineReader

CAREFUL, PLAIN = True, False
Said = tuple[list[str], Counter[tuple[str, str]]] | str


def read_nothing(_reader: LineReader, _data: bytes, starts: object, *_ends: object) -> metric_lines._Columns:
    """No line is plain."""
    n = len(starts)  # type: ignore[arg-type]
    return metric_lines._Columns(np.full(n, -1, np.int32), np.full(n, np.nan), np.full(n, -1))


def decode(careful: bool, inputs: list[Input], held: int = 0, **options: object) -> Said:
    """Rows in any one order and gaps, or the error, line by line or in columns, and a window of so many scrapes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoder, "COMPILE_FROM_BYTES", 1 << 60 if careful else -1)
        if careful:
            patch.setattr(LineReader, "_read_plain", read_nothing)
        if held:
            patch.setattr(scrape_window, "SCRAPES_HELD", held)
        rows: list[str] = []
        gaps: Counter[tuple[str, str]] = Counter()
        try:
            for item in decode_scrapes(inputs, ReadOptions(**options)):  # type: ignore[arg-type]
                if isinstance(item, Rows):
                    rows += [f"{item.table} {row}" for row in item.data.to_pylist()]
                else:
                    gaps[item.where, item.what] += item.count
        except SourceError as e:
            return str(e)
        return sorted(rows), gaps


@pytest.mark.long
@settings(max_examples=75, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_scanner_and_careful_reader_agree(seed: int) -> None:
    """Rows, gaps and messages of random expositions are the same line by line and in columns."""
    r = Random(seed)
    inputs = [Input(f"{i}.prom", [make_exposition(r)]) for i in range(r.choice([1, 1, 2, 3]))]
    options = {"at_ms": r.choice([AT_MS] * 9 + [None]), "step_s": r.choice([None, 15.5]), "node": r.choice([None, "m"])}
    held = r.choice([0, 0, 4, 16])
    wanted = decode(CAREFUL, inputs, held=held, **options)
    assert decode(PLAIN, inputs, held=held, **options) == wanted


NUMBER = st.one_of(
    st.floats(allow_nan=False).map(repr),
    st.integers(0, 2**64).map(str),
    st.from_regex(r"[+-]?[0-9]{0,12}\.?[0-9]{0,12}([eE][+-]?[0-9]{1,3})?", fullmatch=True),
)


@pytest.mark.long
@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(NUMBER, NUMBER), min_size=1, max_size=20))
def test_numbers_and_times_are_read_to_the_last_bit(pairs: list[tuple[str, str]]) -> None:
    """Whatever number stands there, as a value or a time, the scanner has exactly what Python reads, or leaves it to Python."""
    text = "".join(
        f'DCGM_FI_{name}{{UUID="GPU-{i}"}} {value} {time}\n'
        for i, (value, time) in enumerate(pairs)
        for name in ("DEV_POWER_USAGE", "PROF_PCIE_TX_BYTES", "DEV_CLOCK_THROTTLE_REASONS", "go")
    )
    twice = [Input("a", [text.encode()]), Input("b", [text.encode()])]
    assert decode(PLAIN, twice) == decode(CAREFUL, twice)


def test_real_files_scanned(shared) -> None:  # type: ignore[no-untyped-def]
    """Files of real exporters say the same to the scanner, alone and all together."""
    paths = sorted((shared / "data/metrics").rglob("*.prom")) + sorted((shared / "data/metrics").rglob("*.metrics"))
    inputs = [Input(path.name, [path.read_bytes()]) for path in paths]
    for some in (*([one] for one in inputs), inputs, [*inputs, *inputs]):
        wanted = decode(CAREFUL, some, at_ms=AT_MS, step_s=30.0)
        assert decode(PLAIN, some, at_ms=AT_MS, step_s=30.0) == wanted


def scrape(step: int, pod: str = "p") -> bytes:
    """A scrape of 8 GPUs with titles, as an exporter writes it."""
    names = ("DEV_GPU_UTIL", "DEV_FB_USED", "DEV_FAN_SPEED", "PROF_SM_ACTIVE")
    return "".join(
        f"# HELP DCGM_FI_{name} says.\n# TYPE DCGM_FI_{name} gauge\n"
        + "".join(
            f'DCGM_FI_{name}{{gpu="{gpu}",UUID="GPU-{gpu}",pod="{pod}"}} {gpu}.5 {AT_MS + step * STEP_MS}\n'
            for gpu in range(8)
        )
        for name in names
    ).encode()


def test_what_was_seen_before_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each name with labels is parsed once, in a text or from call to call; plain lines are read without the careful reader."""
    heads: list[str] = []
    split = known_series.split_head
    monkeypatch.setattr(known_series, "split_head", lambda head: heads.append(head) or split(head))
    monkeypatch.delattr(LineReader, "parse")  # of lines that are not plain
    rows, _ = decode(PLAIN, [Input("a", [scrape(0) + scrape(1)]), Input("b", [scrape(2)])])
    assert len(heads) == 32
    assert len(rows) == 24 + 8 + 8
    heads.clear()
    decode(PLAIN, [Input("a", [scrape(2)]), Input("b", [scrape(3, pod="q")])])
    assert len([head for head in heads if 'pod="q"' in head]) == 32


@pytest.mark.long
@pytest.mark.parametrize("careful", [CAREFUL, PLAIN])
def test_forgotten_series_change_nothing(monkeypatch: pytest.MonkeyPatch, careful: bool) -> None:
    """Where there are too many series to remember, the rows are those of a longer memory, and so are the scrapes they are of."""
    r = Random(7)
    texts = [make_exposition(r) for _ in range(20)]
    monkeypatch.setattr("loadfactor.sources.parsing.text_blocks.BLOCK_BYTES", 1)
    for text in texts:
        pieces = [text[i : i + 300] for i in range(0, len(text), 300)]
        one = [Input("a", pieces)]
        monkeypatch.setattr(decoder, "SERIES_MAX", 100_000)
        wanted = decode(careful, one, at_ms=AT_MS, step_s=30.0)
        monkeypatch.setattr(decoder, "SERIES_MAX", 2)
        assert decode(careful, one, at_ms=AT_MS, step_s=30.0) == wanted


def test_a_gpu_named_after_its_file_is_another_in_another_file() -> None:
    """Without UUID and node a GPU is called by the file, also where the same labels are known of another file."""
    line = [b'DCGM_FI_DEV_GPU_UTIL{gpu="0"} 5\n']
    for careful in (CAREFUL, PLAIN):
        rows, _ = decode(careful, [Input(name, line) for name in ("a", "b", "a")], at_ms=AT_MS, step_s=30.0)
        assert {row.split("'")[3] for row in rows if row.startswith("samples")} == {"a/0", "b/0"}


def test_only_the_compiled_order_is_compiled() -> None:
    """The rule that numbers scrapes is one function, called by Python for a few lines and compiled for many."""
    assert decoder._compile_follow().py_func is decoder.follow_lines  # type: ignore[attr-defined]


ANY_AT_MS = 1_700_000_000_000
GPU = st.sampled_from(
    ['UUID="GPU-1"', 'UUID="GPU-1",GPU_I_ID="1",GPU_I_PROFILE="2g.10gb"', 'gpu="0",Hostname="n"', 'pod="p"', ""]
)
NAME = st.sampled_from(
    [
        *("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_PROF_SM_ACTIVE"),
        *("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"),
        *("DCGM_FI_PROF_PCIE_TX_BYTES", "DCGM_FI_DEV_XID_ERRORS", "go_threads"),
    ]
)
VALUE = st.one_of(
    st.floats().map(str),
    st.integers(-5, 120).map(str),
    st.sampled_from(["9223372036854775794", "NaN", "", "x", "1e400", "-0"]),
)
TIME = st.sampled_from(
    ["", f" {ANY_AT_MS}", f" {ANY_AT_MS + 30_000}", " 1700000000.5", " -1", " nan", " 99999999999999999999", " x y"]
)
LINE = st.builds("{}{{{}}} {}{}\n".format, NAME, GPU, VALUE, TIME)
JUNK = st.sampled_from(
    [
        *("title\n", "# TYPE DCGM_FI_PROF_PCIE_TX_BYTES counter\n", "{}\n"),
        *('{"}\n', "DCGM_FI_DEV_GPU_UTIL 5\n", "#\n", "}} 1\n"),
    ]
)


def read(data: bytes, **options: object) -> dict[str, list[dict[str, object]]]:
    rows: dict[str, list[dict[str, object]]] = {"samples": [], "devices": [], "allocations": [], "device_events": []}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "dcgm.prom"
        path.write_bytes(data)
        for item in SOURCE.read((path,), ReadOptions(**options)):  # type: ignore[arg-type]
            if not isinstance(item, Gap):
                rows[item.table] += item.data.to_pylist()
    return rows


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(
    st.one_of(st.binary(max_size=300), st.lists(st.one_of(LINE, JUNK), max_size=30).map(lambda x: "".join(x).encode())),
    st.booleans(),
    st.integers(0, 40),
)
def test_any_bytes_make_rows_or_an_error(data, dated, cut):
    """No input, whole or cut, ends in anything but rows, gaps or a SourceError of one line."""
    try:
        read(data[: len(data) - cut], **({"at_ms": ANY_AT_MS, "step_s": 1.0} if dated else {}))
    except SourceError as e:
        message = str(e)
    else:
        message = "dcgm.prom was read"
    assert "dcgm.prom" in message
    assert "\n" not in message


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 5), st.randoms(use_true_random=False))
def test_the_order_of_lines_changes_nothing(data, scrapes, shuffle):
    """The lines of all scrapes shuffled give the same samples, devices and allocations."""
    lines = []
    for i in range(scrapes):
        for gpu in ("1", "2"):
            for name, scale in (
                ("DEV_GPU_UTIL", 1),
                ("DEV_FB_USED", 100),
                ("DEV_TOTAL_ENERGY_CONSUMPTION", 10**6 * (i + 1)),
            ):
                value = data.draw(st.integers(0, 100)) * scale
                lines.append(f'DCGM_FI_{name}{{UUID="GPU-{gpu}",pod="p{i // 2}"}} {value} {ANY_AT_MS + i * 30_000}\n')

    def rows(order: list[str]) -> dict[str, list[str]]:
        return {name: sorted(map(repr, found)) for name, found in read("".join(order).encode()).items()}

    mixed = list(lines)
    shuffle.shuffle(mixed)
    assert rows(mixed) == rows(lines)
