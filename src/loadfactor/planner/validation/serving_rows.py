"""The replica behind a row of a published sweep, layout and precision, and its predicted latency."""

from dataclasses import dataclass, replace

from loadfactor.catalog.accelerators import Accelerator
from loadfactor.catalog.engines import read_engine_constants
from loadfactor.catalog.models import Network
from loadfactor.planner.serving.latency import Latency, predict_latency
from loadfactor.planner.serving.offline import predict_offline
from loadfactor.planner.serving.replica_layout import ReplicaLayout, choose_precision
from loadfactor.planner.serving.step import Replica
from loadfactor.planner.validation.serving_sweeps import SweepRow


@dataclass(frozen=True)
class MeasuredLayout:
    """A layout and how many attention ranks the row's concurrency and throughput are counted per."""

    layout: ReplicaLayout
    ranks: int


def read_layout(tp: int, moe_ep: int, attention_dp: int, scale_up_gpus: int, stages: int = 1) -> MeasuredLayout:
    """The layout a row means by tp, moe_ep, attention_dp and pp.

    A replica has tp × attention_dp × pp accelerators. Two spellings of the published sample are undone: with expert parallelism
    over all of a TP group some rows multiply tp by moe_ep (a run on 8 GPUs named "tp8_ep8" carries tp 64), and with attention
    data parallelism some count the same accelerators twice (tp 4, attention_dp 4, moe_ep 16 measured the same as tp 4, moe_ep 4).

    >>> str(read_layout(64, 8, 1, 8).layout), str(read_layout(4, 16, 4, 8).layout)
    ('8 GPUs, TP 8, EP 8', '4 GPUs, attention DP 4, EP 4')
    """
    gpus = tp * attention_dp
    if stages == 1 and tp > 1 and tp == attention_dp and moe_ep == gpus:
        return MeasuredLayout(ReplicaLayout(tp, attention_dp, tp), attention_dp)
    if stages == 1 and moe_ep > 1 and gpus == moe_ep * moe_ep and gpus > scale_up_gpus:
        return MeasuredLayout(ReplicaLayout(moe_ep, min(attention_dp, moe_ep), moe_ep), attention_dp)
    return MeasuredLayout(ReplicaLayout(gpus * stages, attention_dp, moe_ep, stages), attention_dp)


def build_replica(
    network: Network, chip: Accelerator, engine: str, weights: str | None, layout: ReplicaLayout
) -> Replica:
    """The replica of a row: the engine's constants, and how wide it keeps the cache."""
    constants = read_engine_constants(chip, engine)
    if not constants.windows_all_layers and len(network.sliding_layers) == network.layers:
        network = replace(network, sliding_window=None, sliding_layers=())
    kept = choose_precision(network, weights)
    if not constants.narrow_cache:
        kept = choose_precision(network, weights, kv_bytes_per_value=2.0)
    return Replica(network, chip, layout, kept, constants)


def predict_offline_row(r: Replica, row: SweepRow) -> float:
    """Output tokens per second of the whole replica where all requests of a row are there from the start."""
    return predict_offline(r, row.requests, float(row.prompt_tokens), float(row.output_tokens))


def predict_row(r: Replica, ranks: int, concurrency: int, prompt_tokens: int, output_tokens: int) -> Latency:
    """TTFT, time per token and throughput of the whole replica at `concurrency` requests per attention rank."""
    return predict_latency(r, float(concurrency * ranks), float(prompt_tokens), float(output_tokens))
