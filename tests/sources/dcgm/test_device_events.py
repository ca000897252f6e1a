"""XID, ECC and throttle reasons become events: once each, however a log is cut and however often it is read."""

from itertools import pairwise
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from loadfactor.books.books import Books
from loadfactor.sources.base import DeviceEvent, Input, ReadOptions, Rows
from loadfactor.sources.dcgm.decoder import decode_scrapes

AT_MS = 1_700_000_000_000
HOUR_MS = 1_699_999_200_000
BLANK = 9223372036854775794
NAMES = ("DEV_XID_ERRORS", "DEV_ECC_SBE_VOL_TOTAL", "DEV_ECC_DBE_AGG_TOTAL", "DEV_CLOCKS_EVENT_REASONS")


def scrape(step: int, gpu: int = 0, instance: str = "", **values: int) -> str:
    """A scrape of one GPU, `step` times 30 s after the beginning."""
    labels = f'gpu="{gpu}",UUID="GPU-{gpu}"' + (f',GPU_I_ID="{instance}",GPU_I_PROFILE="1g.10gb"' if instance else "")
    fields = {"DEV_GPU_UTIL": 50, **values}
    return "".join(f"DCGM_FI_{name}{{{labels}}} {value} {AT_MS + step * 30_000}\n" for name, value in fields.items())


def decode(text: str, before: tuple[DeviceEvent, ...] = ()) -> list[DeviceEvent]:
    """The events of a text."""
    source = Input("log.prom", [text.encode()])
    return [
        DeviceEvent(r["at_utc"], r["device_id"], r["kind"], r["detail"], r["count"] and int(r["count"]))
        for rows in decode_scrapes([source], ReadOptions(events_before=before))
        if isinstance(rows, Rows) and rows.table == "device_events"
        for r in rows.data.to_pylist()
    ]


def test_an_xid_is_one_event_until_the_driver_is_loaded_again() -> None:
    """The gauge repeats its code: an event where it changes, a reset where it goes back; blanks tell nothing."""
    codes = [0, 79, 79, BLANK, 79, 31, 0, 0, 31]
    found = decode("".join(scrape(k, DEV_XID_ERRORS=code) for k, code in enumerate(codes)))
    assert [((e.at_ms - AT_MS) // 30_000, e.kind, e.detail, e.count) for e in found] == [
        (1, "xid", "79", None),
        (5, "xid", "31", None),
        (6, "reset", "xid", None),
        (8, "xid", "31", None),
    ]


def test_ecc_errors_are_counted_from_their_totals() -> None:
    """How many were new since the scrape before; a counter that was set back begins again."""
    totals = [0, 2, 2, 5, 1]
    found = decode("".join(scrape(k, DEV_ECC_DBE_VOL_TOTAL=total) for k, total in enumerate(totals)))
    assert [((e.at_ms - AT_MS) // 30_000, e.kind, e.detail, e.count) for e in found] == [
        (1, "ecc", "dbe_volatile", 2),
        (3, "ecc", "dbe_volatile", 3),
        (4, "ecc", "dbe_volatile", 1),
        (4, "reset", "dbe_volatile", None),
    ]


def test_throttling_is_an_event_an_hour_and_reason() -> None:
    """However often a bit comes and goes; being idle is none."""
    masks = [0x1, 0x4, 0x0, 0x4, 0x44]
    found = decode("".join(scrape(k, DEV_CLOCKS_EVENT_REASONS=mask) for k, mask in enumerate(masks)))
    assert [(e.at_ms, e.kind, e.detail) for e in found] == [
        (HOUR_MS, "throttle", "hw_thermal_slowdown"),
        (HOUR_MS, "throttle", "sw_power_cap"),
    ]


def test_mig_instances_repeat_the_event_of_their_gpu() -> None:
    """Each instance has a line with the GPU's XID: one event, of the GPU."""
    found = decode("".join(scrape(0, 0, instance, DEV_XID_ERRORS=94) for instance in "12"))
    assert found == [DeviceEvent(AT_MS, "GPU-0", "xid", "94")]


STEP = st.fixed_dictionaries({name: st.sampled_from([0, 0, 1, 4, 79]) for name in NAMES})


@settings(deadline=None, max_examples=30)
@given(st.lists(STEP, min_size=1, max_size=12), st.sets(st.integers(1, 11)))
def test_a_log_in_pieces_tells_what_the_whole_tells(steps: list[dict[str, int]], cuts: set[int]) -> None:
    """Cut anywhere, read piece by piece with what the books know by then; a piece twice adds nothing."""
    scrapes = [scrape(k, gpu, **step) for k, step in enumerate(steps) for gpu in range(2)]
    bounds = [0, *sorted(2 * cut for cut in cuts if cut < len(steps)), len(scrapes)]
    known: set[DeviceEvent] = set()
    for first, last in pairwise(bounds):
        piece = "".join(scrapes[first:last])
        known |= set(decode(piece, tuple(known)))
        assert set(decode(piece, tuple(known))) <= known
    assert known == set(decode("".join(scrapes)))


def test_the_books_remember_what_was_told(tmp_path: Path) -> None:
    """A second log that begins with the XID the first one ended with adds no event."""
    books = Books.open(tmp_path / "store", create=True)
    for number, codes in enumerate(([0, 79], [79, 79, 31])):
        path = tmp_path / f"log{number}.prom"
        path.write_text("".join(scrape(10 * number + k, DEV_XID_ERRORS=code) for k, code in enumerate(codes)))
        books.add("dcgm", [path])
    with books.store.read() as session:
        session.view_table("device_events", "device_events")
        rows = session.fetch("SELECT at_utc, detail FROM device_events ORDER BY at_utc").to_pylist()
    assert [((row["at_utc"] - AT_MS) // 30_000, row["detail"]) for row in rows] == [(1, "79"), (12, "31")]
