"""Fine-tuning with adapters: LoRA (arXiv:2106.09685), and QLoRA (arXiv:2305.14314), whose frozen weights lie in 4 bits.

Frozen weights need no gradients of their own: their backward pass is one product in place of two, and neither gradients nor
optimizer states are kept or exchanged for them. Beside every adapted product run two thin ones, of the rank of the adapter.
"""

from dataclasses import dataclass
from typing import Final

from loadfactor.catalog.models import Network

DEFAULT_RANK: Final = 16
QUANTIZED_BYTES: Final = (
    0.516  # NF4: 4 bits, and a scale of 8 bits for 64 weights that itself has one of 32 bits for 256 of these
)
ADAPTED: Final = 4  # products of a layer with an adapter: queries, keys, values and their output
KERNELS_PER_ADAPTER: Final = 3  # two thin products and the addition of their result


@dataclass(frozen=True)
class Adapters:
    """Adapters of a rank on the products of attention, as frameworks set them up.

    `quantized`: the frozen weights lie in 4 bits and are read through 16.
    """

    rank: int = DEFAULT_RANK
    quantized: bool = False

    def parameters(self, network: Network) -> float:
        """Weights that are trained: rank × (inputs + outputs) of every adapted product.

        >>> from loadfactor.catalog.models import network
        >>> Adapters(16).parameters(network("llama-3.1-8b"))      # as peft counts them
        13631488.0
        """
        return float(self.rank * network.layers * sum(_widths(network)))

    def moved_bytes_per_token(self, network: Network) -> float:
        """Bytes that adapters move for a token of one layer, forward: each reads its input and adds its output (r2 r2 w2).

        Queries, keys and values read the same input once, as they do in the product that they are added to.
        """
        outputs = network.heads * network.query_dim + 2 * network.kv_heads * network.head_dim + network.hidden
        inputs = network.hidden + network.heads * network.value_dim
        return 2.0 * inputs + 6.0 * outputs

    @property
    def frozen_bytes(self) -> float:
        """Bytes of a frozen weight."""
        return QUANTIZED_BYTES if self.quantized else 2.0


def _widths(network: Network) -> tuple[float, ...]:
    """Inputs and outputs of every adapted product of a layer."""
    h, kv = network.hidden, network.kv_heads * network.head_dim
    queries, values = network.heads * network.query_dim, network.heads * network.value_dim
    return (h + queries, h + kv, h + kv, values + h)
