"""Bills with damage of every kind: read, or refused in one line; never a traceback, never a total that nobody billed."""

import gzip
import random
from pathlib import Path

import pytest
from tests.sources.billing.bills import read_bill

from loadfactor.base.errors import LoadfactorError
from loadfactor.sources.billing.focus import SOURCE

HEAD = (
    "ProviderName,BillingAccountId,BillingCurrency,BillingPeriodStart,ChargePeriodStart,BilledCost,EffectiveCost,Tags\n"
)
BILL = HEAD + "".join(f'AWS,1,USD,2024-09-01,2024-09-{d:02},{d}.25,{d}.25,"{{""team"":""t""}}"\n' for d in range(1, 29))
WORDS = (b'"', b",", b"NaN", b"1e999", b"\0", b"-", b"\xf0\x9f\x98\x80", b"5/1/25", b"9" * 40, b"EUR", b"\n\n", b"\xff")


def flip(data: bytearray, rnd: random.Random) -> bytes:
    """Three bytes are others."""
    for _ in range(3):
        data[rnd.randrange(len(data))] = rnd.randrange(256)
    return bytes(data)


def insert(data: bytearray, rnd: random.Random) -> bytes:
    """Something stands where it should not."""
    at = rnd.randrange(len(data))
    data[at:at] = rnd.choice(WORDS)
    return bytes(data)


def cut_gzip(data: bytearray, rnd: random.Random) -> bytes:
    """A gzip file that ends early."""
    packed = gzip.compress(bytes(data))
    return packed[: rnd.randrange(len(packed) // 2, len(packed))]


@pytest.mark.parametrize("damage", [flip, insert])
def test_damage_is_read_or_refused_in_one_line(damage, tmp_path: Path) -> None:
    """Whatever stands in a bill."""
    path, said = tmp_path / "bill.csv", []
    for seed in range(40):
        path.write_bytes(damage(bytearray(BILL.encode()), random.Random(seed)))
        try:
            read_bill(SOURCE, path)
        except LoadfactorError as error:
            said.append(str(error))
    assert said
    assert not [text for text in said if "\n" in text]


def test_a_gzip_file_that_ends_early_is_refused(tmp_path: Path) -> None:
    """Wherever it ends."""
    path = tmp_path / "bill.csv.gz"
    for seed in range(20):
        path.write_bytes(cut_gzip(bytearray(BILL.encode()), random.Random(seed)))
        with pytest.raises(LoadfactorError, match=r"truncated gzip|corrupt gzip") as error:
            read_bill(SOURCE, path)
        assert "\n" not in str(error.value)
