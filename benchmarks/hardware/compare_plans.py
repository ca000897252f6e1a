"""Training and serving as measured, beside the equations that plans are made with, as rows that `loadfactor validate` reads too."""

from collections.abc import Mapping, Sequence
from typing import Any

from loadfactor.base.units import BYTES_PER_GIB, MS_PER_S
from loadfactor.catalog.accelerators import Accelerator
from loadfactor.catalog.engines import read_engine_constants
from loadfactor.catalog.models import Network, network
from loadfactor.planner.serving.layouts import ReplicaLayout, choose_precision
from loadfactor.planner.serving.step import Replica, step_time
from loadfactor.planner.training.flops import compute_utilization
from loadfactor.planner.training.job import TrainingJob
from loadfactor.planner.training.layout import TrainingLayout
from loadfactor.planner.training.machine import build_machine
from loadfactor.planner.training.memory import estimate_memory
from loadfactor.planner.training.software import find_software
from loadfactor.planner.training.step import estimate_step

Row = dict[str, Any]
TRAINING_COLUMNS = (
    "model", "layers", "hidden", "heads", "kv_heads", "ffn_hidden", "vocab", "gated_mlp", "seq", "gpu", "gpus", "tp", "pp", "dp",
    "zero", "micro_batch", "global_batch", "recompute", "precision", "techniques", "iteration_s", "peak_memory_gib", "source",
)  # fmt: skip
SERVING_COLUMNS = ("model", "system", "backend", "isl", "osl", "tp", "concurrency", "precision", "tpot_ms", "source")


PLANNED = ("", "fp32", "small batch")
"""Faults that plans know of."""


def list_training_rows(measured: Mapping[str, Any]) -> list[Row]:
    """Cases as rows of a table of measured runs, but those whose fault no plan knows."""
    rows = []
    for case in measured["training"]:
        if "step_s" not in case or case["fault"] not in PLANNED:
            continue
        shape = case["shape"]
        techniques = ["torchtitan, torch.compile" if case["is_compiled"] else "Transformers, eager"]
        techniques += ["cuDNN attention"] if case["precision"] == "bf16" else []
        rows.append(
            {
                "model": shape["name"], "layers": shape["layers"], "hidden": shape["hidden"], "heads": shape["heads"],
                "kv_heads": shape["kv_heads"], "ffn_hidden": shape["ffn"], "vocab": shape["vocabulary"], "gated_mlp": "yes",
                "seq": case["seq"], "gpu": measured["machine"]["device"], "gpus": 1, "tp": 1, "pp": 1, "dp": 1, "zero": 0,
                "micro_batch": case["batch"], "global_batch": case["batch"], "recompute": "none",
                "precision": case["precision"], "techniques": ", ".join(techniques), "iteration_s": case["step_s"],
                "peak_memory_gib": (case["peak_bytes"] or 0) / BYTES_PER_GIB or None, "source": measured["source"],
            }
        )  # fmt: skip
    return rows


def list_serving_rows(measured: Mapping[str, Any]) -> list[Row]:
    """Decoding as rows of a table of measured replicas: steps as a graph, which is what engines start."""
    return [
        {
            "model": measured["served"]["name"], "system": measured["machine"]["device"], "backend": "vllm",
            "isl": row["context"] - 1, "osl": 2, "tp": 1, "concurrency": row["sequences"], "precision": "bf16",
            "tpot_ms": row["seconds"] * MS_PER_S, "source": measured["source"],
        }
        for row in measured["serving"]
        if row["phase"] == "decode" and row["way"] == "one graph" and "seconds" in row
    ]  # fmt: skip


def compare_training(cases: Sequence[Mapping[str, Any]], chip: Accelerator) -> list[Row]:
    """Every case beside its prediction. What is compiled is planned as torchtitan's, what is not as a loop of one's own."""
    found = []
    for case in cases:
        if "step_s" not in case:
            continue
        job, layout = _describe_job(case, chip)
        step_s = float(estimate_step(job, layout).step_s[0])
        memory = estimate_memory(job, layout)
        found.append(
            {
                "case": case["case"], "fault": case["fault"], "tokens_per_s": case["tokens_per_s"],
                "step_s": case["step_s"], "predicted_step_s": step_s, "error": step_s / case["step_s"] - 1,
                "mfu": compute_utilization(job, layout, case["step_s"]).mfu_share,
                "predicted_mfu": compute_utilization(job, layout, step_s).mfu_share,
                "peak_gib": (case["peak_bytes"] or 0) / BYTES_PER_GIB or None,
                "predicted_peak_gib": float(memory.total_bytes[0]) / BYTES_PER_GIB,
            }
        )  # fmt: skip
    return found


def _describe_job(case: Mapping[str, Any], chip: Accelerator) -> tuple[TrainingJob, TrainingLayout]:
    shape = case["shape"]
    trained = Network(
        name=shape["name"], layers=shape["layers"], hidden=shape["hidden"], heads=shape["heads"], kv_heads=shape["kv_heads"],
        head_dim=shape["hidden"] // shape["heads"], ffn_hidden=shape["ffn"], vocabulary=shape["vocabulary"],
        max_context=case["seq"], gated_mlp=True, tied_embeddings=False, positional="rope", norm="rms", linear_bias=False,
    )  # fmt: skip
    software = find_software("torchtitan" if case["is_compiled"] else "fsdp").having({"attention": "native"})
    machine = build_machine(chip, case["precision"], software=software)
    job = TrainingJob(trained, case["seq"], case["batch"], machine, software)
    return job, TrainingLayout(micro_batch=case["batch"])


def compare_serving(rows: Sequence[Mapping[str, Any]], chip: Accelerator) -> list[Row]:
    """Each row beside a step of vLLM as plans have it: its work on the GPU, and what its host adds, which plain PyTorch has not."""
    llama = network("llama-3.1-8b")
    constants = read_engine_constants(chip, "vllm")
    replica = Replica(llama, chip, ReplicaLayout(1, 1, 1), choose_precision(llama, "bf16"), constants)
    found: list[Row] = []
    for row in rows:
        if "seconds" not in row:
            continue
        if row["phase"] == "prefill":
            tokens = row["prompt_tokens"]
            step = step_time(replica, 0.0, 0.0, float(tokens), tokens * (tokens + 1) / 2)
            about = f"prefill of {tokens:,} tokens"
        else:
            batch, context = row["sequences"], row["context"]
            step = step_time(replica, float(batch), float(batch * context))
            about = f"decode of {batch} × {context:,} tokens, {row['way']}"
        predicted, host = float(step.total_s - step.host_s), float(step.host_s)
        error = predicted / row["seconds"] - 1
        found.append(
            {"what": about, "seconds": row["seconds"], "predicted_s": predicted, "error": error, "host_s": host}
        )
    return found
