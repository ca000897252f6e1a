"""List prices of hosted models per token, dated, by provider and model; adding one means adding a row to the file."""

from dataclasses import dataclass
from functools import cache

from loadfactor.base.errors import InputError
from loadfactor.catalog.facts import read_toml


@dataclass(frozen=True)
class TokenPrice:
    """One list price, USD per million input and output tokens; `as_of` is YYYY-MM."""

    provider: str
    model: str
    input_price_per_mtok: float
    output_price_per_mtok: float
    as_of: str
    source: str
    status: str

    @property
    def id(self) -> str:
        """provider/model, as a person names it."""
        return f"{self.provider}/{self.model}"


@cache
def token_prices() -> tuple[TokenPrice, ...]:
    """Every list price of the catalog, in the file's order."""
    return tuple(
        TokenPrice(
            provider=entry["provider"], as_of=entry["as_of"], source=entry["source"], status=entry["status"], **row
        )
        for entry in read_toml(__name__, "list_prices.toml")["list"]
        for row in entry["models"]
    )


def token_price(name: str) -> TokenPrice:
    """The price of `provider/model`, or of a model only one provider lists; case does not matter.

    Raises InputError naming what there is.

    >>> token_price("openai/gpt-4-turbo").output_price_per_mtok
    30
    >>> token_price("llama-3.1-8b-instant").id
    'groq/llama-3.1-8b-instant'
    """
    spelling = name.strip().lower()
    named = [p for p in token_prices() if p.id.lower() == spelling]
    found = named or [p for p in token_prices() if p.model.lower() == spelling]
    if len(found) == 1:
        return found[0]
    if found:
        raise InputError(f"several providers list {name!r}; name one: {', '.join(p.id for p in found)}")
    near = [p.id for p in token_prices() if spelling.split("/")[-1][:6] in p.id.lower()] or [
        p.id for p in token_prices()
    ]
    raise InputError(f"no token price for {name!r} in the catalog; there is {', '.join(near[:12])}; or type prices in")


def hosted_prices(network: str) -> tuple[TokenPrice, ...]:
    """Every list price of a network of the catalog, whatever the provider calls it.

    >>> [price.provider for price in hosted_prices("llama-3.1-8b")]
    ['groq', 'cerebras', 'together', 'openrouter']
    """
    spelling = _letters(network)
    return tuple(price for price in token_prices() if spelling and spelling in _letters(price.model))


def _letters(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
