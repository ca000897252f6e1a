"""Layouts worth looking at: every width the network can be split to inside a scale-up domain, experts spread or split.

What is asked for may go beyond: pipeline stages, and groups of attention ranks over several domains.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from loadfactor.catalog.accelerators import Accelerator
from loadfactor.catalog.models import Network
from loadfactor.planner.serving.replica_layout import BOARD_GPUS, ReplicaLayout

WIDTHS = (1, 2, 4, 8, 16, 32, 64)
RACK_WIDTHS = (24, 28, 36, 40, 48, 56, 72)  # attention ranks of groups that are no powers of two
MOST_GROUP = 72  # attention ranks looked at beyond a domain
MOST_STAGES = 16  # pipeline stages looked at for a number of GPUs


@dataclass(frozen=True)
class AskedLayout:
    """What is given of the layout of a replica; what is left empty is searched."""

    tp: tuple[int, ...] = ()
    pp: tuple[int, ...] = ()
    ep: tuple[int, ...] = ()
    attention_dp: tuple[int, ...] = ()
    gpus: int | None = None

    def excludes(self, gpus: int) -> bool:
        """Whether another number of GPUs was asked for."""
        return self.gpus is not None and gpus != self.gpus


EVERY_LAYOUT = AskedLayout()


def list_widths(network: Network, chip: Accelerator) -> list[int]:
    """Powers of two up to the scale-up domain (or two of them) that divide the heads."""
    most = max(chip.scale_up_gpus, BOARD_GPUS)
    return [w for w in WIDTHS if w <= most and network.heads % w == 0]


def list_layouts(network: Network, chip: Accelerator, asked: AskedLayout = EVERY_LAYOUT) -> list[ReplicaLayout]:
    """Tensor parallel at every width; with experts also expert parallel, and with copies of the attention (for latent caches).

    Inside a domain without anything asked for. Pipeline stages, and groups of attention ranks beyond a domain, are for who asks:
    there is no measurement of them to choose by.
    """
    found = []
    for stages, tensor, copies in product(
        _stages(network, chip, asked), _widths(network, chip, asked), _copies(network, chip, asked)
    ):
        if network.heads % tensor or stages > network.layers or asked.excludes(stages * tensor * copies):
            continue
        stage = tensor * copies
        if copies > 1 and not asked.attention_dp and tensor > 1:
            continue
        for ranks in asked.ep or _expert_ranks(network, stage, copies):
            if stage % ranks == 0 and (ranks == 1 or _has_experts_for(network, ranks)):
                found.append(ReplicaLayout(stage * stages, copies, ranks, stages))
    return found


def _stages(network: Network, chip: Accelerator, asked: AskedLayout) -> Sequence[int]:
    """Pipeline stages to look at: those asked for, or what a number of GPUs asked for leaves beyond a domain."""
    if asked.pp:
        return asked.pp
    if asked.gpus is None or asked.gpus <= max(chip.scale_up_gpus, BOARD_GPUS):
        return (1,)
    widths = asked.tp or list_widths(network, chip)
    return sorted({1} | {asked.gpus // w for w in widths if asked.gpus % w == 0 and asked.gpus // w <= MOST_STAGES})


def _widths(network: Network, chip: Accelerator, asked: AskedLayout) -> Sequence[int]:
    return asked.tp or list_widths(network, chip)


def _copies(network: Network, chip: Accelerator, asked: AskedLayout) -> Sequence[int]:
    """Numbers of attention ranks to look at: with experts, as many as GPUs."""
    if asked.attention_dp:
        return asked.attention_dp
    if network.experts is None:
        return (1,)
    most = max(chip.scale_up_gpus, BOARD_GPUS)
    if asked.gpus is not None or asked.ep:
        most = max(most, MOST_GROUP)
    return sorted({1, *(w for w in (*WIDTHS, *RACK_WIDTHS) if w <= most)})


def _expert_ranks(network: Network, stage: int, copies: int) -> Sequence[int]:
    """Expert-parallel ranks of a stage: none, or as many as GPUs."""
    if network.experts is None or stage == 1:
        return (1,)
    return (stage,) if copies > 1 else (1, stage)


def _has_experts_for(network: Network, ranks: int) -> bool:
    """Whether so many ranks have an expert each: on boards exactly alike, in wide groups the busiest twice."""
    if network.experts is None:
        return False
    count = network.experts.count
    return count % ranks == 0 or (ranks > BOARD_GPUS and count >= ranks)


def explain_no_layout(network: Network, chip: Accelerator, asked: AskedLayout) -> str:
    """Why nothing that was asked for is a layout, and what is."""
    name, able = network.name, ", ".join(map(str, list_widths(network, chip)))
    wrong = [t for t in asked.tp if network.heads % t]
    if wrong:
        return f"{name} has {network.heads} heads, which {wrong[0]} tensor ranks cannot share; --tp {able} can"
    deep = [p for p in asked.pp if p > network.layers]
    if deep:
        return f"{name} has {network.layers} layers, fewer than {deep[0]} pipeline stages; give a smaller --pp"
    if network.experts is None and max((*asked.ep, 1)) > 1:
        return f"{name} has no experts to spread; leave --ep out"
    if network.experts is not None and min(asked.ep or (1,)) > network.experts.count:
        return f"{name} has {network.experts.count} experts, fewer than {min(asked.ep)} ranks; give a smaller --ep"
    if asked.ep and asked.tp and asked.attention_dp:
        stage = asked.tp[0] * asked.attention_dp[0]
        return f"--ep {asked.ep[0]} does not divide the {stage} GPUs of a stage (--tp × --attention-dp); {stage} does"
    if asked.gpus is not None:
        return (
            f"no layout of {name} has {asked.gpus} GPUs a replica with what is given: tensor ranks ({able}) × attention ranks × "
            "pipeline stages; give another number, or --pp"
        )
    return f"no layout of {name} has what is given together; leave --ep or --attention-dp out"
