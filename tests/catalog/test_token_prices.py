"""The catalog of token prices can be believed and searched."""

import pytest

from loadfactor.base.errors import InputError
from loadfactor.catalog.token_prices import token_price, token_prices


def test_every_price_is_positive_dated_and_named_once() -> None:
    """Every list price is above zero, has a source and a month, and no provider lists a model twice."""
    for price in token_prices():
        assert min(price.input_price_per_mtok, price.output_price_per_mtok) > 0
        assert price.source
        assert len(price.as_of) == 7
    names = [price.id.lower() for price in token_prices()]
    assert len(names) == len(set(names)) > 40


def test_an_ambiguous_or_unknown_name_says_what_there_is() -> None:
    """A model several providers list asks for the provider; an unknown one names near ones."""
    assert token_price("OpenAI/GPT-4-Turbo").input_price_per_mtok == 10
    with pytest.raises(InputError, match=r"name one: groq/qwen/qwen3-32b, openrouter/qwen/qwen3-32b"):
        token_price("qwen/qwen3-32b")
    with pytest.raises(InputError, match="openai/gpt-4o"):
        token_price("gpt-4o-maxi")
