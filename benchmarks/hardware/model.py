"""A network like Llama in plain PyTorch with random weights: training, prefill and decode."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Shape:
    """A dense network: pre-norm, rotary positions, grouped heads, gated MLP, a head of its own."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int

    @property
    def head_dim(self) -> int:
        """Values of a head."""
        return self.hidden // self.heads

    @property
    def parameters(self) -> int:
        """All weights."""
        attention = 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        layer = attention + 3 * self.hidden * self.ffn + 2 * self.hidden
        return self.layers * layer + 2 * self.vocabulary * self.hidden + self.hidden

    def describe(self) -> dict[str, Any]:
        """Its fields and what follows."""
        return {**asdict(self), "parameters": self.parameters}


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions of heads; halves of a head are the two parts of its complex numbers."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Block(nn.Module):
    """One layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        d, h = shape.hidden, shape.head_dim
        self.shape = shape
        self.norm1, self.norm2 = nn.RMSNorm(d), nn.RMSNorm(d)
        self.q = nn.Linear(d, shape.heads * h, bias=False)
        self.kv = nn.Linear(d, 2 * shape.kv_heads * h, bias=False)
        self.o = nn.Linear(shape.heads * h, d, bias=False)
        self.gate_up = nn.Linear(d, 2 * shape.ffn, bias=False)
        self.down = nn.Linear(shape.ffn, d, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, cache: Tensor | None = None) -> Tensor:
        """`cache` (2, batch, kv heads, context, head): the tokens are the last of its context, and are written there."""
        s, (batch, tokens, _) = self.shape, x.shape
        y = self.norm1(x)
        q = self.q(y).view(batch, tokens, s.heads, s.head_dim).transpose(1, 2)
        k, v = self.kv(y).view(batch, tokens, 2, s.kv_heads, s.head_dim).permute(2, 0, 3, 1, 4)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if cache is not None:
            cache[0][:, :, -tokens:] = k
            cache[1][:, :, -tokens:] = v
            k, v = cache[0], cache[1]
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=tokens > 1, enable_gqa=s.kv_heads != s.heads)
        x = x + self.o(y.transpose(1, 2).reshape(batch, tokens, -1))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(functional.silu(gate) * up)


class Network(nn.Module):
    """All layers."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.hidden)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.hidden)
        self.head = nn.Linear(shape.hidden, shape.vocabulary, bias=False)

    def positions(self, first: int, tokens: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosines and sines of rotary positions."""
        half, device = self.shape.head_dim // 2, self.embedding.weight.device
        turns = 500_000.0 ** (-torch.arange(half, device=device) / half)
        angles = torch.arange(first, first + tokens, device=device)[:, None] * turns
        return angles.cos().to(dtype), angles.sin().to(dtype)

    def forward(self, tokens: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """The logits of all tokens."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.head(self.norm(x))

    def read_prompt(self, tokens: Tensor, cos: Tensor, sin: Tensor, cache: Tensor) -> Tensor:
        """The logits of the last token of prompts; their keys and values are kept."""
        x = self.embedding(tokens)
        for block, kept in zip(self.blocks, cache, strict=True):
            x = block(x, cos, sin, kept)
        return self.head(self.norm(x[:, -1]))

    def decode(self, tokens: Tensor, cos: Tensor, sin: Tensor, cache: Tensor) -> Tensor:
        """The next token of each sequence, whose context fills the cache."""
        return self.read_prompt(tokens, cos, sin, cache).argmax(-1)


def build(shape: Shape, device: torch.device, dtype: torch.dtype) -> Network:
    """A network with small random weights, made on the device."""
    with torch.device("meta"):
        network = Network(shape)
    network = network.to(dtype=dtype).to_empty(device=device)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.fill_(1.0) if parameter.dim() == 1 else parameter.normal_(0.0, 0.02)
    return network
