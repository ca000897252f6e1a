"""Servers: what the machine around an accelerator costs to buy and how much power it takes, one TOML file an accelerator.

`[facts]` holds `gpus` (of one server), `power_w` (at full load) and `price` (all its GPUs, `currency`); what is not known is left
out. Adding a server means adding a file named after the accelerator's id.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from loadfactor.catalog.facts import Fact, fact, read_toml


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
    for entry in sorted(files(__name__).iterdir(), key=lambda e: e.name):
        if entry.name.endswith(".toml"):
            row = read_toml(__name__, entry.name)
            facts = {k: fact(v, row, f"{entry.name}: {k}") for k, v in row["facts"].items()}
            server = Server(
                row["id"], row["name"], row["currency"], facts["gpus"], facts.get("price"), facts.get("power_w")
            )
            found[server.accelerator] = server
    return found


def find_server(accelerator: str) -> Server | None:
    """The server of an accelerator id, or None when the catalog has none.

    >>> find_server("h100-sxm").power_w.value, find_server("b200-sxm").power_w.value
    (10200.0, 14300.0)
    """
    return servers().get(accelerator)
