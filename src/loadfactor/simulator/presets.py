"""Ready scenarios: `DEMO` for `loadfactor demo`, `SMALL` for tests that recompute it by hand, `bench(…)` for benchmarks."""

from dataclasses import replace
from datetime import date
from typing import Final

from loadfactor.base.errors import PlanError
from loadfactor.simulator.scenario import Deployment, NodeGroup, Scenario, Team

TEAMS: Final = (
    Team(
        "foundation",
        0.16,
        ("amara", "dmitri", "yuki"),
        ("atlas-7b", "atlas-data-mix"),
        (("pretrain", 0.3), ("finetune", 0.35), ("sweep", 0.25), ("notebook", 0.1)),
    ),
    Team(
        "assistant",
        0.2,
        ("noor", "felix", "ines", "tomasz"),
        ("chat", "tool-use", "safety-eval"),
        (("finetune", 0.4), ("batch-inference", 0.4), ("notebook", 0.2)),
    ),
    Team(
        "vision",
        0.22,
        ("priya", "lars", "chen"),
        ("inspection", "segmentation"),
        (("vision-starved", 0.45), ("sweep", 0.35), ("notebook", 0.2)),
    ),
    Team(
        "speech",
        0.17,
        ("marta", "kofi"),
        ("asr-streaming", "tts"),
        (("small-batch", 0.6), ("batch-inference", 0.15), ("notebook", 0.25)),
    ),
    Team(
        "research",
        0.25,
        ("elif", "jonas", "mei", "sofia", "ravi"),
        ("long-context", "rl-reasoning", "sparse"),
        (("sweep", 0.45), ("small-batch", 0.2), ("finetune", 0.1), ("notebook", 0.25)),
    ),
)

DEMO: Final = Scenario(
    start=date(2026, 10, 19),  # a Monday; summer time ends in Europe on the 25th
    days=14,
    step_s=60,
    seed=20261019,
    groups=(
        NodeGroup("h100", "h100-sxm", "h100", 15, 2.60, 2.95),
        NodeGroup("h100n", "h100-sxm", "h100", 2, 2.60, 2.95, bought_day=5.4),
        NodeGroup("a100", "a100-sxm", "a100", 6, 1.35, 1.50),
        NodeGroup("a100o", "a100-sxm", "a100", 1, 1.35, 1.50, retired_day=9.6),
        NodeGroup("a100s", "a100-sxm", "a100", 1, 1.35, 1.50, exporter="nvidia-smi"),
    ),
    teams=TEAMS,
    deployments=(
        Deployment("chat-70b", "assistant", "h100", 3, 8, 70e9, 4.2, 0.56),
        Deployment("chat-8b", "assistant", "a100", 6, 1, 8e9, 5.5, 0.44),
        Deployment("asr-live", "speech", "a100", 4, 1, 0, 9.0, 0.21),
        Deployment("embed", "platform", "a100", 2, 1, 0.34e9, 60.0, 0.31),
    ),
    jobs=1500,
    load=0.94,
    price_change_day=8.395833,  # 09:30 UTC on a Tuesday, in the middle of an hour and of many jobs
    price_change_ratio=0.9,
    profiles_pipes=True,
)

SMALL: Final = replace(
    DEMO,
    start=date(2026, 10, 24),
    days=2,
    step_s=37,
    seed=7,
    groups=(
        NodeGroup("h", "h100-sxm", "h100", 2, 2.5, 3.0, gpus_per_node=2),
        NodeGroup("hn", "h100-sxm", "h100", 1, 2.5, 3.0, gpus_per_node=1, bought_day=0.77),
        NodeGroup("a", "a100-sxm", "a100", 1, 1.3, 1.5, gpus_per_node=3),
        NodeGroup("as", "a100-sxm", "a100", 1, 1.3, 1.5, gpus_per_node=1, retired_day=1.61, exporter="nvidia-smi"),
    ),
    deployments=(Deployment("chat", "assistant", "a100", 1, 1, 8e9, 5.0, 0.4),),
    jobs=40,
    load=0.94,
    node_failures_per_day=0.4,
    gpu_failures_per_day=0.2,
    drains_per_day=0.3,
    missing_share=0.01,
    exporter_failures_per_day=0.4,
    price_change_day=0.9876,
)


def bench(gpus: int, days: int, step_s: int) -> Scenario:
    """A fleet for benchmarks: two thirds H100, one third A100, in nodes of eight; about 3.3 jobs per GPU and day.

    >>> scenario = bench(1024, 30, 30)
    >>> scenario.gpus, scenario.jobs
    (1024, 100147)
    """
    if gpus < 24:
        raise PlanError(f"bench needs at least 24 GPUs, got {gpus}; SMALL has fewer")
    nodes = gpus // 8
    a100 = nodes // 3
    return replace(
        DEMO,
        days=days,
        step_s=step_s,
        groups=(
            NodeGroup("h100", "h100-sxm", "h100", nodes - a100, 2.60, 2.95),
            NodeGroup("a100", "a100-sxm", "a100", a100, 1.35, 1.50),
        ),
        deployments=(
            Deployment("chat-70b", "assistant", "h100", max(1, nodes // 10), 8, 70e9, 4.2, 0.56),
            Deployment("chat-8b", "assistant", "a100", max(1, nodes // 4), 1, 8e9, 5.5, 0.44),
        ),
        jobs=round(gpus * days * 3.26),
        load=0.85,
        price_change_day=min(8.395833, days / 2),
    )
