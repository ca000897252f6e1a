"""Training and serving as measured, beside the equations that plans are made with, as rows that `loadfactor validate` reads too."""

from collections.abc import Mapping, Sequence
from typing import Any

from loadfactor.base.units import BYTES_PER_GIB, MS_PER_S
from loadfactor.catalog.accelerators import Accelerator
from loadfactor.catalog.models import network
from loadfactor.planner.serving.layouts import ReplicaLayout
from loadfactor.planner.serving.step import step_time
from loadfactor.planner.training.memory import estimate_memory
from loadfactor.planner.validation.serving import build_replica
from loadfactor.planner.validation.training import compare_rows

Row = dict[str, Any]
TRAINING_COLUMNS = (
    "model", "layers", "hidden", "heads", "kv_heads", "ffn_hidden", "vocab", "gated_mlp", "seq", "gpu", "gpus", "tp", "pp", "dp",
    "zero", "micro_batch", "global_batch", "recompute", "precision", "techniques", "iteration_s", "peak_memory_gib", "source",
)  # fmt: skip
SERVING_COLUMNS = ("model", "system", "backend", "isl", "osl", "tp", "concurrency", "precision", "tpot_ms", "ttft_ms")


def write_training_row(case: Mapping[str, Any], chip: Accelerator, machine: Mapping[str, Any]) -> Row:
    """A case as a row of a table of measured runs."""
    shape = case["shape"]
    compiled = "torchtitan, torch.compile" if case["is_compiled"] else "torchtitan, eager"
    return {
        "model": shape["name"], "layers": shape["layers"], "hidden": shape["hidden"], "heads": shape["heads"],
        "kv_heads": shape["kv_heads"], "ffn_hidden": shape["ffn"], "vocab": shape["vocabulary"], "gated_mlp": "yes",
        "seq": case["seq"], "gpu": chip.id, "gpus": 1, "tp": 1, "pp": 1, "dp": 1, "zero": 0,
        "micro_batch": case["batch"], "global_batch": case["batch"], "recompute": "none", "precision": case["precision"],
        "techniques": f"{compiled}, cuDNN attention" if case["precision"] == "bf16" else compiled,
        "iteration_s": case["step_s"], "peak_memory_gib": (case["peak_bytes"] or 0) / BYTES_PER_GIB or None,
        "source": f"hardware kit, {machine['measured_on']}, {machine['device']}, PyTorch {machine['torch']}",
    }  # fmt: skip


def compare_training(
    cases: Sequence[Mapping[str, Any]], chip: Accelerator, machine: Mapping[str, Any]
) -> tuple[list[Row], list[Row]]:
    """Rows as tables have them of cases without a fault that plans know nothing of; and every case beside its prediction."""
    done = [case for case in cases if "step_s" in case]
    rows = [write_training_row(case, chip, machine) for case in done]
    text = [{name: "" if value is None else str(value) for name, value in row.items()} for row in rows]
    compared, _ = compare_rows("hardware kit", text)
    found = []
    for one in compared:
        case = done[one.row - 1]
        memory = estimate_memory(one.run.job, one.run.layout)
        found.append(
            {
                "case": case["case"], "fault": case["fault"], "tokens_per_s": case["tokens_per_s"],
                "step_s": case["step_s"], "predicted_step_s": one.predicted, "error": one.error,
                "mfu": one.run.compute_utilization(one.run.layout, one.measured).mfu_share, "predicted_mfu": one.mfu_share,
                "peak_gib": (case["peak_bytes"] or 0) / BYTES_PER_GIB or None,
                "predicted_peak_gib": float(memory.total_bytes[0]) / BYTES_PER_GIB,
            }
        )  # fmt: skip
    kept = [row for row, case in zip(rows, done, strict=True) if case["fault"] in ("", "fp32", "small batch")]
    return kept, found


def compare_serving(serving: Mapping[str, Any], chip: Accelerator) -> list[Row]:
    """Each row beside a step of vLLM as plans have it: its work on the GPU, and what its host adds, which plain PyTorch has not."""
    if not serving:
        return []
    shape = network(serving["shape"]["name"])
    replica = build_replica(shape, chip, "vllm", "bf16", ReplicaLayout(1, 1, 1))
    found: list[Row] = []
    for row in serving["rows"]:
        if "seconds" not in row:
            found.append({**row, "what": row["phase"], "row": None})
            continue
        if row["phase"] == "prefill":
            tokens = row["prompt_tokens"]
            step = step_time(replica, 0.0, 0.0, float(tokens), tokens * (tokens + 1) / 2)
            about, line = f"prefill of {tokens:,} tokens", None
        else:
            batch, context = row["sequences"], row["context"]
            step = step_time(replica, float(batch), float(batch * context))
            about = f"decode of {batch} sequences with {context:,} tokens, {row['way']}"
            line = {
                "model": shape.name, "system": chip.id, "backend": "vllm", "isl": context - 1, "osl": 2, "tp": 1,
                "concurrency": batch, "precision": "bf16", "tpot_ms": row["seconds"] * MS_PER_S,
            }  # fmt: skip
            line = line if row["way"] == "one graph" else None
        predicted = float(step.total_s) - float(step.host_s)
        found.append(
            {"what": about, "seconds": row["seconds"], "predicted_s": predicted, "error": predicted / row["seconds"] - 1,
             "host_s": float(step.host_s), "row": line}
        )  # fmt: skip
    return found
