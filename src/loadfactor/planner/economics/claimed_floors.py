"""A much quoted claim about break-even floors, reproduced with everything it silently assumes."""

from dataclasses import dataclass, field

from loadfactor.planner.economics.breakeven import ApiPrice, BreakEven, MeanRequest, ReplicaCost, find_break_even


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
