"""Break-even of serving a model yourself against an API's price per token, the demand it takes, and the plan that says so.

A replica costs as much an hour whether it is full or empty; saturated it serves a number of requests per hour. Self-hosting
pays above the utilization floor u* = (replica cost per request at full load) / (API price per request), and never when u* > 1.
Utilization here is the share of saturated throughput over all paid hours, nights included; nothing else may be put in its place.

What one demand costs stands beside it in three ways: at the API, on rented GPUs, and on owned ones, which are paid for first.

Two models compared: the larger has the lower floor only if its API price exceeds the smaller's by more than its cost per token
does (p₂/p₁ > c₂/c₁). Against the same API price it never does while it costs more to serve.
"""

from dataclasses import dataclass, field, replace
from math import ceil

from loadfactor.base.errors import InputError, PlanError
from loadfactor.base.limits import MOST_GPUS
from loadfactor.base.units import H_PER_DAY, H_PER_MONTH, S_PER_HOUR, TOKENS_PER_MTOK
from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.prices import ChosenPrice
from loadfactor.catalog.token_prices import TokenPrice, hosted_prices, token_price
from loadfactor.planner.economics.measured_load import MeasuredLoad
from loadfactor.planner.economics.ownership import find_owned_server
from loadfactor.planner.economics.request import BreakEvenRequest
from loadfactor.planner.economics.ways import Turn, Way, find_turn, list_ways
from loadfactor.planner.hardware.marginal import Marginal, list_enlargements
from loadfactor.planner.hardware.workload import MODEL


@dataclass(frozen=True)
class ApiPrice:
    """Price of the API per million tokens of each kind."""

    input_price_per_mtok: float
    output_price_per_mtok: float

    def __post_init__(self) -> None:
        if self.input_price_per_mtok + self.output_price_per_mtok == 0:
            raise PlanError("the API price is zero: nothing self-hosted beats it; give a price above 0")


@dataclass(frozen=True)
class MeanRequest:
    """The mean request, in tokens."""

    input_tokens: float
    output_tokens: float

    def __post_init__(self) -> None:
        if min(self.input_tokens, self.output_tokens) < 0 or self.tokens <= 0:
            raise PlanError(
                f"a request needs tokens: got {self.input_tokens:g} in and {self.output_tokens:g} out; for a chat try 500 and 250"
            )

    @property
    def tokens(self) -> float:
        return self.input_tokens + self.output_tokens

    def cost(self, price: ApiPrice) -> float:
        return (
            self.input_tokens * price.input_price_per_mtok + self.output_tokens * price.output_price_per_mtok
        ) / TOKENS_PER_MTOK


@dataclass(frozen=True)
class ReplicaCost:
    """One copy of the model: the cost per hour of all its GPUs, and saturated tokens per second, in and out together."""

    cost_per_hour: float
    tokens_per_s: float
    gpus: int = 1

    def __post_init__(self) -> None:
        if self.tokens_per_s <= 0:
            raise PlanError(f"a replica's saturated throughput must be positive, got {self.tokens_per_s:g} tokens/s")


@dataclass(frozen=True)
class BreakEven:
    """The floor, what it means in demand, and the prices on both sides per million tokens of this request mix."""

    floor_share: float
    api_price_per_mtok: float
    full_cost_per_mtok: float
    floor_requests_per_s: float
    saturated_requests_per_s: float

    @property
    def pays(self) -> bool:
        """False when no utilization reaches the API's price."""
        return self.floor_share <= 1

    def cost_per_mtok(self, utilization_share: float) -> float:
        return self.full_cost_per_mtok / utilization_share

    def count_users(self, requests_per_user_hour: float) -> float:
        """How many users, each sending so many requests an hour around the clock, the floor means."""
        return self.floor_requests_per_s * S_PER_HOUR / requests_per_user_hour


def find_break_even(replica: ReplicaCost, price: ApiPrice, request: MeanRequest) -> BreakEven:
    """The utilization floor of one replica against one API price.

    A 7B network on one A10G against GPT-3.5-turbo, and a 13B on one A100 against GPT-4-turbo and then GPT-3.5-turbo:

    >>> even = MeanRequest(500, 500)
    >>> cheap, dear = ApiPrice(0.5, 1.5), ApiPrice(10, 30)
    >>> round(find_break_even(ReplicaCost(1.006, 559), cheap, even).floor_share, 3)
    0.5
    >>> round(find_break_even(ReplicaCost(3.67, 510), dear, even).floor_share, 3)
    0.1
    >>> round(find_break_even(ReplicaCost(3.67, 510), cheap, even).floor_share, 3)  # never
    1.999
    """
    saturated_requests_per_s = replica.tokens_per_s / request.tokens
    full_cost_per_request = replica.cost_per_hour / (saturated_requests_per_s * S_PER_HOUR)
    api_cost_per_request = request.cost(price)
    if api_cost_per_request == 0:
        raise PlanError("this request costs nothing at the API's prices; give a price for the tokens it uses")
    floor = full_cost_per_request / api_cost_per_request
    per_mtok = TOKENS_PER_MTOK / request.tokens
    return BreakEven(
        floor_share=floor,
        api_price_per_mtok=api_cost_per_request * per_mtok,
        full_cost_per_mtok=full_cost_per_request * per_mtok,
        floor_requests_per_s=floor * saturated_requests_per_s,
        saturated_requests_per_s=saturated_requests_per_s,
    )


