"""Values and rates of the decoder against a plain reading of the same samples: dictionaries, one sample after the other."""

from collections import defaultdict
from random import Random
from statistics import median_low

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sources.prometheus.streams import AT_MS, STEP_MS, Booked, Sample, put, series

from loadfactor.sources.prometheus.decoder import PrometheusDecoder
from loadfactor.tables.schema import REACH_STEPS

UTIL, USED, ENERGY, SENT = (
    *("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED"),
    *("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_PROF_PCIE_TX_BYTES_TOTAL"),
)
UNITS = {UTIL: ("busy_share", 0.01), USED: ("mem_used_bytes", 2.0**20)}
RATES = {ENERGY: ("power_w", 0.001), SENT: ("pcie_tx_bytes_per_s", 1.0)}
KEPT_GAPS = 9
LONGEST_SCRAPE = 8.5  # bodies that four samples of a GPU may be spread over
Read = dict[tuple[str, str, int], dict[str, float]]


def read_plainly(bodies: list[list[Sample]]) -> Read:
    """What each GPU of each source measured by time. A later body may repeat what was sent, and bring what was not sent yet."""
    scrapes: dict[tuple[str, str], dict[int, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for body in bodies:
        for labels, at_ms, value in body:
            device = f"dcgm:{labels['job']}", labels["UUID"]
            scrapes[device][at_ms].setdefault(labels["__name__"], value)
    found: Read = {}
    for device, by_time in scrapes.items():
        gaps: list[int] = []
        totals: dict[str, tuple[int, float]] = {}
        before_ms = None
        for at_ms, values in sorted(by_time.items()):
            if before_ms is not None:
                gaps = [*gaps, at_ms - before_ms][-KEPT_GAPS:]
            step_ms = median_low(gaps) if gaps else STEP_MS
            row = found[*device, at_ms] = {}
            for name, value in values.items():
                if name in UNITS:
                    column, unit = UNITS[name]
                    row[column] = value * unit
                    continue
                column, unit = RATES[name]
                if name in totals:
                    since_ms, total = totals[name]
                    if value >= total and at_ms - since_ms <= REACH_STEPS * step_ms:
                        row[column] = (value - total) * unit * 1000 / (at_ms - since_ms)
                totals[name] = at_ms, value
            before_ms = at_ms
    return {key: row for key, row in found.items() if row}


def make_scrapes(r: Random) -> list[list[Sample]]:
    """Scrapes of two GPUs by two jobs, in order: some fail, some fields are missing, some totals are set back."""
    totals: dict[tuple[str, int, str], float] = defaultdict(float)
    scrapes = []
    at_ms = AT_MS
    for _ in range(r.randint(2, 25)):
        at_ms += STEP_MS * r.choice([1, 1, 1, 1, 2, 6])
        for job in ("a", "b"):
            for gpu in range(2):
                if r.random() < 0.1:
                    continue
                samples: list[Sample] = []
                for name in (UTIL, USED, ENERGY, SENT):
                    value = float(r.randrange(101))
                    if name in RATES:
                        key = (job, gpu, name)
                        value = totals[key] = 0.0 if r.random() < 0.1 else totals[key] + r.randrange(10**6)
                    if r.random() > 0.1:
                        samples.append((series(name, gpu, job=job), at_ms + gpu, value))
                scrapes.append(samples)
    return scrapes


def cut(r: Random, scrapes: list[list[Sample]]) -> list[list[Sample]]:
    """Bodies of any size; a sender that heard no answer sends some of them again."""
    samples = [sample for scrape in scrapes for sample in scrape]
    bodies = []
    while samples:
        size = r.randint(1, 30)
        bodies += [samples[:size]] * r.choice([1, 1, 1, 2])
        samples = samples[size:]
    return bodies


def book(bodies: list[list[Sample]], taken: set[int]) -> Read:
    """What the decoder makes of them, where everything is taken after some of the bodies."""
    booked, decoder = Booked(), PrometheusDecoder()
    for number, body in enumerate(bodies, 1):
        put(decoder, number, body, float(number))
        if number in taken:
            booked.take(decoder, number - LONGEST_SCRAPE)
    rows = booked.take(decoder).rows["samples"]
    measured = {column for column, _ in (*UNITS.values(), *RATES.values())}
    found = {}
    for (where, *_), row in rows.items():
        values = {name: value for name, value in row.items() if name in measured}
        if values:
            found[str(where), str(row["device_id"]), int(str(row["to_utc"]))] = values
    return found  # type: ignore[return-value]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_values_and_rates_are_those_of_a_plain_reading(seed: int) -> None:
    """However samples are cut into bodies, sent twice and taken in portions: several jobs, gaps, resets and missing fields."""
    r = Random(seed)
    bodies = cut(r, make_scrapes(r))
    taken = {number for number in range(len(bodies)) if r.random() < 0.3}
    found, expected = book(bodies, taken), read_plainly(bodies)
    assert found.keys() == expected.keys()
    for key, row in expected.items():
        assert found[key] == pytest.approx(row, rel=1e-12), key


def test_late_samples_are_values_and_rates_of_their_own() -> None:
    """Samples that come after later ones were taken have the rates among themselves, and change no row that was there."""
    scrapes = [
        [(series(UTIL), AT_MS + k * STEP_MS, 10.0 + k), (series(SENT), AT_MS + k * STEP_MS, 3e6 * k)] for k in range(8)
    ]
    late, on_time = scrapes[2:5], [*scrapes[:2], *scrapes[5:]]
    booked, decoder = Booked(), PrometheusDecoder()
    for number, body in enumerate((*on_time, *late), 1):
        put(decoder, number, body)
        if number == len(on_time):
            booked.take(decoder)
            before = booked.list("samples")
    after = booked.take(decoder).list("samples")
    assert [row for row in after if row in before] == before
    rows = {int(str(row["to_utc"])): row for row in after}
    assert [rows[AT_MS + k * STEP_MS]["busy_share"] for k in range(8)] == pytest.approx(
        [0.1 + k / 100 for k in range(8)]
    )
    sent = [rows[AT_MS + k * STEP_MS].get("pcie_tx_bytes_per_s") for k in range(8)]
    assert sent == [None, 1e5, None, 1e5, 1e5, None, 1e5, 1e5]
