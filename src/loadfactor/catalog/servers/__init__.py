"""Servers: what the machine around an accelerator costs to buy and how much power it takes, one TOML file an accelerator.

`[facts]` holds `gpus` (of one server), `power_w` (at full load) and `price` (all its GPUs, `currency`); what is not known is left
out. Adding a server means adding a file named after the accelerator's id.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from loadfactor.catalog.facts import Fact, fact, read_folder


@dataclass(frozen=True)
class Server:
    """The server of one accelerator; `price` and `power_w` are None where nobody publishes them."""

    accelerator: str
    name: str
    currency: str
    gpus: Fact
    price: Fact | None
    power_w: Fact | None


@cache
def servers() -> Mapping[str, Server]:
    """Every server of the catalog by the id of its accelerator."""
    found = {}
    for row in read_folder(__name__):
        facts = {k: fact(v, row, f"{row['id']}: {k}") for k, v in row["facts"].items()}
        found[row["id"]] = Server(
            row["id"], row["name"], row["currency"], facts["gpus"], facts.get("price"), facts.get("power_w")
        )
    return found


def find_server(accelerator: str) -> Server | None:
    """The server of an accelerator id, or None when the catalog has none.

    >>> find_server("h100-sxm").power_w.value, find_server("b200-sxm").power_w.value
    (10200.0, 14300.0)
    """
    return servers().get(accelerator)
