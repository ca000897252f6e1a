"""The text that Prometheus scrapes: names of gauges from the declarations of metrics, and lines of samples.

The unit stands last: `loadfactor_utilization_ratio`, `loadfactor_paid_gpu_hours`, `loadfactor_cost_usd`; split by a dimension,
`loadfactor_team_cost_usd{team="vision"}`, so that the sum of one name counts nothing twice; and so have windows other than the last
hour, `loadfactor_24h_cost_usd`. An unknown value has no line.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Final, Literal, NamedTuple

from loadfactor.metrics.metric import CURRENCY, Metric

Labels = Mapping[str, str]
_UNITS: Final = {
    "share": ("share", "ratio"),
    "GPU-hours": ("gpu_hours", "gpu_hours"),
    "W": ("w", "watts"),
    "°C": ("c", "celsius"),
    "kWh": ("kwh", "kwh"),
    "s": ("s", "seconds"),
    "jobs": ("jobs", "jobs"),
    "FLOP": ("flops", "flops"),
    "tokens/s": ("s", "second"),
}
"""Units of metrics: as a metric's name writes them, and as a gauge's name ends."""


class MetricFamily(NamedTuple):
    """All samples of one name."""

    name: str
    about: str
    kind: Literal["gauge", "counter"]
    samples: Sequence[tuple[Labels, float]]


def name_gauge(metric: Metric, currency: str, by: Sequence[str] = (), window: str = "") -> str:
    """The name of a metric's gauge, split by dimensions if any; a window other than the last hour is named.

    >>> from loadfactor.metrics import metric
    >>> [name_gauge(metric(name), "EUR") for name in ("utilization", "paid_gpu_hours", "temperature_c_max")]
    ['loadfactor_utilization_ratio', 'loadfactor_paid_gpu_hours', 'loadfactor_temperature_max_celsius']
    >>> name_gauge(metric("cost_per_token"), "EUR", ("team",), "24h")
    'loadfactor_24h_team_cost_per_token_eur'
    """
    written, last = _UNITS.get(metric.unit, ("", currency.lower() if metric.unit.startswith(CURRENCY) else metric.unit))
    middle = f"_{metric.name}_".replace(f"_{written}_", "_").strip("_") if written else metric.name
    return "_".join(part for part in ("loadfactor", window, *by, middle, last) if part)


def name_coverage(by: Sequence[str] = (), window: str = "") -> str:
    """The name of the gauge that tells, by metric, how much was known of it.

    >>> name_coverage(("team",), "30m")
    'loadfactor_30m_team_coverage_ratio'
    """
    return "_".join(part for part in ("loadfactor", window, *by, "coverage_ratio") if part)


def write_exposition(families: Iterable[MetricFamily]) -> bytes:
    """The families as text, those without samples left out."""
    return "".join(line for family in families for line in _write_family(family)).encode("utf-8", "replace")


def _write_family(family: MetricFamily) -> Iterator[str]:
    known = [(labels, value) for labels, value in family.samples if isfinite(value)]
    if known:
        yield f"# HELP {family.name} {_escape(family.about)}\n# TYPE {family.name} {family.kind}\n"
    for labels, value in known:
        inside = ",".join(f'{name}="{_escape(text, quoted=True)}"' for name, text in labels.items())
        yield f"{family.name}{{{inside}}} {value!r}\n" if inside else f"{family.name} {value!r}\n"


def _escape(text: str, quoted: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quoted else text
