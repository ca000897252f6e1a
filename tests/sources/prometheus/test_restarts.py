"""A decoder that is killed and made anew from its state goes on with the rows of one that was not."""

from random import Random

import pytest
from tests.sources.prometheus.streams import AT_MS, STEP_MS, Booked, Sample, put, series

from loadfactor.base.errors import DamageError
from loadfactor.sources.prometheus.decoder import PrometheusDecoder

FIELDS = (
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_PROF_SM_ACTIVE",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
    "DCGM_FI_PROF_PCIE_TX_BYTES_TOTAL",
    "DCGM_FI_DEV_XID_ERRORS",
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
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
        assert booked.list(name) == expected.list(name)


def test_a_state_that_is_none():
    """Bytes that are no state of this version are refused."""
    for content in (b"x", b"lfpd" + bytes(60), PrometheusDecoder().state()[:-3] + b"xyz"):
        with pytest.raises(DamageError, match="the state of the decoder"):
            PrometheusDecoder(content)
