"""The shape of a transformer, and the parameters and cache bytes that follow from it.

A *network* is the neural net; a *model* is an equation. Every count here follows from the shape alone:
matrix sizes are written where they are summed, and published counts are met within 1 % (tests/catalog).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from loadfactor.base.units import BITS_PER_BYTE


@dataclass(frozen=True)
class Experts:
    """A mixture of experts: `count` MLPs a layer, `per_token` of them used by each token, behind a router.

    `shared_ffn_hidden` is the summed width of the MLPs every token uses beside them (0: none); `dense_layers` are the
    indices of the layers that have one ordinary MLP of `Network.ffn_hidden` instead. `most_nodes`: routing sends a token to
    experts on this many nodes at most (None: to any).
    """

    count: int
    per_token: int
    ffn_hidden: int
    shared_ffn_hidden: int = 0
    dense_layers: tuple[int, ...] = ()
    most_nodes: int | None = None


@dataclass(frozen=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434 §2.1): keys and values through a low-rank latent.

    `q_rank` None means queries are projected directly. Per head, a query has `nope_dim + rope_dim` and a value `value_dim`.
    """

    q_rank: int | None
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int


@dataclass(frozen=True)
class SparseIndexer:
    """The small attention that picks which `top` tokens the large one sees (DeepSeek-V3.2's DSA): its own queries and key."""

    heads: int
    head_dim: int
    top: int


@dataclass(frozen=True)
class LinearAttention:
    """Layers whose state does not grow with context (gated delta net, Qwen3-Next): which, and their heads."""

    layers: tuple[int, ...]
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_width: int = 4


@dataclass(frozen=True)
class GlobalAttention:
    """The heads of the full-attention layers where they differ from the sliding ones (Gemma 4)."""

    head_dim: int
    kv_heads: int
    key_is_value: bool = False


@dataclass(frozen=True)
class Quantization:
    """How stored weights are narrowed: bits per weight with its scales, and the parts kept at 16 bits."""

    method: str
    weight_bits: float
    activation_bits: int = 16
    kept: tuple[str, ...] = ("embedding", "head", "norm", "router")


