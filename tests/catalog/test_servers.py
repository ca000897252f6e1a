"""Every server of the catalog belongs to a known accelerator and says what is estimated."""

import pytest

from loadfactor.catalog.accelerators import accelerators
from loadfactor.catalog.servers import Server, servers


@pytest.mark.parametrize("server", servers().values(), ids=servers())
def test_a_server_is_whole(server: Server) -> None:
    """GPUs are counted, power and price are above zero where they are known, and no price is more than an estimate."""
    assert server.accelerator in accelerators()
    assert server.gpus.value >= 1
    assert len(server.currency) == 3
    for fact in (server.price, server.power_w):
        assert fact is None or fact.value > 0
    assert server.price is None or server.price.is_estimate
