"""The text that Prometheus scrapes: names of gauges from the declarations of metrics, and lines of samples.

The unit stands last: `loadfactor_utilization_ratio`, `loadfactor_paid_gpu_hours`, `loadfactor_cost_usd`; split by a dimension,
`loadfactor_team_cost_usd{team="vision"}`, so that the sum of one name counts nothing twice; and so have windows other than the last
hour, `loadfactor_24h_cost_usd`. An unknown value has no line.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Final, Literal, NamedTuple

from loadfactor.base.units import S_PER_DAY, S_PER_HOUR, S_PER_MIN
from loadfactor.metrics import METRICS
from loadfactor.metrics.metric import CURRENCY, Metric, PerUnit, Sum

Labels = Mapping[str, str]
_UNITS: Final = {
    "share": ("share", "ratio"),
    "GPU-hours": ("gpu_hours", "gpu_hours"),
    "W": ("w", "watts"),
    "°C": ("c", "celsius"),
    "kWh": ("kwh", "kwh"),
    "kgCO2e": ("kg", "kilograms"),
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
        yield f"{family.name}{_write_labels(labels)} {value!r}\n"


def write_openmetrics(history: Iterable[tuple[MetricFamily, int]]) -> Iterator[str]:
    """Families and the times that they are of (s since 1970) as the text of OpenMetrics, a family a piece, in the order of time."""
    of_name: dict[str, list[tuple[MetricFamily, int]]] = {}
    for family, at_s in history:
        of_name.setdefault(family.name, []).append((family, at_s))
    for name, dated in of_name.items():
        dated.sort(key=lambda item: item[1])
        about, kind = dated[0][0].about, dated[0][0].kind
        lines = [
            f"{name}{_write_labels(labels)} {value!r} {at_s}\n"
            for family, at_s in dated
            for labels, value in family.samples
            if isfinite(value)
        ]
        if lines:
            yield f"# HELP {name} {_escape(about, quoted=True)}\n# TYPE {name} {kind}\n" + "".join(lines)
    yield "# EOF\n"


def _write_labels(labels: Labels) -> str:
    inside = ",".join(f'{name}="{_escape(text, quoted=True)}"' for name, text in labels.items())
    return f"{{{inside}}}" if inside else ""


def _escape(text: str, quoted: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quoted else text


SHOWN: Final = tuple(m for m in METRICS if not (isinstance(m.kind, Sum) and m.kind.each))
"""Metrics that are one number."""
NO_NAME: Final = "(none)"
OTHERS: Final = "(others)"
ORDER: Final = "paid_gpu_hours"
"""By this the largest parts are found."""


def _pick(*names: str) -> tuple[Metric, ...]:
    return tuple(m for m in METRICS if m.name in names)


UNIT_COSTS: Final = tuple(m for m in METRICS if isinstance(m.kind, PerUnit))
OF_NODES: Final = _pick(
    "paid_gpu_hours", "allocated_gpu_hours", "idle_gpu_hours", "unobserved_gpu_hours", "down_gpu_hours", "utilization",
    "throttled_share", "power_w", "temperature_c_max", "mem_utilization_peak",
)  # fmt: skip
OF_JOBS: Final = (
    *_pick(
        "paid_gpu_hours", "idle_gpu_hours", "unobserved_gpu_hours", "effective_gpu_hours", "utilization", "sm_activity",
        "gpu_util", "tensor_activity", "pcie_saturation", "nvlink_saturation", "mem_utilization", "mem_utilization_peak",
        "throttled_share", "power_w", "cost", "idle_cost", "cost_per_effective_gpu_hour",
    ),
    *UNIT_COSTS,
)  # fmt: skip
OF_WHOLE_JOBS: Final = _pick(
    "paid_gpu_hours", "idle_gpu_hours", "effective_gpu_hours", "utilization", "cost", "idle_cost",
    "cost_per_effective_gpu_hour",
)  # fmt: skip
"""Told of jobs since they began."""
OF_HELD_JOBS: Final = _pick("paid_gpu_hours", "idle_gpu_hours", "utilization", "cost")
"""Told of jobs with who holds them."""
OF_GPUS_OF_JOBS: Final = _pick("paid_gpu_hours", "utilization", "utilization_histogram")


@dataclass(frozen=True)
class GaugeSplit:
    """One question. `largest`: how many parts have a line of their own, by what was paid for; `fresh_s`: for how long it is kept.

    `covered`: metrics whose coverage is shown for every part.
    """

    by: tuple[str, ...] = ()
    window_s: int = S_PER_HOUR
    metrics: tuple[Metric, ...] = SHOWN
    largest: int = 20
    fresh_s: float = 30
    covered: tuple[str, ...] = ("utilization",)

    def name(self, metric: Metric, currency: str) -> str:
        """The name of a metric's gauge."""
        return name_gauge(metric, currency, self.by, name_window(self.window_s))


def name_window(window_s: float) -> str:
    """A window as names of gauges say it; the last hour goes without saying.

    >>> [name_window(s) for s in (3600, 86400, 1800, 604800)]
    ['', '24h', '30m', '7d']
    """
    if window_s == S_PER_HOUR:
        return ""
    for unit, s in (("d", S_PER_DAY), ("h", S_PER_HOUR), ("m", S_PER_MIN)):
        if window_s % s == 0 and window_s > s:
            return f"{int(window_s // s)}{unit}"
    return f"{int(window_s)}s"


SPLITS: Final = (
    GaugeSplit(covered=tuple(m.name for m in SHOWN)),
    GaugeSplit(("pool",)),
    GaugeSplit(("accelerator",)),
    GaugeSplit(("team",)),
    GaugeSplit(("node",), metrics=OF_NODES, largest=500),
    GaugeSplit(("job",), metrics=OF_JOBS, largest=100),
    GaugeSplit(("job", "team", "user"), metrics=OF_HELD_JOBS, largest=100, covered=()),
    GaugeSplit((), S_PER_DAY, fresh_s=300, covered=tuple(m.name for m in SHOWN)),
    GaugeSplit(("pool",), S_PER_DAY, fresh_s=300),
    GaugeSplit(("team",), S_PER_DAY, fresh_s=300),
    GaugeSplit(("job",), S_PER_DAY, OF_JOBS, largest=100, fresh_s=300),
    GaugeSplit(("job", "device"), S_PER_DAY, OF_GPUS_OF_JOBS, largest=256, fresh_s=300, covered=()),
)
"""In the order of their queries. A day changes slowly, and is queried seldom."""
