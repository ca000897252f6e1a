"""`loadfactor plan breakeven`: does serving a model yourself beat an API's price per token, and what demand does it take?"""

from typing import TYPE_CHECKING, Annotated

import typer

from loadfactor.errors import InputError
from loadfactor.faces.answer import Assumption, present
from loadfactor.faces.cli.options import Format, Output
from loadfactor.faces.cli.plan.given_price import price_with_source
from loadfactor.faces.cli.plan.given_throughput import measured, planned
from loadfactor.faces.formats import money

if TYPE_CHECKING:
    from loadfactor.planner.economics.breakeven import ApiPrice


def add_to(app: typer.Typer) -> None:
    """Hang the question under `plan`."""
    app.command("breakeven")(breakeven)


def breakeven(
    api: Annotated[
        str,
        typer.Option(
            "--api", help="A model of the catalog of token prices: openai/gpt-4o-mini; `--api list` shows all."
        ),
    ] = "",
    api_price: Annotated[
        str,
        typer.Option(
            "--api-price", help="The API's price typed in, $ per million tokens: one number, or input,output."
        ),
    ] = "",
    tokens_per_s: Annotated[
        float | None,
        typer.Option(
            "--tokens-per-s", help="Measured saturated throughput of one replica, input and output tokens together."
        ),
    ] = None,
    output_tokens_per_s: Annotated[
        float | None, typer.Option("--output-tokens-per-s", help="The same, counting output tokens only.")
    ] = None,
    gpu: Annotated[
        str, typer.Option("--gpu", help="Accelerator of the replica; gives its price if none is typed in.")
    ] = "h100-sxm",
    gpus: Annotated[
        int | None,
        typer.Option("--gpus", help="GPUs of one replica; 1, or the planner's choice with --model, if not given."),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            "--model", help="Plan the throughput of this network (catalog name or config.json) instead of measuring."
        ),
    ] = "",
    engine: Annotated[str, typer.Option("--engine", help="Serving engine, with --model.")] = "vllm",
    ttft: Annotated[float, typer.Option("--ttft", help="Objective with --model: seconds to the first token.")] = 2.0,
    tpot: Annotated[
        float, typer.Option("--tpot", help="Objective with --model: milliseconds per output token.")
    ] = 50.0,
    price_per_gpu_hour: Annotated[
        float | None, typer.Option("--price-per-gpu-hour", help="Price of a GPU-hour, used or not.")
    ] = None,
    input_tokens: Annotated[float, typer.Option("--input-tokens", help="Input tokens of the mean request.")] = 500.0,
    output_tokens: Annotated[float, typer.Option("--output-tokens", help="Output tokens of the mean request.")] = 250.0,
    requests_per_s: Annotated[
        float | None, typer.Option("--requests-per-s", help="Your mean demand, nights included: compares the bills.")
    ] = None,
    peak_ratio: Annotated[float, typer.Option("--peak-ratio", help="Peak demand over mean demand.")] = 3.0,
    requests_per_user_hour: Annotated[
        float, typer.Option("--requests-per-user-hour", help="What one user sends in an hour, around the clock.")
    ] = 1.0,
    output_format: Format = "terminal",
    output: Output = None,
) -> None:
    """Self-host or use the API? The utilization floor, the demand it means, and what would move it."""
    from loadfactor.faces.cli.plan.breakeven_page import BreakEvenQuestion, answer_about_break_even, list_of_prices
    from loadfactor.planner.economics.breakeven import Replica, Request

    if api == "list":
        present(list_of_prices(), output_format, output)
        return
    price, price_assumption = _api_price(api, api_price)
    request = Request(input_tokens, output_tokens)
    if gpus is not None and gpus < 1:
        raise InputError(f"--gpus {gpus}: a replica has at least 1 GPU")
    if model and tokens_per_s is None and output_tokens_per_s is None:
        throughput, held_gpus, how_fast = planned(model, gpu, engine, gpus, input_tokens, output_tokens, ttft, tpot)
    else:
        throughput, how_fast = measured(tokens_per_s, output_tokens_per_s, input_tokens, output_tokens)
        held_gpus = gpus or 1
    hour_cost, hour_assumption = price_with_source(
        "GPU of the replica", price_per_gpu_hour, "--price-per-gpu-hour", gpu
    )
    question = BreakEvenQuestion(
        replica=Replica(hour_cost * held_gpus, throughput, held_gpus),
        price=price,
        request=request,
        requests_per_s=requests_per_s,
        peak_ratio=peak_ratio,
        requests_per_user_hour=requests_per_user_hour,
        api_name=api or "the API",
    )
    assumptions = (hour_assumption, how_fast, price_assumption)
    present(answer_about_break_even(question, assumptions), output_format, output)


def _api_price(api: str, typed: str) -> "tuple[ApiPrice, Assumption]":
    from loadfactor.catalog.token_prices import token_price
    from loadfactor.planner.economics.breakeven import ApiPrice

    if bool(api) == bool(typed):
        raise InputError(
            "name the API once: --api openai/gpt-4o-mini (see --api list), or --api-price 0.15,0.60 per million tokens"
        )
    if api:
        known = token_price(api)
        words = f"{money(known.input_price_per_mtok)} in, {money(known.output_price_per_mtok)} out per million tokens, {known.id}"
        found = Assumption("API price", words, f"catalog: {known.source}", f"{known.as_of}, {known.status}")
        return ApiPrice(known.input_price_per_mtok, known.output_price_per_mtok), found
    try:
        numbers = [float(part) for part in typed.split(",")]
    except ValueError as error:
        raise InputError(
            f"--api-price {typed}: give one number or input,output in $ per million tokens, as 0.15,0.60"
        ) from error
    if len(numbers) not in (1, 2):
        raise InputError(f"--api-price {typed}: give one number or two, as 0.15,0.60")
    words = f"{money(numbers[0])} in, {money(numbers[-1])} out per million tokens"
    return ApiPrice(numbers[0], numbers[-1]), Assumption("API price", words, "your --api-price")