@dataclass(frozen=True)
class MeanDemand:
    """Self-hosting against the API at a given mean demand; `replicas` covers the peak, `peak_ratio` times the mean."""

    requests_per_s: float
    replicas: int
    utilization_share: float
    self_hosted_cost_per_hour: float
    api_price_per_hour: float

    @property
    def self_hosting_pays(self) -> bool:
        return self.self_hosted_cost_per_hour < self.api_price_per_hour


def compare_at_demand(
    replica: ReplicaCost,
    price: ApiPrice,
    request: MeanRequest,
    requests_per_s: float,
    peak_ratio: float = 1.0,
    replicas: int | None = None,
) -> MeanDemand:
    """Cost of both at a mean demand whose peak is `peak_ratio` times as high; whole replicas, sized for the peak if not given.

    >>> compare_at_demand(ReplicaCost(2.0, 1000), ApiPrice(1, 1), MeanRequest(500, 500), requests_per_s=2.5, peak_ratio=2.0)
    MeanDemand(requests_per_s=2.5, replicas=5, utilization_share=0.5, self_hosted_cost_per_hour=10.0, api_price_per_hour=9.0)
    """
    if peak_ratio < 1:
        raise PlanError(f"the peak is at least the mean: a ratio of 1 or more, got {peak_ratio:g}")
    saturated = replica.tokens_per_s / request.tokens
    replicas = replicas or ceil(requests_per_s * peak_ratio / saturated)
    if replicas * replica.gpus > MOST_GPUS:
        raise PlanError(
            f"{requests_per_s * peak_ratio:,.6g} requests/s at the peak take {replicas * replica.gpus:,.3g} GPUs, more than "
            f"{MOST_GPUS:,}; lower --requests-per-s or --peak-ratio, or give a faster replica"
        )
    return MeanDemand(
        requests_per_s,
        replicas,
        requests_per_s / (replicas * saturated),
        replicas * replica.cost_per_hour,
        requests_per_s * S_PER_HOUR * request.cost(price),
    )


@dataclass(frozen=True)
class Sensitivity:
    """The floor with one input changed."""

    changed: str
    floor_share: float


def vary_inputs(replica: ReplicaCost, price: ApiPrice, request: MeanRequest) -> tuple[Sensitivity, ...]:
    """The floor when a GPU-hour changes its price, the API gets cheaper, the throughput better or worse, the answers longer."""
    half_price = ApiPrice(price.input_price_per_mtok / 2, price.output_price_per_mtok / 2)
    longer = MeanRequest(request.input_tokens, request.output_tokens * 2)
    cases = (
        ("as given", replica, price, request),
        ("GPU-hour 30 % cheaper", replace(replica, cost_per_hour=replica.cost_per_hour * 0.7), price, request),
        ("GPU-hour 30 % more expensive", replace(replica, cost_per_hour=replica.cost_per_hour * 1.3), price, request),
        ("API at half its price", replica, half_price, request),
        ("throughput doubled", replace(replica, tokens_per_s=replica.tokens_per_s * 2), price, request),
        ("throughput halved", replace(replica, tokens_per_s=replica.tokens_per_s / 2), price, request),
        ("answers twice as long, same tokens/s", replica, price, longer),
    )
    return tuple(Sensitivity(words, find_break_even(r, p, q).floor_share) for words, r, p, q in cases)


def find_gpu_hour_price(replica: ReplicaCost, price: ApiPrice, request: MeanRequest, floor_share: float = 1.0) -> float:
    """The price of a GPU-hour at which the floor is exactly `floor_share`.

    >>> round(find_gpu_hour_price(ReplicaCost(3.67, 510), ApiPrice(0.5, 1.5), MeanRequest(1, 1)), 3)  # 1.836 M tokens at $1
    1.836
    """
    floor = find_break_even(replica, price, request).floor_share
    return replica.cost_per_hour / replica.gpus * floor_share / floor


