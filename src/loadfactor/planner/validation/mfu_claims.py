"""Published MFU beside what follows from the paper's own formula and inputs."""

from dataclasses import dataclass
from typing import Any

from loadfactor.base.units import PERCENT
from loadfactor.catalog.facts import read_toml
from loadfactor.planner.training.flops import mfu_share, paid_mfu_share, palm_flops_per_token

PRINTED_WITHIN = 0.001  # a printed percentage with one decimal, rounded or truncated


@dataclass(frozen=True)
class MfuClaim:
    """One row of the table: what was printed and what follows from the formula; None where nothing was printed."""

    model: str
    chip: str
    chips: int | None
    published_share: float
    recomputed_share: float
    without_attention_share: float
    hfu_share: float | None
    published_hfu_share: float | None
    paid_share: float | None
    source: str
    note: str

    @property
    def follows(self) -> bool:
        """True where the printed number follows from the formula within the digits printed."""
        return abs(self.published_share - self.recomputed_share) <= PRINTED_WITHIN


@dataclass(frozen=True)
class MfuValidation:
    """Every claim of the table, recomputed."""

    claims: tuple[MfuClaim, ...]


def validate_mfu() -> MfuValidation:
    """The MFU table of arXiv:2204.02311 (PaLM), recomputed."""
    claims = (_claim(row) for row in read_toml("loadfactor.catalog.measurements", "mfu_claims.toml")["claim"])
    return MfuValidation(tuple(claims))


def _claim(row: dict[str, Any]) -> MfuClaim:
    n, layers, width, seq = row["parameters"], row["layers"], row["heads_times_dim"], row["seq"]
    whole, bare = palm_flops_per_token(n, layers, int(width), seq), 6.0 * n
    attention = whole - bare
    if "tokens_per_s" in row:
        rate, chips = float(row["tokens_per_s"]), int(row["chips"])
    else:  # the paper gives FLOP/s per chip without attention instead of tokens
        rate, chips = row["non_attention_flops_per_chip_per_s"] / bare, 1
    peak = row["peak_flops"]
    again = row.get("recomputed_non_attention_share")
    hfu = None if again is None else mfu_share(rate, whole + again * bare / 3 + attention / 3, chips, peak)
    paid = row.get("paid_chip_hours")
    return MfuClaim(
        row["model"],
        row["chip"],
        row.get("chips"),
        row["mfu_pct"] / PERCENT,
        mfu_share(rate, whole, chips, peak),
        mfu_share(rate, bare, chips, peak),
        hfu,
        row["hfu_pct"] / PERCENT if "hfu_pct" in row else None,
        paid_mfu_share(row["training_flops"], paid, peak) if paid else None,
        row["source"],
        row.get("note", ""),
    )
