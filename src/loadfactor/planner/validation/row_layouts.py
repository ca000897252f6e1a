"""Layout of a measured training run, read from a row; what the row does not give is left free."""

import re
from typing import Final

from loadfactor.planner.training.layout import FULL, NONE, SELECTIVE, TrainingLayout
from loadfactor.planner.training.machine import Software
from loadfactor.planner.validation.row_cells import Row, RowRefused, read_text, read_whole

RECOMPUTE_WORDS: Final = (
    (r"(none|false|0|no|off|without|disabled)\b", NONE),
    (r"(full|true|1|yes|on|all|every layer|uniform|enabled|(activation|gradient) checkpointing)\b", FULL),
    (r"(selective|core[ _]attn|core attention|attention)\b", SELECTIVE),
)
"""Recomputation as papers and configurations write it, by how it begins."""
UNSAID: Final = ("", "not given", "not in table", "n/a", "na", "-", "unknown", "nan")


def read_layout(row: Row, gpus: int, sharded: bool, software: Software) -> tuple[TrainingLayout, tuple[str, ...]]:
    """The layout of a row, and the names of the fields that it leaves free."""
    free = []
    stage = read_text(row, "zero", "zero_stage")
    if stage is not None and stage not in ("0", "1", "2", "3"):
        raise RowRefused(f"zero is {stage}, not a stage from 0 to 3")
    if not sharded and not any(read_text(row, n) for n in ("tp", "pp", "dp")):
        free += ["tensor", "pipeline"] + ([] if stage is not None else ["zero"])
    tp, pp, cp, ep = (read_whole(row, n, default=1) for n in ("tp", "pp", "cp", "ep"))
    dp = read_whole(row, "dp", default=gpus // (tp * pp * cp) or 1)
    micro = read_whole(row, "micro_batch", "micro_batch_size", "mbs", default=0) or None
    chunks = read_whole(row, "interleave_v", "interleave", default=0) or None
    if micro is None:
        free.append("micro_batch")
    if "pipeline" in free or (chunks is None and pp > 1 and software.overlaps):
        free.append("interleave")
    recompute = _recompute(row, software)
    if recompute is None:
        free.append("recompute")
    zero = int(stage) if stage is not None else 3 if sharded else 1 if software.overlaps else 0
    parallel = "sequence parallel" in (row.get("recompute") or "") and "no sequence" not in (row.get("recompute") or "")
    parallel = parallel or (software.overlaps and tp > 1)
    return (
        TrainingLayout(tp, pp, dp, cp, ep, micro or 1, chunks or 1, recompute or NONE, zero, parallel),
        tuple(free),
    )


def list_unread_recompute(row: Row) -> tuple[str, ...]:
    """What a row says of recomputation that nothing is made of, so that it is searched.

    >>> list_unread_recompute({"recompute": "every third MLP"}), list_unread_recompute({"recompute": "full, every layer"})
    (('recompute: every third mlp',), ())
    """
    said = _recompute_words(row)
    known = said in UNSAID or any(re.match(pattern, said) for pattern, _ in RECOMPUTE_WORDS)
    return () if known else (f"recompute: {said}",)


def _recompute_words(row: Row) -> str:
    said = (row.get(n) or "" for n in ("recompute", "act_ckpt", "activation_checkpointing"))
    return next((s for s in said if s.strip()), "").strip().lower()


def _recompute(row: Row, software: Software) -> int | None:
    said = _recompute_words(row)
    for pattern, mode in RECOMPUTE_WORDS:
        if re.match(pattern, said):
            return mode
    if software.recomputes_unasked:
        return FULL
    return None if software.flash_attention else FULL  # what was trained before it was always recomputed
