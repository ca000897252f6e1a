"""Whatever bytes come: rows or a SourceError. Whatever the order of a scrape's lines: the same rows."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import Gap, ReadOptions
from loadfactor.sources.dcgm import SOURCE

AT_MS = 1_700_000_000_000
GPU = st.sampled_from(
    ['UUID="GPU-1"', 'UUID="GPU-1",GPU_I_ID="1",GPU_I_PROFILE="2g.10gb"', 'gpu="0",Hostname="n"', 'pod="p"', ""]
)
NAME = st.sampled_from(
    [
        "DCGM_FI_DEV_GPU_UTIL",
        "DCGM_FI_DEV_FB_USED",
        "DCGM_FI_PROF_SM_ACTIVE",
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",
        "DCGM_FI_PROF_PCIE_TX_BYTES",
        "DCGM_FI_DEV_XID_ERRORS",
        "go_threads",
    ]
)
VALUE = st.one_of(
    st.floats().map(str),
    st.integers(-5, 120).map(str),
    st.sampled_from(["9223372036854775794", "NaN", "", "x", "1e400", "-0"]),
)
TIME = st.sampled_from(
    ["", f" {AT_MS}", f" {AT_MS + 30_000}", " 1700000000.5", " -1", " nan", " 99999999999999999999", " x y"]
)
LINE = st.builds("{}{{{}}} {}{}\n".format, NAME, GPU, VALUE, TIME)
JUNK = st.sampled_from(
    [
        "title\n",
        "# TYPE DCGM_FI_PROF_PCIE_TX_BYTES counter\n",
        "{}\n",
        '{"}\n',
        "DCGM_FI_DEV_GPU_UTIL 5\n",
        "#\n",
        "}} 1\n",
    ]
)


def read(data: bytes, **options: object) -> dict[str, list[dict[str, object]]]:
    """All rows of these bytes, by table."""
    rows: dict[str, list[dict[str, object]]] = {"samples": [], "devices": [], "allocations": [], "device_events": []}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "dcgm.prom"
        path.write_bytes(data)
        for item in SOURCE.read((path,), ReadOptions(**options)):  # type: ignore[arg-type]
            if not isinstance(item, Gap):
                rows[item.table] += item.data.to_pylist()
    return rows


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(st.binary(max_size=300), st.lists(st.one_of(LINE, JUNK), max_size=30).map(lambda x: "".join(x).encode())),
    st.booleans(),
    st.integers(0, 40),
)
def test_any_bytes_make_rows_or_an_error(data, dated, cut):
    """No input, whole or cut, ends in anything but rows, gaps or a SourceError of one line."""
    try:
        read(data[: len(data) - cut], **({"at_ms": AT_MS, "step_s": 1.0} if dated else {}))
    except SourceError as e:
        message = str(e)
    else:
        message = "dcgm.prom was read"
    assert "dcgm.prom" in message
    assert "\n" not in message


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
                lines.append(f'DCGM_FI_{name}{{UUID="GPU-{gpu}",pod="p{i // 2}"}} {value} {AT_MS + i * 30_000}\n')

    def rows(order: list[str]) -> dict[str, list[str]]:
        return {name: sorted(map(repr, found)) for name, found in read("".join(order).encode()).items()}

    mixed = list(lines)
    shuffle.shuffle(mixed)
    assert rows(mixed) == rows(lines)
