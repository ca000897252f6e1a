"""Rows of the decoder against a plain reading of the same samples, and against a decoder that is never killed."""

from collections import defaultdict
from random import Random
from statistics import median_low

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sources.prometheus.streams import AT_MS, STEP_MS, Booked, Sample, put, series

from loadfactor.base.errors import DamageError
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


@pytest.mark.long
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
    busy = [rows[AT_MS + k * STEP_MS]["busy_share"] for k in range(8)]
    assert busy == pytest.approx([0.1 + k / 100 for k in range(8)])
    sent = [rows[AT_MS + k * STEP_MS].get("pcie_tx_bytes_per_s") for k in range(8)]
    assert sent == [None, 1e5, None, 1e5, 1e5, None, 1e5, 1e5]


FIELDS = (
    *("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_DEV_POWER_USAGE"),
    *("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_PROF_PCIE_TX_BYTES_TOTAL", "DCGM_FI_DEV_XID_ERRORS"),
    *("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"),
)
OF_EVENTS = {"XID": (0, 31, 79), "ECC": (0, 1, 1, 5), "REASONS": (0, 4, 0x44)}


def make_bodies(r: Random) -> list[list[Sample]]:
    """Scrapes of some GPUs, with gaps, resets, pods that come and go and MIG instances, cut into requests anywhere."""
    samples: list[Sample] = []
    totals = dict.fromkeys(range(3), 1e9)
    pods = dict.fromkeys(range(3), "")
    cut = dict.fromkeys(range(3), 0)
    at_ms = AT_MS
    for _ in range(r.randint(3, 14)):
        at_ms += r.choice([STEP_MS] * 6 + [STEP_MS // 2, 5 * STEP_MS])
        for gpu in range(3):
            if r.random() < 0.1:
                continue
            pods[gpu] = r.choice([pods[gpu]] * 4 + ["", "a", "b"])
            cut[gpu] = r.choice([cut[gpu]] * 9 + [0, 2])
            totals[gpu] = r.choice([totals[gpu] + r.randrange(10**7)] * 9 + [0.0])
            for part in range(max(cut[gpu], 1)):
                mig = {"GPU_I_ID": str(part), "GPU_I_PROFILE": "2g.10gb"} if cut[gpu] else {}
                for name in FIELDS:
                    value = totals[gpu] if "TOTAL" in name else r.randrange(1, 100) / (100 if "PROF" in name else 1)
                    for part_of_name, codes in OF_EVENTS.items():
                        value = r.choice(codes) if part_of_name in name else value
                    pod = {"pod": pods[gpu], "namespace": "team" if pods[gpu] else ""}
                    samples.append((series(name, gpu, **pod, **mig), at_ms + gpu, value))
    bodies = []
    while samples:
        size = r.choice([12, 17, 40])
        bodies.append(samples[:size])
        samples = samples[size:]
    return bodies


def run(bodies: list[list[Sample]], takes: dict[int, float | None], kills: set[int]) -> Booked:
    """Books these bodies: after some of them what is ripe is taken and, where killed, a new decoder goes on from the state."""
    booked, decoder, state, done = Booked(), PrometheusDecoder(), b"", 0
    for number, body in enumerate(bodies, 1):
        put(decoder, number, body, float(number))
        if number in takes:
            ripe_s = takes[number]
            booked.take(decoder, None if ripe_s is None else number - ripe_s)
            state, done = decoder.state(), decoder.done() or 0
        if number in kills:  # nothing was booked since `state`
            decoder = PrometheusDecoder(state)
            for left in range(done + 1, number + 1):
                put(decoder, left, bodies[left - 1], float(number))
    return booked.take(decoder)


def list_widest(booked: Booked, name: str) -> list[dict[str, object]]:
    """Rows without those that a longer one of the same device and job covers: a first scrape alone does not show its interval."""
    rows = booked.list(name)
    if name not in ("devices", "allocations"):
        return rows

    def covers(row: dict[str, object], other: dict[str, object]) -> bool:
        same = all(row.get(c) == other.get(c) for c in ("device_id", "job_id", "share"))
        return same and row["from_utc"] < other["from_utc"] and row["to_utc"] >= other["to_utc"]  # type: ignore[operator]

    return [other for other in rows if not any(covers(row, other) for row in rows)]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(60))
def test_killed_anywhere(seed):
    """Rows, rates, and since when devices and allocations are there: all as if nothing had happened, and each event once."""
    r = Random(seed)
    bodies = make_bodies(r)
    numbers = range(1, len(bodies) + 1)
    takes = {n: r.choice([2.5, 3.5, 7.5]) for n in numbers if r.random() < 0.4}
    kills = {n for n in numbers if r.random() < 0.3}
    booked, expected = run(bodies, takes, kills), run(bodies, {}, set())
    for name in ("samples", "devices", "allocations", "device_events"):
        assert list_widest(booked, name) == list_widest(expected, name)


def test_a_state_that_is_none():
    """Bytes that are no state of this version are refused."""
    for content in (b"x", b"lfpd" + bytes(60), PrometheusDecoder().state()[:-3] + b"xyz"):
        with pytest.raises(DamageError, match="the state of the decoder"):
            PrometheusDecoder(content)
