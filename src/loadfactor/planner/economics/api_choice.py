"""Choice of an API to compare with: the one named, the price given, or one that hosts the same network."""

from dataclasses import dataclass

from loadfactor.base.errors import InputError
from loadfactor.catalog.token_prices import TokenPrice, hosted_prices, token_price
from loadfactor.planner.economics.breakeven import ApiPrice, MeanRequest
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
    """The price of a catalog entry."""
    return ApiPrice(listed.input_price_per_mtok, listed.output_price_per_mtok)
