"""Layout of a training job over its GPUs: degrees of parallelism and what else can be set, for one layout or arrays of many."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from loadfactor.base.units import PERCENT

RECOMPUTE = ("none", "selective", "full")  # the position is the code an array of layouts holds
NONE, SELECTIVE, FULL = range(3)


@dataclass(frozen=True)
class TrainingLayout:
    """Degrees of parallelism and what is set beside them; every field is a number (or bool), or an array of them.

    GPUs are numbered tensor first, then context, data, pipeline: tensor ranks are neighbours inside a scale-up domain,
    pipeline stages lie farthest apart. Experts are spread over data ranks, and over context and tensor ranks where there are
    more expert ranks than data ranks. `recompute` is a position in RECOMPUTE, `zero` the stage of ZeRO (3: fully sharded).
    `recompute_share`: of a stage's layers that are recomputed where recomputation is full.
    """

    tensor: Any = 1
    pipeline: Any = 1
    data: Any = 1
    context: Any = 1
    expert: Any = 1
    micro_batch: Any = 1
    interleave: Any = 1
    recompute: Any = NONE
    zero: Any = 1
    sequence_parallel: Any = False
    recompute_share: Any = 1.0

    @property
    def gpus(self) -> Any:
        """How many GPUs it takes.

        >>> TrainingLayout(tensor=8, pipeline=4, data=2).gpus
        64
        """
        return self.tensor * self.pipeline * self.data * self.context

    @property
    def expert_tensor(self) -> Any:
        """Tensor ranks that cut each expert: all of them, as far as expert ranks leave any.

        >>> [int(TrainingLayout(tensor=2, data=32, expert=ranks).expert_tensor) for ranks in (8, 64)]
        [2, 1]
        """
        return np.clip(self.tensor * self.context * self.data // self.expert, 1, self.tensor)[()]

    @property
    def expert_copies(self) -> Any:
        """Ranks that hold the same part of the same experts: they exchange its gradients."""
        return np.maximum(self.tensor * self.context * self.data / (self.expert * self.expert_tensor), 1)

    def micro_batches(self, global_batch: Any) -> Any:
        """Micro-batches each pipeline works through in a step.

        >>> TrainingLayout(data=4, micro_batch=2).micro_batches(64)
        8
        """
        return global_batch // (self.data * self.micro_batch)

    def __len__(self) -> int:
        return int(np.size(self.tensor))

    @staticmethod
    def join(layouts: "Sequence[TrainingLayout]") -> "TrainingLayout":
        """Many layouts, each plain or arrays, as one with arrays; without any, arrays of length 0."""
        columns = ([np.atleast_1d(getattr(one, f.name)) for one in layouts] for f in fields(TrainingLayout))
        return TrainingLayout(*(np.concatenate(c) if c else np.zeros(0) for c in columns))

    def as_arrays(self) -> "TrainingLayout":
        """The same layout with every field an array of the same length, as the equations expect it."""
        columns = np.broadcast_arrays(*(np.atleast_1d(np.asarray(getattr(self, f.name))) for f in fields(self)))
        return TrainingLayout(*(np.asarray(c, dtype=np.float64) for c in columns))

    def pick(self, index: Any) -> "TrainingLayout":
        """One of many layouts as plain numbers, or many by an array of positions or a mask."""
        columns = [np.atleast_1d(np.asarray(getattr(self, f.name)))[index] for f in fields(self)]
        if np.ndim(columns[0]):
            return TrainingLayout(*columns)
        named: dict[str, Any] = {f.name: int(c) for f, c in zip(fields(self), columns, strict=True)}
        named["sequence_parallel"] = bool(named["sequence_parallel"])
        return TrainingLayout(**{**named, "recompute_share": float(columns[-1])})

    def __iter__(self) -> Iterator["TrainingLayout"]:
        return (self.pick(i) for i in range(len(self)))

    def as_json(self) -> dict[str, Any]:
        """One layout as programs read it: its fields, the recomputation by its name."""
        return {**vars(self), "recompute": RECOMPUTE[self.recompute]}

    def __str__(self) -> str:
        """The layout as an engineer would write it on a whiteboard.

        >>> print(TrainingLayout(tensor=8, pipeline=4, data=16, micro_batch=1, interleave=2, recompute=SELECTIVE))
        TP 8 · PP 4 ×2 · DP 16 · micro-batch 1 · selective recompute · ZeRO-1
        """
        parts = [f"TP {self.tensor}", f"PP {self.pipeline}" + (f" ×{self.interleave}" if self.interleave > 1 else "")]
        parts += [f"CP {self.context}"] * (self.context > 1) + [f"DP {self.data}"]
        parts += [f"EP {self.expert}"] * (self.expert > 1) + [f"micro-batch {self.micro_batch}"]
        parts += [self.recomputed, f"ZeRO-{self.zero}"]
        return " · ".join(parts)

    @property
    def recomputed(self) -> str:
        """Recomputation of one layout in words.

        >>> TrainingLayout(recompute=FULL).recomputed, TrainingLayout(recompute=FULL, recompute_share=0.25).recomputed
        ('full recompute', 'recompute of 25 % of the layers')
        """
        if self.recompute == FULL and self.recompute_share < 1:
            return f"recompute of {self.recompute_share * PERCENT:.0f} % of the layers"
        return f"{RECOMPUTE[self.recompute]} recompute"