@dataclass(frozen=True)
class Network:
    """The shape of a decoder-only transformer. Counts are per network unless the name says per layer or token."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn_hidden: int
    vocabulary: int
    max_context: int
    gated_mlp: bool = True
    tied_embeddings: bool = False
    positional: str = "rope"  # rope, learned, alibi, none
    norm: str = "rms"  # rms: one vector; layer: gain and bias
    norms_per_layer: int = 2
    linear_bias: bool = False
    qkv_bias: bool = False
    output_gate: bool = False  # attention output gated by a second query projection (Qwen3-Next)
    experts: Experts | None = None
    latent: LatentAttention | None = None
    indexer: SparseIndexer | None = None
    linear: LinearAttention | None = None
    full: GlobalAttention | None = None
    sliding_window: int | None = None
    sliding_layers: tuple[int, ...] = ()
    quantization: Quantization | None = None
    fp8_blocks: bool = (
        False  # its checkpoints in 8 bits scale every block of 128 × 128 weights, whose products are slower
    )
    source: str = ""

    # ---- which layer is what ----

    @property
    def moe_layers(self) -> int:
        """How many layers have experts."""
        return self.layers - len(self.experts.dense_layers) if self.experts else 0

    @property
    def dense_layers(self) -> int:
        """How many layers have one ordinary MLP."""
        return self.layers - self.moe_layers

    @property
    def linear_layers(self) -> int:
        """How many layers attend with a fixed-size state."""
        return len(self.linear.layers) if self.linear else 0

    @property
    def full_layers(self) -> int:
        """How many layers attend to the whole context."""
        return self.layers - self.linear_layers - len(self.sliding_layers)

    @property
    def query_dim(self) -> int:
        """Dimension of one head's query and key."""
        return self.latent.nope_dim + self.latent.rope_dim if self.latent else self.head_dim

    @property
    def value_dim(self) -> int:
        """Dimension of one head's value."""
        return self.latent.value_dim if self.latent else self.head_dim

    # ---- parameters ----

    def _projections(self, head_dim: int, kv_heads: int, kv_matrices: int) -> int:
        """Q, K, V and output projections of grouped-query attention: h·d·(heads·(2 or 3) + kv_heads·matrices)."""
        q_and_o = 3 if self.output_gate else 2
        weights = self.hidden * head_dim * (self.heads * q_and_o + kv_heads * kv_matrices)
        qkv_bias = head_dim * (self.heads + 2 * kv_heads) if self.qkv_bias or self.linear_bias else 0
        return weights + qkv_bias + (self.hidden if self.linear_bias else 0)

    @property
    def attention_parameters_per_layer(self) -> int:
        """Parameters of one ordinary (sliding, or latent) attention layer without its norms."""
        if self.latent is None:
            return self._projections(self.head_dim, self.kv_heads, 2)
        a = self.latent
        queries = self.heads * self.query_dim
        q = self.hidden * queries if a.q_rank is None else a.q_rank * (self.hidden + queries)
        kv = self.hidden * (a.kv_rank + a.rope_dim) + a.kv_rank * self.heads * (a.nope_dim + a.value_dim)
        return q + kv + self.heads * a.value_dim * self.hidden + self._indexer_parameters

    @property
    def _indexer_parameters(self) -> int:
        if self.indexer is None or self.latent is None:
            return 0
        i = self.indexer
        return (self.latent.q_rank or self.hidden) * i.heads * i.head_dim + self.hidden * (i.head_dim + i.heads)

    @property
    def _linear_attention_parameters(self) -> int:
        if self.linear is None:
            return 0
        a = self.linear
        keys, values = a.key_heads * a.key_dim, a.value_heads * a.value_dim
        inward = self.hidden * (2 * keys + 2 * values + 2 * a.value_heads)
        return inward + a.conv_width * (2 * keys + values) + values * self.hidden

    def mlp_parameters(self, width: int) -> int:
        """Parameters of one MLP of this inner width: 3·h·width when gated, else 2."""
        weights = (3 if self.gated_mlp else 2) * self.hidden * width
        return weights + (width * (2 if self.gated_mlp else 1) + self.hidden if self.linear_bias else 0)

    @property
    def parts(self) -> Mapping[str, int]:
        """Parameters by part; their sum is `parameters`.

        >>> from loadfactor.catalog.models import network
        >>> sum(network("llama-3.1-8b").parts.values())
        8030261248
        """
        e, mixed = self.experts, self.layers - self.linear_layers
        attention = (mixed - self.full_layers) * self.attention_parameters_per_layer
        attention += self.full_layers * self.full_attention_parameters_per_layer
        attention += self.linear_layers * self._linear_attention_parameters
        norm = self.hidden * (2 if self.norm == "layer" else 1)
        learned = self.max_context * self.hidden if self.positional == "learned" else 0
        return {
            "embedding": self.vocabulary * self.hidden + learned,
            "attention": attention,
            "mlp": self.dense_layers * self.mlp_parameters(self.ffn_hidden),
            "shared_experts": self.moe_layers * self.mlp_parameters(e.shared_ffn_hidden)
            if e and e.shared_ffn_hidden
            else 0,
            "experts": self.moe_layers * e.count * self.mlp_parameters(e.ffn_hidden) if e else 0,
            "router": self.moe_layers * e.count * self.hidden if e else 0,
            "norm": (self.norms_per_layer * self.layers + 1) * norm,
            "head": 0 if self.tied_embeddings else self.vocabulary * self.hidden,
        }

    @property
    def full_attention_parameters_per_layer(self) -> int:
        """Parameters of one full-attention layer; differs from a sliding one only where `full` says so."""
        if self.full is None:
            return self.attention_parameters_per_layer
        return self._projections(self.full.head_dim, self.full.kv_heads, 1 if self.full.key_is_value else 2)

    @property
    def parameters(self) -> int:
        """All parameters: what has to be stored."""
        return sum(self.parts.values())

    @property
    def active_parameters(self) -> int:
        """Parameters a token passes through: all but the experts it is not sent to.

        >>> from loadfactor.catalog.models import network
        >>> round(network("mixtral-8x7b").active_parameters / 1e9, 2)
        12.88
        """
        if self.experts is None:
            return self.parameters
        idle = self.experts.count - self.experts.per_token
        return self.parameters - self.moe_layers * idle * self.mlp_parameters(self.experts.ffn_hidden)

    @property
    def matmul_parameters(self) -> int:
        """Parameters a token is multiplied with: active ones without looking up the input embedding, but with the logits."""
        head = self.vocabulary * self.hidden if self.tied_embeddings else 0
        return self.active_parameters - self.parts["embedding"] + head

    def weight_bytes(self, bytes_per_weight: float = 2) -> float:
        """Bytes of the stored weights; a quantization found in the config applies to the parts it does not keep."""
        if self.quantization is None:
            return self.parameters * bytes_per_weight
        q = self.quantization
        return sum(n * (2 if part in q.kept else q.weight_bits / BITS_PER_BYTE) for part, n in self.parts.items())

    # ---- the key-value cache ----

    @property
    def kv_values_per_token_per_layer(self) -> int:
        """Numbers cached per token by one ordinary layer: 2·kv_heads·head_dim, or the latent and its rotary key."""
        if self.latent is not None:
            return self.latent.kv_rank + self.latent.rope_dim + (self.indexer.head_dim if self.indexer else 0)
        return 2 * self.kv_heads * self.head_dim

    @property
    def _kv_values_full(self) -> int:
        if self.full is None:
            return self.kv_values_per_token_per_layer
        return (1 if self.full.key_is_value else 2) * self.full.kv_heads * self.full.head_dim

    def kv_bytes_per_token(self, bytes_per_value: float = 2) -> float:
        """Cache bytes of one more token while every layer still keeps it (context below any sliding window).

        >>> from loadfactor.catalog.models import network
        >>> network("llama-2-7b").kv_bytes_per_token(), network("llama-3.1-8b").kv_bytes_per_token()
        (524288, 131072)
        """
        sliding = len(self.sliding_layers) * self.kv_values_per_token_per_layer
        return (sliding + self.full_layers * self._kv_values_full) * bytes_per_value

    def kv_bytes(self, context: int, bytes_per_value: float = 2) -> float:
        """Cache bytes of one sequence of `context` tokens: sliding layers keep at most their window."""
        kept = min(context, self.sliding_window or context)
        sliding = len(self.sliding_layers) * self.kv_values_per_token_per_layer * kept
        full = self.full_layers * self._kv_values_full * context
        return (sliding + full) * bytes_per_value + self.linear_state_bytes

    @property
    def linear_state_bytes(self) -> float:
        """Bytes of the fixed state one sequence keeps in linear-attention layers, held in 32 bits."""
        if self.linear is None:
            return 0
        return self.linear_layers * self.linear.value_heads * self.linear.key_dim * self.linear.value_dim * 4