@dataclass(frozen=True)
class ClaimedFloor:
    """One line of a claim about floors, with everything it silently assumes."""

    network: str
    against: str
    replica: ReplicaCost = field(repr=False)
    floor: BreakEven = field(repr=False)

    @property
    def floor_share(self) -> float:
        """The utilization above which self-hosting pays."""
        return self.floor.floor_share

    @property
    def pays(self) -> bool:
        """False when no utilization reaches the API's price."""
        return self.floor.pays


def reproduce_claimed_floors() -> tuple[ClaimedFloor, ...]:
    """The much quoted "7B breaks even near 50 % utilization, 13B near 10 %", and the same with one API for both.

    The source states no price, GPU or throughput. These reproduce it: a 7B on one A10G ($1.006/h, 559 tokens/s) against
    GPT-3.5-turbo ($0.50 in, $1.50 out), a 13B on one A100 ($3.67/h, 510 tokens/s) against GPT-4-turbo ($10 in, $30 out), half of
    the tokens output. The 10 % comes from an API 20 times as expensive, not from the size of the network.

    >>> [round(claim.floor.floor_share, 2) for claim in reproduce_claimed_floors()]
    [0.5, 0.1, 2.0]
    """
    even = MeanRequest(1, 1)
    small, large = ReplicaCost(1.006, 559), ReplicaCost(3.67, 510)
    cheap, dear = ApiPrice(0.5, 1.5), ApiPrice(10, 30)
    return (
        ClaimedFloor("7B, one A10G", "GPT-3.5-turbo", small, find_break_even(small, cheap, even)),
        ClaimedFloor("13B, one A100", "GPT-4-turbo", large, find_break_even(large, dear, even)),
        ClaimedFloor("13B, one A100", "GPT-3.5-turbo", large, find_break_even(large, cheap, even)),
    )


def lower_floor_needs_price_ratio(smaller: ReplicaCost, larger: ReplicaCost) -> float:
    """How many times as much the larger network's API must cost for the lower floor: its cost per token over the other's.

    >>> round(lower_floor_needs_price_ratio(ReplicaCost(1.006, 559), ReplicaCost(3.67, 510)), 2)
    4.0
    """
    return (larger.cost_per_hour / larger.tokens_per_s) / (smaller.cost_per_hour / smaller.tokens_per_s)


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
    return MODEL


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
class BreakEvenPlan(BreakEven):
    """The floor and what it means. `demand` and `ways` compare the bills of one demand; `measured` is the load in a store.

    `floor_replicas` is the smallest fleet that pays, `reach_share` how full a fleet can be on average with its peaks served.
    """

    accelerator: str
    replica: ReplicaCost
    api: str
    api_price: ApiPrice
    request: MeanRequest
    requests_per_user_hour: float
    demand: MeanDemand
    is_demand_given: bool
    ways: tuple[Way, ...]
    floor_replicas: int
    reach_share: float
    sensitivities: tuple[Sensitivity, ...]
    claimed_floors: tuple[ClaimedFloor, ...] = field(default_factory=reproduce_claimed_floors)
    currency: str = "USD"
    measured: MeasuredLoad | None = None
    peak_ratio: float = 1.0
    throughput_range: tuple[float, float] | None = None
    """Factors on a planned throughput between which four of five measured ones lie; None where it was measured."""
    price_range: tuple[float, float] = (1.0, 1.0)
    """Factors on the price of a GPU-hour between which the catalog lists it."""
    marginal: tuple[Marginal, ...] = ()
    """What more GPUs bring the fleet of the demand, where requested."""

    @property
    def pays(self) -> bool:
        """False when no demand that keeps the objective reaches the API's price."""
        return self.floor_share <= self.reach_share

    @property
    def floor_range(self) -> tuple[float, float] | None:
        """The floor at the ends of the throughput and of the listed price of a GPU-hour; None where both are known."""
        if self.throughput_range is None:
            return None
        (slow, fast), (low, high) = self.throughput_range, self.price_range
        return self.floor_share * low / fast, self.floor_share * high / slow

    @property
    def is_open(self) -> bool:
        """True where the choice between a fleet and the API turns inside the ranges of throughput and price."""
        if self.floor_range is None:
            return False
        factors = (end / self.floor_share for end in self.floor_range)
        return any(self._pays_at(factor) != self.self_hosting_pays for factor in factors)

    def _pays_at(self, factor: float) -> bool:
        """Whether self-hosting pays, at the demand given where there is one, when a token costs so many times the planned."""
        if self.floor_share * factor > self.reach_share:
            return False
        given = self.demand if self.is_demand_given else None
        return given is None or given.self_hosted_cost_per_hour * factor < given.api_price_per_hour

    @property
    def measured_share(self) -> float | None:
        """The measured load as a share of saturated throughput, to be held against the floor; None where none was measured."""
        return None if self.measured is None else self.measured.share_of(self.replica.tokens_per_s / self.replica.gpus)

    @property
    def floor_users(self) -> float | None:
        """Users whose requests reach the floor; None where nothing does."""
        return self.floor_replicas * self.count_users(self.requests_per_user_hour) if self.pays else None

    @property
    def users(self) -> float:
        """Users whose bills are compared."""
        return self.demand.requests_per_s * S_PER_HOUR / self.requests_per_user_hour

    @property
    def self_hosting_pays(self) -> bool:
        """True when it pays at some utilization, and at the demand given."""
        return self.pays and (not self.is_demand_given or self.demand.self_hosting_pays)

    @property
    def cheapest(self) -> Way:
        """The way with the smallest bill of a month, owned GPUs written off over their life."""
        return min(self.ways, key=lambda way: way.cost_per_month)

    @property
    def turn(self) -> Turn | None:
        """When owned GPUs become the cheapest by all that is paid until then; None where they never do."""
        return find_turn(self.ways)


