"""What does an hour of a GPU you own cost, whether it works or not?

A year of one server = capital + energy (or colocation) + network, storage and CPU + support + staff; divided by the GPU-hours it
is up. Capital is shown two ways: the annuity (C − S/(1+r)ⁿ)·CRF with CRF = r/(1 − (1+r)⁻ⁿ), which pays for the money tied up, and
the straight line (C − S)/n of the accounts, which does not. Decisions use the annuity.
"""

from dataclasses import dataclass

from loadfactor.errors import PlanError
from loadfactor.units import H_PER_YEAR, W_PER_KW


@dataclass(frozen=True)
class OwnedServer:
    """One server and what it takes to run it. Shares are fractions of one; money is USD.

    `network_share` is network, storage and CPU hosts as a share of the server's price, written off over the same life;
    `support_share` is paid every year; `colocation_usd_per_kw_month`, when given, replaces energy and PUE (an all-in rate on
    the full power).
    """

    server_usd: float
    gpus: int = 8
    life_years: float = 4.0
    cost_of_capital_share: float = 0.10
    residual_share: float = 0.20
    power_w: float = 10_200.0
    load_share: float = 0.8
    pue: float = 1.3
    usd_per_kwh: float = 0.08
    colocation_usd_per_kw_month: float | None = None
    network_share: float = 0.15
    support_share: float = 0.05
    staff_usd_per_year: float = 8_000.0
    availability_share: float = 0.97

    def __post_init__(self) -> None:
        """Refuse what cannot be, naming the input."""
        for name in ("server_usd", "gpus", "life_years"):
            if getattr(self, name) <= 0:
                raise PlanError(f"{name} must be positive, got {getattr(self, name):g}")
        for name in (
            "cost_of_capital_share",
            "power_w",
            "usd_per_kwh",
            "network_share",
            "support_share",
            "staff_usd_per_year",
        ):
            if getattr(self, name) < 0:
                raise PlanError(f"{name} must not be negative, got {getattr(self, name):g}")
        if not 0 <= self.residual_share <= 1:
            raise PlanError(f"residual_share is a fraction of the price from 0 to 1, got {self.residual_share:g}")
        if not 0 < self.availability_share <= 1:
            raise PlanError(f"availability_share lies above 0 and at most at 1, got {self.availability_share:g}")
        if not 0 <= self.load_share <= 1:
            raise PlanError(f"load_share is a fraction of full power from 0 to 1, got {self.load_share:g}")
        if self.pue < 1:
            raise PlanError(f"pue is at least 1 (all power reaches the servers), got {self.pue:g}")
        if self.colocation_usd_per_kw_month is not None and self.colocation_usd_per_kw_month <= 0:
            raise PlanError(
                f"colocation_usd_per_kw_month must be positive, got {self.colocation_usd_per_kw_month:g}; "
                "leave it out to pay for energy"
            )


@dataclass(frozen=True)
class OwnedCost:
    """A year of one server, term by term, USD; and what that makes of a GPU-hour."""

    capital_usd: float
    straight_line_capital_usd: float
    energy_usd: float
    colocation_usd: float
    network_usd: float
    straight_line_network_usd: float
    support_usd: float
    staff_usd: float
    gpu_hours: float
    available_gpu_hours: float

    @property
    def running_usd(self) -> float:
        """Everything but capital."""
        return self.energy_usd + self.colocation_usd + self.support_usd + self.staff_usd

    @property
    def total_usd(self) -> float:
        """The year with the annuity: what decisions use."""
        return self.capital_usd + self.network_usd + self.running_usd

    @property
    def straight_line_total_usd(self) -> float:
        """The year as the accounts show it, without the cost of the money tied up."""
        return self.straight_line_capital_usd + self.straight_line_network_usd + self.running_usd

    @property
    def usd_per_gpu_hour(self) -> float:
        """Per installed GPU-hour."""
        return self.total_usd / self.gpu_hours

    @property
    def usd_per_available_gpu_hour(self) -> float:
        """Per GPU-hour the server is up: what compares with a rented hour."""
        return self.total_usd / self.available_gpu_hours

    @property
    def straight_line_usd_per_available_gpu_hour(self) -> float:
        """The same by the accounts."""
        return self.straight_line_total_usd / self.available_gpu_hours

    def usd_per_used_gpu_hour(self, utilization_share: float) -> float:
        """Per hour that somebody used; at zero use there is none to divide by, so PlanError."""
        if not 0 < utilization_share <= 1:
            raise PlanError(f"utilization lies above 0 and at most at 1, got {utilization_share:g}")
        return self.usd_per_available_gpu_hour / utilization_share

    def break_even_share(self, usd_per_rented_gpu_hour: float) -> float:
        """The utilization above which owning beats paying this much per used hour; above 1 it never does."""
        if usd_per_rented_gpu_hour <= 0:
            raise PlanError(f"a rented GPU-hour must cost something, got {usd_per_rented_gpu_hour:g}")
        return self.usd_per_available_gpu_hour / usd_per_rented_gpu_hour


def capital_recovery_factor(cost_of_capital_share: float, years: float) -> float:
    """The yearly payment that repays 1 with interest: r/(1 − (1+r)⁻ⁿ), or 1/n where the money costs nothing.

    >>> round(capital_recovery_factor(0.10, 4), 5), capital_recovery_factor(0.0, 4)
    (0.31547, 0.25)
    """
    if years <= 0:
        raise PlanError(f"life_years must be positive, got {years:g}")
    if cost_of_capital_share == 0:
        return 1 / years
    discount: float = (1 + cost_of_capital_share) ** -years
    return cost_of_capital_share / (1 - discount)


def own(server: OwnedServer) -> OwnedCost:
    """A year of the server.

    >>> cost = own(OwnedServer(server_usd=300_000))
    >>> round(cost.total_usd), round(cost.usd_per_gpu_hour, 4), round(cost.usd_per_available_gpu_hour, 4)
    (126343, 1.8028, 1.8586)
    >>> round(cost.break_even_share(2.95), 3), round(cost.usd_per_used_gpu_hour(0.4), 3)
    (0.63, 4.647)
    """
    factor = capital_recovery_factor(server.cost_of_capital_share, server.life_years)
    residual_usd = server.residual_share * server.server_usd
    network_usd = server.network_share * server.server_usd
    power_kw = server.power_w / W_PER_KW
    by_meter = server.colocation_usd_per_kw_month is None
    gpu_hours = float(H_PER_YEAR * server.gpus)
    return OwnedCost(
        capital_usd=(server.server_usd - residual_usd / (1 + server.cost_of_capital_share) ** server.life_years)
        * factor,
        straight_line_capital_usd=(server.server_usd - residual_usd) / server.life_years,
        energy_usd=power_kw * server.load_share * H_PER_YEAR * server.pue * server.usd_per_kwh if by_meter else 0.0,
        colocation_usd=0.0 if by_meter else power_kw * (server.colocation_usd_per_kw_month or 0.0) * 12,
        network_usd=network_usd * factor,
        straight_line_network_usd=network_usd / server.life_years,
        support_usd=server.support_share * server.server_usd,
        staff_usd=server.staff_usd_per_year,
        gpu_hours=gpu_hours,
        available_gpu_hours=gpu_hours * server.availability_share,
    )
