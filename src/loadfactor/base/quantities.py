"""Numbers, durations and shares as people write them: 15T, 20k, 2e12, 7d, 90min, 12 %."""

import re
from typing import Final

from loadfactor.base.errors import InputError
from loadfactor.base.units import H_PER_MONTH, H_PER_YEAR, S_PER_DAY, S_PER_HOUR, S_PER_MIN, S_PER_WEEK

_SIZES: Final = {"": 1.0, "k": 1e3, "K": 1e3, "m": 1e6, "M": 1e6, "G": 1e9, "b": 1e9, "B": 1e9, "T": 1e12, "P": 1e15}
_SECONDS: Final = {
    "s": 1,
    "min": S_PER_MIN,
    "m": S_PER_MIN,
    "h": S_PER_HOUR,
    "d": S_PER_DAY,
    "w": S_PER_WEEK,
    "mo": H_PER_MONTH * S_PER_HOUR,
    "y": H_PER_YEAR * S_PER_HOUR,
}
_BYTES: Final = (
    {"b": 1.0}
    | {f"{p}b": 1e3 ** (i + 1) for i, p in enumerate("kmgt")}
    | {f"{p}ib": 1024.0 ** (i + 1) for i, p in enumerate("kmgt")}
)
_LONGEST_S: Final = 500 * H_PER_YEAR * S_PER_HOUR
_WRITTEN: Final = re.compile(r"([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-z]*)")


def parse_number(text: str) -> float:
    """A number with an optional letter for thousands (k), millions (M), billions (B, G), trillions (T) or quadrillions (P).

    Raises InputError when it is no number.

    >>> parse_number("15T"), parse_number("20k"), parse_number("1_000"), parse_number("2.5e3")
    (15000000000000.0, 20000.0, 1000.0, 2500.0)
    """
    found = _WRITTEN.fullmatch(text.strip())
    if found is None or found[2] not in _SIZES:
        if text.strip().lower().lstrip("+-") in ("nan", "inf", "infinity"):
            return float(text)
        raise InputError(f"{text!r} is no number; write 512, 20k, 1.5M, 15T or 15e12")
    return float(found[1].replace("_", "")) * _SIZES[found[2]]


def parse_bytes(text: str) -> float:
    """Bytes: a number with B, kB, MB, GB, TB (thousands) or KiB, MiB, GiB, TiB (1,024s).

    Raises InputError when it is none, or not above zero.

    >>> parse_bytes("71GiB"), parse_bytes("80 GB")
    (76235669504.0, 80000000000.0)
    """
    found = _WRITTEN.fullmatch(text.strip())
    size = float(found[1].replace("_", "")) * _BYTES.get(found[2].lower(), 0.0) if found else 0.0
    if not size > 0:
        raise InputError(f"{text!r} is no size; write 71GiB or 80GB")
    return size


def parse_duration_s(text: str) -> float:
    """A length of time in seconds: a number with s, min, h, d, w, mo (a twelfth of a year) or y (365 days).

    Raises InputError when it is none, not above zero, or above 500 years.

    >>> parse_duration_s("7d") == 7 * S_PER_DAY, parse_duration_s("90min"), parse_duration_s("18mo") == parse_duration_s("1.5y")
    (True, 5400.0, True)
    """
    found = _WRITTEN.fullmatch(text.strip())
    seconds = float(found[1].replace("_", "")) * _SECONDS[found[2]] if found and found[2] in _SECONDS else 0.0
    if not 0 < seconds <= _LONGEST_S:
        raise InputError(f"{text!r} is no length of time; write 90min, 12h, 7d or 4w")
    return seconds


def write_share(share: float, decimals: int = 0) -> str:
    """A share of one in percent, for a sentence.

    >>> write_share(0.123), write_share(0.1234, 1)
    ('12 %', '12.3 %')
    """
    return f"{share:.{decimals}%}".replace("%", " %")
