"""Plan of self-hosting against an API: the floor, the bills at a demand, what moves the floor, in one answer."""

from dataclasses import dataclass, field, replace

from loadfactor.base.errors import InputError
from loadfactor.base.units import S_PER_DAY, S_PER_HOUR
from loadfactor.catalog.token_prices import TokenPrice, hosted_prices, token_price
from loadfactor.planner.economics.breakeven import (
    ApiPrice,
    BreakEven,
    ClaimedFloor,
    MeanDemand,
    MeanRequest,
    ReplicaCost,
    Sensitivity,
    compare_at_demand,
    find_break_even,
    reproduce_claimed_floors,
    vary_inputs,
)
from loadfactor.planner.economics.request import BreakEvenRequest

DEFAULT_MODEL = "llama-3.1-8b"  # small, and hosted by many


@dataclass(frozen=True)
class ApiChoice:
    """The API's name and price; `listed` is the catalog's entry, None where the price was given.

    `offers` are all list prices of the same network where the choice was not the user's.
    """

    name: str
    price: ApiPrice
    listed: TokenPrice | None = None
    offers: tuple[TokenPrice, ...] = ()


def choose_model(request: BreakEvenRequest) -> str:
    """The network whose throughput is planned; empty where only a throughput is known, the default where nothing is given.

    Raises InputError where an API is named but nothing about what would take its place.
    """
    if request.model or request.is_measured:
        return request.model
    if request.api or request.api_price:
        raise InputError(
            "say what would replace the API: --tokens-per-s (in and out), --output-tokens-per-s, or --model"
        )
    return DEFAULT_MODEL


