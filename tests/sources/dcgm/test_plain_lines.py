"""Lines read in columns and by the careful reader say the same of every text; what is known of series makes no difference."""

from collections import Counter
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sources.dcgm.expositions import AT_MS, STEP_MS, make_exposition

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import Input, ReadOptions, Rows
from loadfactor.sources.dcgm import decoder, known_series, metric_lines, scrape_window
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


@settings(max_examples=150, deadline=None)
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


@settings(max_examples=300, deadline=None)
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