@dataclass(frozen=True)
class Fleet:
    """Fleets that are planned: `replicas` of `replica` serve the demand, `floor_replicas` (0: none) are the smallest that pay."""

    replica: ReplicaCost
    replicas: int
    floor_replicas: int


def plan_break_even(
    replica: ReplicaCost,
    api: ApiChoice,
    request: BreakEvenRequest,
    price: ChosenPrice,
    fleet: Fleet | None = None,
    measured: MeasuredLoad | None = None,
    throughput_range: tuple[float, float] | None = None,
) -> BreakEvenPlan:
    """One kind of replica against one API; the `fleet` where one is planned, else whole replicas for the peak.

    >>> given = BreakEvenRequest(input_tokens=500, output_tokens=500, requests_per_s=0.5, peak_ratio=1)
    >>> price = ChosenPrice(1.006, "USD", "yours")
    >>> plan = plan_break_even(ReplicaCost(1.006, 559), ApiChoice("an API", ApiPrice(0.5, 1.5)), given, price)
    >>> round(plan.floor_share, 3), plan.demand.replicas, plan.self_hosting_pays, [way.name for way in plan.ways]
    (0.5, 1, True, ['API', 'rented', 'owned'])
    """
    mean = MeanRequest(request.input_tokens, request.output_tokens)
    found = find_break_even(replica, api.price, mean)
    peak_ratio, of_demand = request.peak_ratio or 1.0, fleet.replica if fleet else replica
    rate = request.mean_requests_per_s
    demand = compare_at_demand(of_demand, api.price, mean, rate, peak_ratio, fleet.replicas if fleet else None)
    reach = 1 / peak_ratio
    if fleet is not None:  # the simulation has the last word on whether a fleet can be so full
        pays = fleet.floor_replicas > 0
        reach = max(reach, found.floor_share) if pays else min(reach, found.floor_share * (1 - 1e-9))
    return BreakEvenPlan(
        **vars(found),
        accelerator=accelerator(request.accelerator).id,
        replica=replica,
        api=api.name,
        api_price=api.price,
        request=mean,
        requests_per_user_hour=request.requests_per_user_day / H_PER_DAY,
        demand=demand,
        is_demand_given=request.is_demand_given,
        ways=list_ways(
            demand.api_price_per_hour,
            demand.requests_per_s * S_PER_HOUR * mean.tokens / TOKENS_PER_MTOK,
            demand.replicas * of_demand.gpus,
            price.per_gpu_hour,
            find_owned_server(request.accelerator),
        ),
        floor_replicas=1 if fleet is None else fleet.floor_replicas,
        reach_share=reach,
        sensitivities=vary_inputs(replica, api.price, mean),
        measured=measured,
        peak_ratio=peak_ratio,
        throughput_range=throughput_range,
        price_range=price.range,
    )


def add_replicas(plan: BreakEvenPlan, node_gpus: int) -> tuple[Marginal, ...]:
    """Users more whose peaks whole replicas carry by a throughput that is given, and what their GPUs cost a month."""
    replica, replicas = plan.replica, plan.demand.replicas
    each = plan.saturated_requests_per_s / plan.peak_ratio * S_PER_HOUR / plan.requests_per_user_hour
    price = replica.cost_per_hour / replica.gpus * H_PER_MONTH
    found = []
    for step in list_enlargements(node_gpus, price, plan.currency):
        added = step.gpus // replica.gpus
        reason = "" if added else f"one replica takes {replica.gpus} GPUs, and these are {step.gpus}"
        now, then, gpus = replicas * each, (replicas + added) * each, added * replica.gpus
        found.append(Marginal(step.name, gpus, "users", now, then, then - now, gpus * price, then / now, reason))
    return tuple(found)