def choose_api(request: BreakEvenRequest, model: str) -> ApiChoice:
    """The API to compare with. `model` is the network served, empty where only its throughput is known.

    Of several that host the same network the middle one by what the mean request costs is taken.
    Raises InputError where nothing is named and no such API is listed.
    """
    if request.api and request.api_price:
        raise InputError("name the API once: --api openai/gpt-4o-mini or --api-price 0.15,0.60 per million tokens")
    if request.api_price:
        if len(request.api_price) > 2:
            raise InputError(f"--api-price takes one number or input,output as 0.15,0.60, got {len(request.api_price)}")
        return ApiChoice("the API", ApiPrice(request.api_price[0], request.api_price[-1]))
    if request.api:
        listed = token_price(request.api)
        return ApiChoice(listed.id, read_price(listed), listed)
    offers = hosted_prices(model)
    if not offers:
        of = f" that hosts {model}" if model else ""
        raise InputError(
            f"the catalog knows no API{of}; name one: --api openai/gpt-4o-mini (see --api list), or "
            "--api-price 0.15,0.60 per million tokens"
        )
    mean = MeanRequest(request.input_tokens, request.output_tokens)
    ranked = sorted(offers, key=lambda offer: mean.cost(read_price(offer)))
    listed = ranked[(len(ranked) - 1) // 2]
    return ApiChoice(listed.id, read_price(listed), listed, offers)


def read_price(listed: TokenPrice) -> ApiPrice:
    return ApiPrice(listed.input_price_per_mtok, listed.output_price_per_mtok)


@dataclass(frozen=True)
class MeasuredLoad:
    """Requests and tokens over `span_s` seconds, nights included, of jobs that held `gpu_s` GPU-seconds of it.

    `duty_share`: the share of the counted time in which tokens came; `counted_share`: that of the held time that is counted, the
    rest made an unknown number. `busiest_…` is the highest of an hour. `cost` is None where no price is known.
    """

    jobs: tuple[str, ...]
    span_s: float
    gpu_s: float
    cost: float | None
    currency: str
    requests: float
    prompt_tokens: float
    output_tokens: float
    duty_share: float
    counted_share: float
    busiest_tokens_per_gpu_s: float
    busiest_requests_per_s: float
    gpus_per_replica: int

    @property
    def requests_per_s(self) -> float:
        """Mean demand.

        >>> load = MeasuredLoad(("chat",), 7200, 14400, 8, "USD", 3600, 1.8e6, 0.36e6, 0.5, 1, 300, 1, 2)
        >>> load.requests_per_s, load.input_tokens, load.output_tokens_each, load.peak_ratio
        (0.5, 500.0, 100.0, 2.0)
        >>> load.tokens_per_gpu_s, load.price_per_gpu_hour, load.cost_per_hour, load.share_of(300)
        (150.0, 2.0, 4.0, 0.5)
        """
        return self.requests / self.span_s

    @property
    def requests_per_day(self) -> float:
        return self.requests_per_s * S_PER_DAY

    @property
    def input_tokens(self) -> float:
        """Of the mean request; those from a cache, too."""
        return self.prompt_tokens / self.requests

    @property
    def output_tokens_each(self) -> float:
        return self.output_tokens / self.requests

    @property
    def peak_ratio(self) -> float:
        """Demand of the busiest hour over the mean."""
        return max(1.0, self.busiest_requests_per_s / self.requests_per_s)

    @property
    def gpus(self) -> float:
        return self.gpu_s / self.span_s

    @property
    def tokens_per_gpu_s(self) -> float:
        return (self.prompt_tokens + self.output_tokens) / self.gpu_s

    @property
    def price_per_gpu_hour(self) -> float | None:
        """What a held GPU-hour cost."""
        return None if self.cost is None else self.cost / self.gpu_s * S_PER_HOUR

    @property
    def cost_per_hour(self) -> float | None:
        return None if self.cost is None else self.cost / self.span_s * S_PER_HOUR

    def share_of(self, saturated_tokens_per_gpu_s: float) -> float:
        """The mean load as a share of what the held GPUs would serve if they were always saturated."""
        return self.tokens_per_gpu_s / saturated_tokens_per_gpu_s


@dataclass(frozen=True)
class BreakEvenPlan(BreakEven):
    """The floor and what it means. `demand` compares the bills at the demand given; `measured` is the load in a store."""

    replica: ReplicaCost
    api: str
    api_price: ApiPrice
    request: MeanRequest
    requests_per_user_hour: float
    demand: MeanDemand | None
    sensitivities: tuple[Sensitivity, ...]
    claimed_floors: tuple[ClaimedFloor, ...] = field(default_factory=reproduce_claimed_floors)
    currency: str = "USD"
    measured: MeasuredLoad | None = None
    peak_ratio: float = 1.0
    throughput_range: tuple[float, float] | None = None
    """Factors on a planned throughput between which four of five measured ones lie; None where it was measured."""

    @property
    def floor_range(self) -> tuple[float, float] | None:
        """The floor from the higher to the lower end of the throughput; None where that was measured."""
        if self.throughput_range is None:
            return None
        low, high = self.throughput_range
        return self.floor_share / high, self.floor_share / low

    @property
    def is_open(self) -> bool:
        """True where the choice between a replica and the API turns inside the range of the throughput."""
        if self.throughput_range is None:
            return False
        return any(self._pays_at(factor) != self.self_hosting_pays for factor in self.throughput_range)

    def _pays_at(self, factor: float) -> bool:
        """Whether self-hosting pays, at the demand given where there is one, when throughput is so many times the planned."""
        replica = replace(self.replica, tokens_per_s=self.replica.tokens_per_s * factor)
        if not find_break_even(replica, self.api_price, self.request).pays:
            return False
        if self.demand is None:
            return True
        rate = self.demand.requests_per_s
        return compare_at_demand(replica, self.api_price, self.request, rate, self.peak_ratio).self_hosting_pays

    @property
    def measured_share(self) -> float | None:
        """The measured load as a share of saturated throughput, to be held against the floor; None where none was measured."""
        return None if self.measured is None else self.measured.share_of(self.replica.tokens_per_s / self.replica.gpus)

    @property
    def floor_users(self) -> float | None:
        """Users whose requests reach the floor; None where nothing does."""
        return self.count_users(self.requests_per_user_hour) if self.pays else None

    @property
    def self_hosting_pays(self) -> bool:
        """True when it pays at some utilization, and at the demand given."""
        return self.pays and (self.demand is None or self.demand.self_hosting_pays)


def plan_break_even(
    replica: ReplicaCost,
    api: str,
    price: ApiPrice,
    request: MeanRequest,
    requests_per_s: float | None = None,
    peak_ratio: float = 1.0,
    requests_per_user_hour: float = 1.0,
    measured: MeasuredLoad | None = None,
    throughput_range: tuple[float, float] | None = None,
) -> BreakEvenPlan:
    """One replica against one API.

    >>> plan = plan_break_even(ReplicaCost(1.006, 559), "an API", ApiPrice(0.5, 1.5), MeanRequest(500, 500), 0.5)
    >>> round(plan.floor_share, 3), plan.demand.replicas, plan.self_hosting_pays
    (0.5, 1, True)
    """
    found = find_break_even(replica, price, request)
    demand = None
    if requests_per_s is not None:
        demand = compare_at_demand(replica, price, request, requests_per_s, peak_ratio)
    return BreakEvenPlan(
        **vars(found),
        replica=replica,
        api=api,
        api_price=price,
        request=request,
        requests_per_user_hour=requests_per_user_hour,
        demand=demand,
        sensitivities=vary_inputs(replica, price, request),
        measured=measured,
        peak_ratio=peak_ratio,
        throughput_range=throughput_range,
    )
